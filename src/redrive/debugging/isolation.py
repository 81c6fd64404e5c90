"""An isolated process: whatever app is made in it, what it sends is noted and goes nowhere, and its store is empty.

It is asked for once, before the user's modules are imported, and lasts as long as the process; `Redrive.transport` and
`Redrive.store` look at it, whatever an app was made with.
"""

from __future__ import annotations

import functools
import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from redrive.errors import UsageError
from redrive.flow.callables import function_of
from redrive.model import Message
from redrive.stores.base import Store
from redrive.stores.memory import MemoryStore
from redrive.transports.base import ACCEPTED, Delivery, Depth, Features, SendResult, Settlement

_DRY = "dry"


class NotedTransport:
    """Takes everything and sends nothing. Nobody receives from it."""

    features = Features(
        durable=False,
        native_delay=True,
        counts_attempts=True,
        keeps_history=True,
        ordered_by="none",
        idempotent_send=True,
        shared=False,
        delays_sends=True,
        sends_within=True,
    )

    def __init__(self, sent: list[Message]) -> None:
        self._sent = sent

    async def send(self, messages: Sequence[Message]) -> Sequence[SendResult]:
        self._sent.extend(messages)
        return [ACCEPTED] * len(messages)

    async def send_within(self, connection: Any, message: Message) -> None:
        self._sent.append(message)

    async def receive(self, source: str, limit: int) -> Sequence[Delivery]:
        raise UsageError("a handler that is only tried out does not receive: nothing is there to be received")

    async def extend(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        return []

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Delivery]:
        return []

    async def depths(self) -> dict[str, Depth]:
        return {}

    async def check(self) -> None:
        return None

    async def aclose(self) -> None:
        return None


class Isolation:
    """What the apps of this process would have sent, and the store that they have instead of theirs.

    dry   handlers that take a parameter `dry` get True for it
    """

    def __init__(self, *, dry: bool) -> None:
        self.dry = dry
        self.sent: list[Message] = []
        self.transport = NotedTransport(self.sent)
        self.store: Store = MemoryStore()

    def sources(self) -> dict[str, int]:
        """How many messages would have been sent to each source since this was last asked."""
        counts = Counter(message.source for message in self.sent)
        self.sent.clear()
        return dict(counts)

    def prepared(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The handler as it is called here: with `dry=True`, if it takes that."""
        return functools.partial(function, dry=True) if self.dry and takes_dry(function) else function


def takes_dry(function: Callable[..., Any]) -> bool:
    """Whether a handler can be told to have no effects: it has a parameter `dry` with a default."""
    if not callable(function_of(function)):
        return False
    try:
        parameter = inspect.signature(function).parameters.get(_DRY)
    except (TypeError, ValueError):
        return False
    return parameter is not None and parameter.default is not parameter.empty


_current: Isolation | None = None


def isolation() -> Isolation | None:
    """The isolation of this process; None: it is none, as everywhere but in a shadow replay or a debugger."""
    return _current


def isolate(*, dry: bool = False) -> Isolation:
    """Isolate this process from now on."""
    global _current
    _current = Isolation(dry=dry)
    return _current


@contextmanager
def isolated(*, dry: bool = False) -> Iterator[Isolation]:
    """The same for a while: what was opened before is used again after it."""
    global _current
    before = _current
    try:
        yield isolate(dry=dry)
    finally:
        _current = before
