"""The fault injector: wrappers around a transport, a store and a handler that kill the process at a named step.

Nothing in production code knows of it. A worker is built from the wrapped parts, dies with SIGKILL at its
step, and then a clean one has to find every message again (tests/faults counts them).
"""

from __future__ import annotations

import functools
import inspect
import os
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar, cast

from redrive.errors import StoreUnavailable, TransportUnavailable
from redrive.model import Letter, LetterId, Message, Owner, State
from redrive.stores.base import Documents, Ledger, Letters, Series, Store, Versions
from redrive.transports.base import Delivery, Depth, SendResult, Settlement, Transport

F = TypeVar("F", bound=Callable[..., Awaitable[Any]])
B = TypeVar("B")


class Step(StrEnum):
    """Where a worker can be killed."""

    RECEIVED = "received"
    ATTEMPTED = "attempted"
    BEFORE_RECORD = "before_record"
    AFTER_RECORD = "after_record"
    BEFORE_RESOLVE = "before_resolve"
    AFTER_RESOLVE = "after_resolve"
    BEFORE_ACK = "before_ack"
    AFTER_ACK = "after_ack"
    BEFORE_SEND = "before_send"
    AFTER_SEND = "after_send"
    BEFORE_CONFIRM = "before_confirm"
    AFTER_CONFIRM = "after_confirm"


Probe = Callable[[Step], None]
"""Told of every step; it may return, raise, or end the process."""


class Killer:
    """Ends this process, as the power cord would, when its step is reached for the nth time."""

    def __init__(self, step: Step | None, nth: int = 1) -> None:
        self.step = step
        self.nth = nth
        self.reached: Counter[Step] = Counter()

    def __call__(self, step: Step) -> None:
        self.reached[step] += 1
        if step is self.step and self.reached[step] == self.nth:
            os.kill(os.getpid(), signal.SIGKILL)


def faulty_handler(handler: F, probe: Probe) -> F:
    """The handler, with the step `attempted` after it, whether it failed or not."""

    @functools.wraps(handler)
    async def attempted(*arguments: Any) -> Any:
        try:
            return await handler(*arguments)
        finally:
            probe(Step.ATTEMPTED)

    return cast(F, attempted)


class FaultyTransport:
    """A transport with steps around receive, settle and send."""

    def __init__(self, transport: Transport, probe: Probe) -> None:
        self.features = transport.features
        self._inner = transport
        self._probe = probe

    def __getattr__(self, name: str) -> Any:
        """What not every transport has, such as `keep_order`."""
        return getattr(self._inner, name)

    async def receive(self, source: str, limit: int) -> Sequence[Delivery]:
        deliveries = await self._inner.receive(source, limit)
        self._probe(Step.RECEIVED)
        return deliveries

    async def extend(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        return await self._inner.extend(deliveries)

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Delivery]:
        self._probe(Step.BEFORE_ACK)
        lost = await self._inner.settle(settlements)
        self._probe(Step.AFTER_ACK)
        return lost

    async def send(self, messages: Sequence[Message]) -> Sequence[SendResult]:
        self._probe(Step.BEFORE_SEND)
        results = await self._inner.send(messages)
        self._probe(Step.AFTER_SEND)
        return results

    async def depths(self) -> dict[str, Depth]:
        return await self._inner.depths()

    async def check(self) -> None:
        await self._inner.check()

    async def aclose(self) -> None:
        await self._inner.aclose()


class FaultyStore:
    """A store with steps around record, resolve and confirm."""

    def __init__(self, store: Store, probe: Probe) -> None:
        self.features = store.features
        self.letters = cast(Letters, FaultyLetters(store.letters, probe))
        self.versions: Versions = store.versions
        self.ledger: Ledger = store.ledger
        self.documents: Documents = store.documents
        self.series: Series = store.series
        self._inner = store

    async def check(self) -> None:
        await self._inner.check()

    async def aclose(self) -> None:
        await self._inner.aclose()


class FaultyLetters:
    """Letters with steps around record, and around the two moves that matter."""

    def __init__(self, letters: Letters, probe: Probe) -> None:
        self._inner = letters
        self._probe = probe

    def __getattr__(self, name: str) -> Any:
        """Everything else, as it is."""
        return getattr(self._inner, name)

    async def record(self, letters: Sequence[Letter]) -> None:
        self._probe(Step.BEFORE_RECORD)
        await self._inner.record(letters)
        self._probe(Step.AFTER_RECORD)

    async def move(
        self,
        ids: Collection[LetterId],
        *,
        expect: Collection[State],
        to: State,
        now: datetime,
        owner: Owner | None = None,
    ) -> Sequence[LetterId]:
        before, after = _steps(expect, to)
        if before is not None:
            self._probe(before)
        moved = await self._inner.move(ids, expect=expect, to=to, now=now, owner=owner)
        if after is not None:
            self._probe(after)
        return moved


def _steps(expect: Collection[State], to: State) -> tuple[Step | None, Step | None]:
    if to is State.RESOLVED:
        return Step.BEFORE_RESOLVE, Step.AFTER_RESOLVE
    if to in (State.RETRYING, State.REPLAYING) and tuple(expect) == (to,):
        return Step.BEFORE_CONFIRM, Step.AFTER_CONFIRM
    return None, None


class Outage:
    """A backend that goes away and comes back: while it is `down`, every call of it raises its error.

    `only` names the methods that fail; without it, all do. `refused` counts the calls that did.
    """

    def __init__(self, error: Exception, only: Collection[str] = ()) -> None:
        self.error = error
        self.only = frozenset(only)
        self.down = False
        self.refused: Counter[str] = Counter()

    def wrap(self, inner: B) -> B:
        """The same backend, but as reachable as this says."""
        return cast(B, _Outer(self, inner))

    def call(self, name: str) -> None:
        if self.down and name != "aclose" and (not self.only or name in self.only):
            self.refused[name] += 1
            raise self.error


class _Outer:
    def __init__(self, outage: Outage, inner: object) -> None:
        self._outage = outage
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if name in ("letters", "ledger", "documents"):
            return _Outer(self._outage, value)
        if not inspect.iscoroutinefunction(value):
            return value

        @functools.wraps(value)
        async def call(*arguments: Any, **named: Any) -> Any:
            self._outage.call(name)
            return await value(*arguments, **named)

        return call


def store_outage(store: Store, *, only: Collection[str] = ()) -> tuple[Outage, Store]:
    """The switch, and the store it switches."""
    outage = Outage(StoreUnavailable("the store", "this is an exercise"), only)
    return outage, outage.wrap(store)


def transport_outage(transport: Transport, *, only: Collection[str] = ()) -> tuple[Outage, Transport]:
    """The switch, and the transport it switches."""
    outage = Outage(TransportUnavailable("the transport", "this is an exercise"), only)
    return outage, outage.wrap(transport)
