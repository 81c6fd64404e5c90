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


@pytest.mark.parametrize("name", ["_adapter_emit_data", "_process_callbacks"])
def test_a_method_that_is_replaced_is_there_and_takes_one_argument(name: str) -> None:
    method = getattr(AsyncioConnection, name, None)
    holds(method is not None, f"there is no AsyncioConnection.{name}")
    assert method is not None
    holds(len(inspect.signature(method).parameters) == 2, f"{name} takes other arguments")


def test_everything_is_sent_through_the_method_that_is_replaced() -> None:
    calls = "_adapter_emit_data(" in inspect.getsource(Connection._output_marshaled_frames)
    holds(calls, "frames do not go out by _adapter_emit_data")


def test_every_frame_asks_the_method_that_is_replaced() -> None:
    asks = "self._process_callbacks(" in inspect.getsource(Connection._process_frame)
    holds(asks, "frames do not ask _process_callbacks")


def test_a_connection_has_a_transport_that_can_be_aborted() -> None:
    holds("self._transport" in inspect.getsource(AsyncioConnection.__mro__[1].__init__), "there is no _transport")
    holds(hasattr(AbstractStreamTransport, "abort"), "a transport has no abort()")


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
