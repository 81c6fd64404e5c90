"""Everything that relies on names which pika keeps to itself. Nothing else in this folder may.

tests/unit/transports/test_rabbitmq_pika.py goes red when a new pika has changed one of them; until somebody has looked,
pyproject.toml allows no pika 2.

    Connection._adapter_emit_data   sends bytes: ours sends those of one turn of the loop in one system call, not three
                                    for each message
    Connection._process_callbacks   looks up who waits for a frame: nobody can wait for content and deliveries
    Connection._transport           the socket, to end a connection without a word to the broker
    Channel._cancelled              tags of consumers whose late deliveries pika rejects
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from redrive.errors import MissingExtra

try:
    import pika
    from pika.adapters.asyncio_connection import AsyncioConnection
    from pika.channel import Channel as Raw
    from pika.frame import Method
    from pika.spec import Basic
except ImportError as error:  # pragma: no cover
    raise MissingExtra("RabbitMQ", "rabbitmq") from error


class Connection(AsyncioConnection):  # type: ignore[misc]
    """pika's connection on the event loop, with fewer system calls and lookups for each message."""

    def __init__(self, parameters: pika.URLParameters, loop: asyncio.AbstractEventLoop, **callbacks: Any) -> None:
        self._loop = loop
        self._unsent: list[bytes] = []
        super().__init__(parameters, custom_ioloop=loop, **callbacks)

    def abort(self) -> None:
        """End it without the broker, which reads nothing from a publisher while it has an alarm."""
        if self._transport is not None:
            self._transport.abort()

    def _adapter_emit_data(self, data: bytes) -> None:
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(data)

    def _flush(self) -> None:
        data, self._unsent = b"".join(self._unsent), []
        if self._transport is not None:  # otherwise the connection was lost, and these with it
            super()._adapter_emit_data(data)

    def _process_callbacks(self, frame: Any) -> bool:
        if type(frame) is not Method or type(frame.method) is Basic.Deliver:
            return False
        return bool(super()._process_callbacks(frame))


def cancel_consumer(raw: Raw, tag: str, callback: Callable[[Any], None]) -> None:
    """Cancel a consumer and still receive what is on its way: pika would reject that, and the broker would say of it
    later that it was delivered before."""
    raw.basic_cancel(tag, callback)
    raw._cancelled.discard(tag)
