"""Everything that relies on names which pika keeps to itself. Nothing else in this folder may.

tests/unit/transports/test_rabbitmq_pika.py goes red when a new pika has changed one of them; until somebody has looked,
pyproject.toml allows no pika 2.

    Connection._adapter_emit_data   sends bytes: ours sends those of one turn of the loop in one system call, not three
                                    for each message
    Connection._process_callbacks   looks up who waits for a frame: nobody can wait for content and deliveries
    Connection._read_frame          reads the next frame of Connection._frame_buffer: ours reads those with properties,
                                    whose headers then keep their types (properties.py)
    Connection._on_connection_workflow_done
                                    hears how connecting ended: if it was closed in the middle of it, pika (1.4) gives
                                    the class of an error, and then fails at that itself
    Connection._on_connection_start hears the first word of a broker; `server_properties` forgets it at an error
    Connection._transport           the socket, to end a connection without a word to the broker
    Channel._cancelled              tags of consumers whose late deliveries pika rejects
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any

from redrive.errors import MissingExtra
from redrive.transports.rabbitmq.properties import Properties

try:
    import pika
    from pika.adapters.asyncio_connection import AsyncioConnection
    from pika.channel import Channel as Raw
    from pika.frame import Header, Method
    from pika.spec import FRAME_END, FRAME_HEADER, Basic
except ImportError as error:  # pragma: no cover
    raise MissingExtra("RabbitMQ", "rabbitmq") from error


_FRAME = struct.Struct(">BHIHHQ")  # type, channel and size of a frame; class, weight and body size of a message
_BEFORE, _AFTER = 7, 1  # bytes around what a frame holds
_OF_PROPERTIES = bytes((FRAME_HEADER,))


class Connection(AsyncioConnection):  # type: ignore[misc]
    """pika's connection on the event loop, with fewer system calls and lookups for each message."""

    def __init__(self, parameters: pika.URLParameters, loop: asyncio.AbstractEventLoop, **callbacks: Any) -> None:
        self._loop = loop
        self._unsent: list[bytes] = []
        self.answered = False  # what is there speaks as a RabbitMQ does
        super().__init__(parameters, custom_ioloop=loop, **callbacks)

    def abort(self) -> None:
        """End it without the broker, which reads nothing from a publisher while it has an alarm."""
        if self._transport is not None:
            self._transport.abort()

    def _on_connection_workflow_done(self, conn_or_exc: Any) -> None:
        super()._on_connection_workflow_done(conn_or_exc() if isinstance(conn_or_exc, type) else conn_or_exc)

    def _on_connection_start(self, method_frame: Any) -> None:
        self.answered = True
        super()._on_connection_start(method_frame)

    def _adapter_emit_data(self, data: bytes) -> None:
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(data)

    def _flush(self) -> None:
        data, self._unsent = b"".join(self._unsent), []
        if self._transport is not None:  # otherwise the connection was lost, and these with it
            super()._adapter_emit_data(data)

    def _read_frame(self) -> Any:
        return properties_frame(self._frame_buffer) or super()._read_frame()

    def _process_callbacks(self, frame: Any) -> bool:
        if type(frame) is not Method or type(frame.method) is Basic.Deliver:
            return False
        return bool(super()._process_callbacks(frame))


def cancel_consumer(raw: Raw, tag: str, callback: Callable[[Any], None]) -> None:
    """Cancel a consumer and still receive what is on its way: pika would reject that, and the broker would say of it
    later that it was delivered before."""
    raw.basic_cancel(tag, callback)
    raw._cancelled.discard(tag)


def properties_frame(buffer: bytes) -> tuple[int, Header] | None:
    """The size and the frame, if a whole frame of properties is the next in that buffer."""
    if buffer[:1] != _OF_PROPERTIES or len(buffer) < _FRAME.size:
        return None
    _, channel, size, index, _, body_size = _FRAME.unpack_from(buffer)
    end = _BEFORE + size + _AFTER
    if len(buffer) < end or index != Properties.INDEX or buffer[end - 1] != FRAME_END:
        return None
    return end, Header(channel, body_size, Properties().decode(buffer[_FRAME.size : end - 1]))
