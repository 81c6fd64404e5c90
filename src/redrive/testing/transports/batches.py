"""Batch handlers on it: who fails in a batch fails alone, with its own history, and the others are done."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

from msgspec.structs import replace

from redrive.app import Redrive
from redrive.config.settings import Settings
from redrive.errors import Failed
from redrive.flow.backoff import immediate
from redrive.flow.batches import BatchConsumer
from redrive.forensics.query import Query
from redrive.model import Letter, Message, Reason
from redrive.policy import Policy
from redrive.stores.memory import MemoryStore
from redrive.telemetry.events import BatchSettled, Event
from redrive.testing.builders import make_message
from redrive.testing.transports.backend import TransportBackend
from redrive.testing.waiting import until
from redrive.transports.base import Transport

_GRACE = timedelta(seconds=30)


class Batches:
    """Messages that are handled in one call."""

    async def test_three_of_a_batch_fail_and_only_they_are_tried_again(
        self, backend: TransportBackend, transport: Transport
    ) -> None:
        number = min(backend.many, 500)
        bad = {"3", "77", f"{number - 1}"}
        shop = Shop(backend, transport, failing=bad)
        await transport.send([make_message(id=f"{n}") for n in range(number)])
        async with shop.working(size=number, policy=Policy(attempts=3, backoff=immediate())):
            await shop.until_gone(number)
        assert shop.done == Counter(f"{n}" for n in range(number) if f"{n}" not in bad)
        letters = await shop.letters()
        assert {letter.message.id for letter in letters} == bad
        if not transport.features.native_delay:  # their retries wait in the store
            assert {letter.reason for letter in letters} == {Reason.PARKED}
            return
        assert all(len(call) == 1 for call in shop.calls if bad & set(call) and shop.attempt_in(call) > 1)
        assert {name: shop.attempts[name] for name in bad} == {name: [1, 2, 3] for name in bad}
        for letter in letters:
            assert {failure.message for failure in letter.failures} == {f"not {letter.message.id}"}
            kept = [failure.attempt for failure in letter.failures]
            assert kept == ([1, 2, 3] if transport.features.keeps_history else [3])

    async def test_one_poisoned_message_is_buried_and_no_other(
        self, backend: TransportBackend, transport: Transport
    ) -> None:
        shop = Shop(backend, transport, poison={"20"})
        await transport.send([make_message(id=f"{n}") for n in range(64)])
        async with shop.working(size=64, policy=Policy(attempts=1)):
            await shop.until_gone(64)
        assert shop.done == Counter(f"{n}" for n in range(64) if n != 20)
        [letter] = await shop.letters()
        assert letter.message.id == "20"
        assert [failure.attempt for failure in letter.failures] == [1]
        assert {attempt for attempts in shop.attempts.values() for attempt in attempts} == {1}

    async def test_batches_keep_the_order_that_is_promised(
        self, backend: TransportBackend, transport: Transport
    ) -> None:
        """Where it is by key, what is behind a failure of its key is handled again after it."""
        sent = [make_message(id=f"{n:03}", key=b"k%d" % (n % 7)) for n in range(70)]
        shop = Shop(backend, transport, failing={"010", "024", "050"}, recovers=True)
        await transport.send(sent)
        async with shop.working(size=20, policy=Policy(attempts=3, backoff=immediate())):
            await shop.until_gone(70)
        assert shop.done.keys() >= {message.id for message in sent} - shop.failing
        if transport.features.ordered_by == "key":
            for key in {message.key for message in sent}:
                assert shop.last_done(key) == [message.id for message in sent if message.key == key]

    async def test_a_batch_that_a_worker_stops_with_is_as_it_was(
        self, backend: TransportBackend, transport: Transport
    ) -> None:
        await transport.send([make_message(id=f"{n}") for n in range(10)])
        shop = Shop(backend, transport, hangs=True)
        async with shop.working(size=10, grace=timedelta()):
            await backend.eventually(until(lambda: bool(shop.calls), what="a batch is in hand"))
        shop.hangs = False
        async with shop.working(size=10):
            await shop.until_gone(10)
        assert shop.done == Counter(f"{n}" for n in range(10))
        assert {attempt for attempts in shop.attempts.values() for attempt in attempts} == {1}
        assert len(await shop.letters()) == 0


class Shop:
    """A worker with a batch handler that writes down what it does, and fails as it is told.

    failing    these fail by name; where one recovers, only once
    poison     a batch with one of these fails as a whole
    """

    def __init__(
        self,
        backend: TransportBackend,
        transport: Transport,
        *,
        failing: set[str] | None = None,
        poison: set[str] | None = None,
        recovers: bool = False,
        hangs: bool = False,
    ) -> None:
        self.failing, self.poison = failing or set(), poison or set()
        self.recovers, self.hangs = recovers, hangs
        self.calls: list[list[str]] = []
        self.attempts: dict[str, list[int]] = {}
        self.done: Counter[str] = Counter()
        self._order: list[Message] = []
        self._backend = backend
        self._transport = transport
        self._store = MemoryStore()
        self._gone = 0

    @asynccontextmanager
    async def working(
        self, *, size: int, policy: Policy | None = None, grace: timedelta = _GRACE
    ) -> AsyncIterator[None]:
        """A worker that takes batches of that size; it has ended when this is left."""
        settings = replace(Settings(), lease=self._backend.lease)
        clock = self._backend.worker_clock
        app = Redrive(transport=self._transport, store=self._store, settings=settings, clock=clock)
        app.events.subscribe(self._observe)
        app.handler("orders", batch=size, within="50ms", policy=policy)(self._handle)
        consumer = BatchConsumer(app.context(app.handlers["orders"]))
        task = asyncio.create_task(consumer.run(grace))
        try:
            yield
        finally:
            consumer.stop()
            await self._backend.eventually(task)

    async def until_gone(self, number: int) -> None:
        """Wait until so many are done or buried."""
        await self._backend.eventually(until(lambda: self._gone == number, what=f"{number} are settled for good"))

    async def letters(self) -> Sequence[Letter]:
        return (await self._store.letters.search(Query(), limit=1000)).letters

    def attempt_in(self, call: list[str]) -> int:
        """How often the first message of a call had been handed over by then, that call included."""
        return sum(call[0] in other for other in self.calls[: self.calls.index(call) + 1])

    def last_done(self, key: bytes | None) -> list[str]:
        """The ids of a key, in the order in which they were done for the last time."""
        last = {message.id: place for place, message in enumerate(self._order) if message.key == key}
        return sorted(last, key=lambda id: last[id])

    def _observe(self, event: Event) -> None:
        if isinstance(event, BatchSettled):
            parked = event.retried if not self._transport.features.native_delay else 0
            self._gone += event.done + event.buried + parked

    async def _handle(self, bodies: list[bytes], messages: list[Message]) -> None:
        self.calls.append([message.id for message in messages])
        for message in messages:
            self.attempts.setdefault(message.id, []).append(message.attempt)
        if self.hangs:
            await asyncio.Event().wait()
        if any(message.id in self.poison for message in messages):
            raise ConnectionError("a poisoned batch")
        failed = {place: message for place, message in enumerate(messages) if self._fails(message)}
        good = [message for place, message in enumerate(messages) if place not in failed]
        self.done.update(message.id for message in good)
        self._order += good
        raise Failed({place: ConnectionError(f"not {message.id}") for place, message in failed.items()})

    def _fails(self, message: Message) -> bool:
        return message.id in self.failing and not (self.recovers and message.attempt > 1)
