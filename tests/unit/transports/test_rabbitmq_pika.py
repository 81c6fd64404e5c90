"""pika as `pika_internals.py` relies on it: red when a new pika has changed a name that it keeps to itself."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.asyncio_connection import AsyncioConnection
from pika.adapters.utils.nbio_interface import AbstractStreamTransport
from pika.channel import Channel
from pika.connection import Connection
from pika.spec import Basic

from redrive.transports.rabbitmq import pika_internals

FOLDER = Path(pika_internals.__file__).parent
CHANGED = (
    f"pika {pika.__version__} is not as src/redrive/transports/rabbitmq/pika_internals.py needs it: {{}}. "
    "Read what that file says of the name, and follow pika there, or forbid this pika in pyproject.toml"
)


def holds(condition: bool, what: str) -> None:
    assert condition, CHANGED.format(what)


@pytest.mark.parametrize(
    ("name", "takes"),
    [
        ("_adapter_emit_data", 1),
        ("_process_callbacks", 1),
        ("_read_frame", 0),
        ("_on_connection_workflow_done", 1),
        ("_on_connection_start", 1),
    ],
)
def test_a_method_that_is_replaced_is_there_and_takes_as_many_arguments(name: str, takes: int) -> None:
    method = getattr(AsyncioConnection, name, None)
    holds(method is not None, f"there is no AsyncioConnection.{name}")
    assert method is not None
    holds(len(inspect.signature(method).parameters) == takes + 1, f"{name} takes other arguments")


def test_everything_is_sent_through_the_method_that_is_replaced() -> None:
    calls = "_adapter_emit_data(" in inspect.getsource(Connection._output_marshaled_frames)
    holds(calls, "frames do not go out by _adapter_emit_data")


def test_every_frame_asks_the_method_that_is_replaced() -> None:
    asks = "self._process_callbacks(" in inspect.getsource(Connection._process_frame)
    holds(asks, "frames do not ask _process_callbacks")


def test_a_connection_has_a_transport_that_can_be_aborted() -> None:
    holds("self._transport" in inspect.getsource(AsyncioConnection.__mro__[1].__init__), "there is no _transport")
    holds(hasattr(AbstractStreamTransport, "abort"), "a transport has no abort()")


def test_every_frame_is_read_by_the_method_that_is_replaced_from_the_buffer() -> None:
    source = inspect.getsource(Connection._on_data_available)
    holds("self._read_frame()" in source, "frames are not read by _read_frame")
    holds("self._frame_buffer += data_in" in source, "what came is not in _frame_buffer")


def test_a_frame_of_properties_is_read_as_pika_reads_it() -> None:
    texts = "content_type content_encoding correlation_id reply_to expiration message_id type user_id app_id cluster_id"
    known = {name: f"{name} é" for name in texts.split()}
    theirs = pika.BasicProperties(**known, delivery_mode=2, priority=7, timestamp=9, headers={"n": 7, "s": ["é", None]})
    for properties in (theirs, pika.BasicProperties()):
        data = pika.frame.Header(3, 11, properties).marshal()
        end, frame = pika.frame.decode_frame(data + b"more")
        found = pika_internals.properties_frame(data + b"more")
        assert found is not None
        holds((found[0], vars(found[1]).keys()) == (end, vars(frame).keys()), "a frame has other attributes")
        assert (found[1].channel_number, found[1].body_size, found[1].frame_type) == (3, 11, frame.frame_type)
        assert {name: getattr(found[1].properties, name) for name in vars(frame.properties)} == vars(frame.properties)
        assert pika_internals.properties_frame(data[:-1]) is None, "it is not all there yet"
    assert pika_internals.properties_frame(pika.frame.Heartbeat().marshal()) is None


class _Connection:
    """What a channel of pika needs of its connection to send."""

    def __init__(self) -> None:
        self.callbacks = pika.callback.CallbackManager()
        self.sent: list[Any] = []

    def _send_method(self, number: int, method: Any, content: Any = None) -> None:
        self.sent.append(method)


def test_what_is_on_its_way_to_a_cancelled_consumer_still_comes() -> None:
    """A real channel of pika, on a connection that goes nowhere."""
    connection, came = _Connection(), list[bytes]()
    channel = Channel(connection, 1, lambda _: None)
    channel._set_state(Channel.OPEN)
    channel._consumers["tag"] = lambda _, method, properties, body: came.append(body)
    pika_internals.cancel_consumer(channel, "tag", lambda frame: None)
    method = Basic.Deliver("tag", 1, False, "", "orders")
    channel._on_deliver(pika.frame.Method(1, method), pika.frame.Header(1, 1, pika.BasicProperties()), b"x")
    holds(came == [b"x"], "Channel._cancelled does not decide what becomes of late deliveries")
    holds([type(sent) for sent in connection.sent] == [Basic.Cancel], "a cancelled consumer sends something else")


PRIVATE = re.compile(r"(?:raw|connection|channel)\._[a-z]|from pika\S* import _")


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.py")), ids=lambda file: file.name)
def test_no_other_file_uses_a_private_name_of_pika(file: Path) -> None:
    found = PRIVATE.findall(file.read_text())
    assert not found or file.name == "pika_internals.py", f"{file.name}: move it to pika_internals.py"
    assert "AsyncioConnection" not in file.read_text() or file.name == "pika_internals.py"
