"""Brings dead messages from a broker into a store: a message is acknowledged when its letter is durable, not before."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import TypeAlias, TypeVar

from redrive.clock import Clock, Pause
from redrive.collect.foreign import unread
from redrive.collect.joining import join
from redrive.errors import Unavailable
from redrive.flow.signing import load_keys
from redrive.model import Done, Letter
from redrive.stores.base import Store
from redrive.stores.recording import record_each
from redrive.telemetry.events import BackendDown, BackendUp, Events, LetterRefused
from redrive.transports.base import Delivery, Settlement, Transport

Reader: TypeAlias = Callable[[Delivery, datetime], Letter | None]
"""The letter of a dead message; what it does not understand is a letter all the same. None: it stands for a letter that
is in a store already. If it raises, the collector keeps the message as a letter of category validation."""
Stored: TypeAlias = Callable[[Sequence[Letter]], Awaitable[None]]
T = TypeVar("T")
log = logging.getLogger("redrive")
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.1, 10.0
_LOOK = 0.3  # seconds between looks at whether anything is left
_LOOKS = 2  # in a row that see nothing: what a broker has just sent is in nobody's count for a moment


class Collector:
    """Brings the dead messages of one source into a store. Any number may run on one source."""

    def __init__(
        self,
        transport: Transport,
        source: str,
        read: Reader,
        store: Store,
        *,
        events: Events,
        clock: Clock,
        lease: timedelta,
        batch: int = 500,
        stored: Stored | None = None,
    ) -> None:
        self.collected = 0
        self._transport = transport
        self._source = source
        self._read = read
        self._store = store
        self._events = events
        self._clock = clock
        self._lease = lease
        self._batch = batch
        self._stored = stored
        self._stopping = asyncio.Event()
        self._refused: list[Delivery] = []  # what the store will not have: it stays where it lies

    def stop(self) -> None:
        """Stop after the batch that is under way."""
        self._stopping.set()

    async def run(self, *, follow: bool = True) -> int:
        """Run until it is stopped or, if it does not follow, until nothing is left; returns the number of letters.

        One that follows waits for a broker that is away; one that does not says so and ends.
        """
        pause = Pause(_SHORTEST_PAUSE, _LONGEST_PAUSE)
        while not self._stopping.is_set():
            try:
                deliveries = await self._receive(follow)
                if deliveries is None:
                    break
                await self._keep(deliveries)
            except Unavailable as error:
                if not follow:
                    raise
                self._announce_down(error, pause)
                await self._clock.wait(self._stopping, pause.next())
            else:
                pause.reset()
        return self.collected

    async def _receive(self, follow: bool) -> Sequence[Delivery] | None:
        """The next deliveries; None if it is to end."""
        receiving = asyncio.ensure_future(self._transport.receive(self._source, self._batch))
        stopping = asyncio.ensure_future(self._stopping.wait())
        empty = 0
        try:
            while empty < _LOOKS:
                await asyncio.wait([receiving, stopping], timeout=_LOOK, return_when=asyncio.FIRST_COMPLETED)
                if receiving.done():
                    return receiving.result()
                if self._stopping.is_set():
                    return None
                empty = empty + 1 if not follow and await self._is_empty() else 0
            return None
        finally:
            stopping.cancel()
            receiving.cancel()
            await asyncio.gather(receiving, stopping, return_exceptions=True)

    async def _is_empty(self) -> bool:
        """Whether nothing is left but what the store refuses. A source that its transport does not know yet is not."""
        self._refused = await self._still_ours(self._refused)
        depth = (await self._transport.depths()).get(self._source)
        return depth is not None and depth.total <= len(self._refused)

    async def _keep(self, deliveries: Sequence[Delivery]) -> None:
        """Record the letters of these deliveries, however long that takes, and acknowledge them then."""
        if not await self._insist(self._know_keys, deliveries):
            return
        now = self._clock.now()
        read = [(delivery, self._letter(delivery, now)) for delivery in deliveries]
        found = [letter for _, letter in read if letter is not None]
        recorded = await self._insist(lambda: self._record(found), deliveries)
        if recorded is None:
            return
        letters, refused = recorded
        read = [(delivery, None if letter is None else letters.pop(0)) for delivery, letter in read]
        await self._leave(
            [(delivery, refused[letter.id]) for delivery, letter in read if letter is not None and letter.id in refused]
        )
        kept = [letter for _, letter in read if letter is not None and letter.id not in refused]
        await self._tell(kept)
        done = [delivery for delivery, letter in read if letter is None or letter.id not in refused]
        await self._transport.settle([Settlement(delivery, Done()) for delivery in done])
        self.collected += len(kept)

    def _letter(self, delivery: Delivery, now: datetime) -> Letter | None:
        """The letter of a dead message; of one that its reader cannot cope with, one that says so."""
        try:
            return self._read(delivery, now)
        except Exception as error:
            log.error("what lies in %s cannot be read, and is kept as it is", self._source, exc_info=error)
            return unread(delivery.message, error, now)

    async def _tell(self, kept: Sequence[Letter]) -> None:
        """Tell whoever wants to know. They are durable: what a message does to a listener holds up no other."""
        if self._stored is None:
            return
        try:
            await self._stored(kept)
        except Unavailable:
            raise
        except Exception:
            log.exception("letters from %s are stored, and whoever was to be told of them failed", self._source)

    async def _leave(self, refusals: Sequence[tuple[Delivery, str]]) -> None:
        """Leave what the store refuses unacknowledged: it comes again when its lease ends, to us or to another."""
        if not refusals:
            return
        self._refused = [*await self._still_ours(self._refused), *(delivery for delivery, _ in refusals)]
        for delivery, why in refusals:
            self._events.emit(LetterRefused(source=self._source, message=delivery.message.id, why=why))

    async def _still_ours(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        lost = {id(delivery) for delivery in await self._transport.extend(deliveries)} if deliveries else set()
        return [delivery for delivery in deliveries if id(delivery) not in lost]

    async def _know_keys(self) -> bool:
        """Read the keys of this store: without them a reader believes that we wrote whatever says so."""
        await load_keys(self._store, self._clock.now())
        return True

    async def _record(self, found: Sequence[Letter]) -> tuple[list[Letter], dict[str, str]]:
        """Record them; returns them as they were recorded, and those that the store will not have, and why."""
        joined = await join(self._store.letters, found, self._clock.now())
        if joined.entries:
            await self._store.ledger.mark(joined.entries)
        refused = await record_each(self._store.letters, joined.in_order)
        return joined.letters, {id: f"{type(error).__name__}: {error}" for id, error in refused.items()}

    async def _insist(self, act: Callable[[], Awaitable[T]], deliveries: Sequence[Delivery]) -> T | None:
        """What that returns, however long the store is away. None if we were stopped before that: the deliveries come
        back, for none of them was acknowledged."""
        pause = Pause(_SHORTEST_PAUSE, min(_LONGEST_PAUSE, self._lease.total_seconds() / 3))
        down = None
        while True:
            try:
                done = await act()
            except Unavailable as error:
                down = error.name
                self._announce_down(error, pause)
            else:
                if down is not None:
                    self._events.emit(BackendUp(backend=down))
                return done
            if await self._clock.wait(self._stopping, pause.next()):
                return None
            await self._hold(deliveries)

    def _announce_down(self, error: Unavailable, pause: Pause) -> None:
        self._events.emit(BackendDown(backend=error.name, why=str(error), pause=timedelta(seconds=pause.seconds)))

    async def _hold(self, deliveries: Sequence[Delivery]) -> None:
        try:
            await self._transport.extend(deliveries)
        except Unavailable as error:
            self._events.emit(BackendDown(backend=error.name, why=str(error), pause=timedelta()))
