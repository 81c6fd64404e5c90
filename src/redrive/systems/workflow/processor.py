"""The retry processor: takes what is due, as much as there is room for, and runs the callback on it.

Any number of processors may work on one store: a task has one owner at a time, whose lease is longer than a retry may
take, and a dead owner's tasks are rescued. A callback that hangs keeps one place, for as long as a retry may take, and
nobody waits for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from redrive.clock import Clock
from redrive.errors import StoreUnavailable
from redrive.flow.breaker import Breaker, BreakerRule
from redrive.flow.classify import RETRYABLE
from redrive.forensics.query import Query
from redrive.model import Letter, LetterId, Owner, State
from redrive.stores.base import Store
from redrive.systems.workflow.attempts import Attempted, Callback, Outcomes, attempt
from redrive.systems.workflow.replayed import Inbox
from redrive.systems.workflow.task import SOURCE
from redrive.telemetry.events import BreakerMoved, Events, LettersMoved, LettersRetried

log = logging.getLogger("redrive")
_MARGIN = timedelta(minutes=1)
_BATCH = 500
_MOST_ASIDE = 500


class Cycle(Struct):
    """What one cycle did."""

    started: int = 0
    succeeded: int = 0
    failed: int = 0


class Processor:
    """Retries of one queue in this process, by whomever they were asked for."""

    def __init__(
        self,
        store: Store,
        outcomes: Outcomes,
        events: Events,
        clock: Clock,
        now: Callable[[], datetime],
        *,
        owner: Owner,
        parallel: int,
        timeout: timedelta,
        breaker: BreakerRule,
        done: Callable[[Attempted, Letter | None], None],
        before: Callable[[], Awaitable[None]],
    ) -> None:
        self._store = store
        self._outcomes = outcomes
        self._events = events
        self._clock = clock
        self._now = now
        self._owner = owner
        self._parallel = parallel
        self._timeout = timeout
        self._rule = breaker
        self._done = done  # told of every retry that was written down, and of the letter as a failure left it
        self._before = before  # every cycle
        self._inbox = Inbox(store, clock, now, owner=owner, lease=self.lease)
        self._breakers: dict[str, Breaker] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._aside: list[Letter] = []  # claimed in this cycle, but their target's breaker is open
        self._unwritten: list[Attempted] = []
        self._held: set[LetterId] = set()  # claimed, and not done with
        self._claiming = asyncio.Lock()
        self._wake = asyncio.Event()
        self._stopping = False
        self._backlog = False
        self._loop: asyncio.Task[None] | None = None
        self.callback: Callback | None = None
        self.counts = Cycle()

    @property
    def lease(self) -> timedelta:
        return self._timeout + _MARGIN

    @property
    def is_running(self) -> bool:
        return self._loop is not None and not self._loop.done()

    # -- the loop --------------------------------------------------------------------------------------------------

    def start(self, interval: timedelta) -> None:
        self._stopping = False
        self._wake.clear()
        self._loop = asyncio.get_running_loop().create_task(self._run(interval), name="redrive-workflow-retries")

    async def stop(self, grace: timedelta) -> None:
        """Take nothing new, let what runs finish within the grace; the rest is given back as if never taken."""
        self._stopping = True
        self._wake.set()
        if self._loop is not None:
            await asyncio.wait([self._loop])
        if self._running:
            await asyncio.wait(self._running, timeout=grace.total_seconds())
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)
        await self._quietly(self._end)

    async def _end(self) -> None:
        await self._put_back()
        await self._write_rest()
        if self._unwritten:
            log.warning("%d outcomes could not be written: their tasks are retried again", len(self._unwritten))

    async def _run(self, interval: timedelta) -> None:
        while not self._stopping:
            self._wake.clear()
            await self._quietly(self._tick)
            ends = self._clock.elapsed() + interval.total_seconds()
            while not self._stopping and await self._clock.wait(self._wake, ends - self._clock.elapsed()):
                self._wake.clear()
                if not self._stopping:
                    await self._quietly(self._fill)

    async def _quietly(self, work: Callable[[], object]) -> None:
        """A store that is away is looked for again at the next cycle; what failed otherwise is logged, and goes on."""
        try:
            answer = work()
            if asyncio.iscoroutine(answer):
                await answer
        except StoreUnavailable as error:
            log.warning("retries wait: %s", error)
        except Exception:
            log.exception("a cycle of the retry processor failed, and is tried again")

    async def cycle(self) -> Cycle:
        """Everything that is due now, to its end; what it did."""
        before = Cycle(self.counts.started, self.counts.succeeded, self.counts.failed)
        self._stopping = self._stopping and self.is_running
        await self._tick()
        while self._running:
            await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
            if self._backlog:
                await self._fill()
        counts = self.counts
        return Cycle(
            counts.started - before.started, counts.succeeded - before.succeeded, counts.failed - before.failed
        )

    async def _tick(self) -> None:
        async with self._claiming:
            await self._write_rest()
            await self._before()
            await self.rescue()
            await self._claim_all()

    async def _fill(self) -> None:
        async with self._claiming:
            await self._claim_all()

    async def _claim_all(self) -> None:
        """Until there is no room, or nothing that is due."""
        self._backlog = False
        for letter in await self._inbox.take(self._room):
            self._begin(letter)
        while (room := self._room) > 0 and not self._stopping and len(self._aside) < _MOST_ASIDE:
            letters = await self._claim(room)
            self._take(letters)
            if len(letters) < room:
                break
        else:
            self._backlog = self._room <= 0 and not self._stopping
        if not self._backlog:
            await self._put_back()

    @property
    def _room(self) -> int:
        return self._parallel - len(self._running)

    async def _claim(self, limit: int) -> Sequence[Letter]:
        now = self._now()
        query = Query(sources=(SOURCE,), states=(State.PENDING,), due=now)
        return await self._store.letters.claim(
            query, to=State.RETRYING, owner=self._owner, now=now, until=now + self.lease, limit=limit
        )

    def _take(self, letters: Sequence[Letter]) -> None:
        started = 0
        self._held.update(letter.id for letter in letters)
        for letter in letters:
            breaker = self._breaker(letter)
            if breaker.room(1):
                breaker.sent(1)
                self._begin(letter)
                started += 1
            else:
                self._aside.append(letter)
        if started:
            self._events.emit(LettersRetried(source=SOURCE, count=started))

    # -- one task --------------------------------------------------------------------------------------------------

    def _begin(self, letter: Letter) -> None:
        self.counts.started += 1
        self._held.add(letter.id)
        task = asyncio.get_running_loop().create_task(self._retry(letter))
        self._running.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a retry could not be carried out: its task is retried again", exc_info=error)
        if self._backlog:
            self._wake.set()

    async def _retry(self, letter: Letter) -> None:
        assert self.callback is not None
        try:
            attempted = await attempt(self.callback, letter, self._timeout)
        except asyncio.CancelledError:
            self._breaker(letter).forgotten()
            await self._quietly(lambda: self._give_back(letter))
            raise
        self._learn(attempted)
        await self.settle(attempted)

    async def settle(self, attempted: Attempted) -> None:
        """Write it down; while the store is away, it is kept and written by a later cycle."""
        try:
            await self._write(attempted)
        except StoreUnavailable:
            self._unwritten.append(attempted)
        except Exception:
            self._held.discard(attempted.letter.id)  # its lease is left to end, or the next cycle rescues it
            raise

    async def _write(self, attempted: Attempted) -> None:
        letter, failed = attempted.letter, None
        if attempted.error is None:
            await self._outcomes.resolve(letter)
        elif attempted.confirmed or self._inbox.has(letter) or await self._outcomes.confirm(letter):
            attempted = replace(attempted, confirmed=True)
            try:
                failed = await self._outcomes.fail(attempted)
            except StoreUnavailable:
                self._unwritten.append(attempted)
                return
        self._held.discard(letter.id)
        await self._inbox.forget(letter)
        self.counts.succeeded += attempted.error is None
        self.counts.failed += attempted.error is not None
        self._done(attempted, failed)

    async def _write_rest(self) -> None:
        """What could not be written when it happened."""
        left, self._unwritten = self._unwritten, []
        while left:
            try:
                await self._write(left[0])
            except StoreUnavailable:
                self._unwritten += left
                raise
            left.pop(0)

    async def _give_back(self, letter: Letter) -> None:
        if self._inbox.has(letter):
            await self._inbox.give_back(letter)
            self._held.discard(letter.id)
        else:
            await self._release([letter])

    async def _put_back(self) -> None:
        """What was set aside is looked at again in the next cycle."""
        aside, self._aside = self._aside, []
        await self._release(aside)

    async def _release(self, letters: Sequence[Letter]) -> None:
        """As if they had not been claimed."""
        for start in range(0, len(letters), _BATCH):
            ids = [letter.id for letter in letters[start : start + _BATCH]]
            await self._store.letters.move(
                ids, expect=[State.RETRYING], to=State.PENDING, owner=self._owner, now=self._now()
            )
            self._held.difference_update(ids)

    # -- the target ------------------------------------------------------------------------------------------------

    def _breaker(self, letter: Letter) -> Breaker:
        name = letter.message.origin
        if name not in self._breakers:
            self._breakers[name] = Breaker(self._rule, self._clock.elapsed)
        return self._breakers[name]

    def _learn(self, attempted: Attempted) -> None:
        """What is wrong with one task says nothing of its adapter; what may pass by itself does."""
        breaker = self._breaker(attempted.letter)
        before = breaker.position
        if attempted.error is None:
            breaker.succeeded()
        elif self._outcomes.failed(attempted).category in RETRYABLE:
            breaker.failed()
        else:
            breaker.forgotten()
        if breaker.position is not before:
            target = f"{SOURCE}/{attempted.letter.message.origin or 'default'}"
            self._events.emit(BreakerMoved(target=target, state=breaker.position))

    @property
    def breakers(self) -> dict[str, str]:
        """The position of each target's breaker."""
        return {name or "default": breaker.position.value for name, breaker in self._breakers.items()}

    # -- what dead processors left -----------------------------------------------------------------------------------

    async def rescue_safely(self) -> int:
        """The same, from outside a cycle: a claim that is just being made is not one that got lost."""
        async with self._claiming:
            return await self.rescue()

    async def rescue(self) -> int:
        """Tasks whose owner's lease ended wait again; so do those whose owner died between its last two writes."""
        now, rescued = self._now(), Counter[State]()
        after = None
        while True:
            query = Query(sources=(SOURCE,), states=(State.RETRYING, State.REPLAYING))
            page = await self._store.letters.search(query, after=after, limit=_BATCH)
            for letter in page.letters:
                if (to := self._rescued_to(letter, now)) is not None:
                    moved = await self._store.letters.move(
                        [letter.id], expect=[letter.state], to=to, owner=letter.owner, now=now
                    )
                    rescued[to] += len(moved)
            after = page.after
            if after is None:
                break
        for state, count in rescued.items():
            if count:
                self._events.emit(LettersMoved(to=state, count=count, actor="rescue"))
        return rescued.total()

    def _rescued_to(self, letter: Letter, now: datetime) -> State | None:
        """None: it is in good hands. What a replay has sent is the replay's; a claim of ours that we do not know of
        is one whose answer got lost."""
        if letter.id in self._held or (letter.state is State.REPLAYING and letter.replay is not None):
            return None
        ends = letter.lease_until if letter.owner is not None else letter.updated_at + self.lease
        if letter.owner != self._owner and (ends is None or ends >= now):
            return None
        was_exhausted = letter.state is State.REPLAYING and letter.next_retry_at is None and letter.resends > 1
        return State.EXHAUSTED if was_exhausted else State.PENDING
