"""Take deliveries in batches, attempt them with bounded concurrency, settle in batches, stop cleanly.

    fetch ──▶ buffer ──▶ N attempts at once ──▶ outcomes ──▶ settle
      ▲                                                        │
      └───────────── room, as what is held gets settled ◀──────┘

One task fetches, a fixed pool of tasks attempts, one task settles: a task or a round trip for each message is
what makes consumers slow. While one settlement is under way the next batch of outcomes gathers by itself.

Where the transport keeps order, each delivery has a lane. Those of one lane are attempted one after the other; and
when one of them is not simply done, what is behind it waits until it is settled, and is given back if it is to wait on.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from datetime import timedelta
from time import perf_counter
from typing import cast

from redrive.errors import Unavailable
from redrive.flow.attempt import attempt, undelivered
from redrive.flow.context import Context
from redrive.flow.deadline import Deadline, Deadlines
from redrive.flow.decide import admit, decide
from redrive.flow.settle import Attempted, Settled, settle
from redrive.model import Bury, Category, Done, Failure, Holds, Message, Outcome, Reason, Release, Retry
from redrive.telemetry.events import BackendDown, BackendUp, LeaseLost
from redrive.transports.base import Delivery, KeepsOrder

_DONE = Done()
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.1, 10.0


class Consumer:
    """Receives from one source until it is told to stop."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.released = 0
        self._deadlines = Deadlines(context.handler.timeout)
        self._most = max(2 * context.batch, 2 * context.handler.concurrency)
        self._held: dict[int, Delivery] = {}  # leased and not settled yet
        self._buffer: deque[Delivery] = deque()
        self._lanes: dict[Hashable, deque[Delivery] | None] = {}  # those busy, and what is behind in each
        self._undecided: list[Attempted] = []  # of the outcomes, those whose settlement decides how their lane goes on
        self._is_ours = context.transport.is_ours if isinstance(context.transport, KeepsOrder) else None
        self._most_attempts = context.policy.most_attempts
        self._steps_aside = context.policy.holds is Holds.NOTHING
        self._outcomes: list[Attempted] = []
        self._arrived = asyncio.Event()
        self._decided = asyncio.Event()
        self._room = asyncio.Event()
        self._stopping = asyncio.Event()
        self._ending = asyncio.Event()  # what is settled now is settled for the last time
        self._down: str | None = None  # the backend that does not answer
        self._careful = False  # take one at a time: what came last may take its worker down
        self._store_pause = 0.0  # how long letters are held back, and nothing new is taken

    async def run(self, grace: timedelta) -> None:
        """Until `stop`: then nothing new is taken, what runs may finish within the grace, the rest is given back."""
        helpers = [asyncio.create_task(self._fetch()), asyncio.create_task(self._renew())]
        pool = [asyncio.create_task(self._work()) for _ in range(self.context.handler.concurrency)]
        settler = asyncio.create_task(self._settle())
        try:
            await _until(self._stopping, [*helpers, *pool, settler])
        finally:
            self.stop()  # whatever ended it: a cancellation and a bug of ours end the idle ones too
            await _cancel([helpers[0]])
            self._give_back_all()
            await _finish(pool, grace)
            await self._settled(settler)
            await _cancel([helpers[1], settler])

    def stop(self) -> None:
        """Take nothing new."""
        self._stopping.set()
        self._arrived.set()

    async def _fetch(self) -> None:
        pause = _SHORTEST_PAUSE
        while True:
            while (room := self._most - len(self._held)) < max(1, self._most // 4):
                self._room.clear()
                await self._room.wait()
            if self._store_pause:
                await self.context.clock.sleep(self._store_pause)
            try:
                limit = 1 if self._careful else min(room, self.context.batch)
                deliveries = await self.context.transport.receive(self.context.source, limit)
            except Unavailable as error:
                self._is_down(error, pause)
                await self.context.clock.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
                continue
            self._is_up()
            pause = _SHORTEST_PAUSE
            self._held.update(zip(map(id, deliveries), deliveries, strict=True))
            suspect = next((one for one in deliveries if one.redelivered and self._is_suspect(one)), None)
            self._careful = suspect is not None
            if suspect is not None:
                await self._alone(suspect, deliveries)
                continue
            self._buffer.extend(deliveries)
            self._arrived.set()

    def _is_suspect(self, delivery: Delivery) -> bool:
        return delivery.message.attempt == self._most_attempts and not delivery.blameless

    async def _alone(self, suspect: Delivery, deliveries: Sequence[Delivery]) -> None:
        """Whoever held it did not settle it, and this is its last attempt: with nothing else in our hands, so that
        a message that takes its worker down takes no innocent one along."""
        if self._has_earlier(suspect, deliveries):
            self._give_back(deliveries)
            return await self._until_held(0)
        self._give_back(one for one in deliveries if one is not suspect)
        try:
            await self._until_held(1)
        except asyncio.CancelledError:
            self._give_back([suspect])
            raise
        self._buffer.append(suspect)
        self._arrived.set()
        return await self._until_held(0)

    def _has_earlier(self, suspect: Delivery, deliveries: Sequence[Delivery]) -> bool:
        """Whether something of its lane has to come before it."""
        if suspect.lane is None:
            return False
        earlier = itertools.takewhile(lambda one: one is not suspect, deliveries)
        return suspect.lane in self._lanes or any(one.lane == suspect.lane for one in earlier)

    async def _until_held(self, number: int) -> None:
        while len(self._held) > number:
            self._room.clear()
            await self._room.wait()

    async def _work(self) -> None:
        deadline = Deadline(self._deadlines)
        while not self._stopping.is_set():
            delivery = self._next()
            if delivery is None:
                self._arrived.clear()
                await self._arrived.wait()
                continue
            try:
                while delivery is not None:
                    attempted = self._refused(delivery)
                    if attempted is None:
                        began = perf_counter()
                        failure = await attempt(self.context, delivery.message, deadline)
                        attempted = self._judged(delivery, failure, perf_counter() - began)
                    self._outcomes.append(attempted)  # looked up after the wait: the list is swapped meanwhile
                    delivery = None if delivery.lane is None else self._behind(attempted)
            except asyncio.CancelledError:  # the grace is over: it was not the message's fault
                self._outcomes.append(Attempted(cast(Delivery, delivery), Release()))
                raise
            except BaseException:  # a bug of ours: left to its lease, so that this attempt counts
                self._forget(cast(Delivery, delivery))
                raise
            finally:
                self._decided.set()

    def _next(self) -> Delivery | None:
        """The first whose lane is free; it takes the lane."""
        buffer, lanes = self._buffer, self._lanes
        while buffer:
            delivery = buffer.popleft()
            if self._is_ours is None:
                return delivery
            if not self._is_ours(delivery):
                self._forget(delivery)
                continue
            lane = delivery.lane
            if lane is None:
                return delivery
            if lane not in lanes:
                lanes[lane] = None
                return delivery
            behind = lanes[lane]
            if behind is None:
                behind = lanes[lane] = deque()
            behind.append(delivery)
        return None

    def _behind(self, attempted: Attempted) -> Delivery | None:
        """The next of its lane, if it may go on at once; otherwise its settlement decides (`_leave_lanes`)."""
        delivery = attempted.delivery
        lane = delivery.lane
        if attempted.outcome is not _DONE or delivery.redelivered or delivery.message.was_sent_back:
            self._undecided.append(attempted)  # it waits, or a store has to take it first
            return None
        behind = self._lanes[lane]
        while behind:
            if self._stopping.is_set():
                return None  # they are given back
            following = behind.popleft()
            if self._is_ours is None or self._is_ours(following):
                return following
            self._forget(following)
        del self._lanes[lane]
        return None

    def _held_up_by(self, undecided: Sequence[Attempted]) -> list[Attempted]:
        """What has to wait at the transport behind those: given back with them, in one step."""
        held_up = []
        for attempted in undecided:
            behind = self._lanes[attempted.delivery.lane]
            if behind and not self._goes_on(attempted.outcome):
                held_up += [Attempted(one, Release()) for one in behind]
                behind.clear()
        return held_up

    def _leave_lanes(self, undecided: Sequence[Attempted], kept_back: Sequence[Delivery]) -> None:
        """They are settled: what is behind each goes on, or waits with it at the transport."""
        waiting = {one.lane for one in kept_back if one.lane is not None}
        for attempted in undecided:
            lane = attempted.delivery.lane
            behind = self._lanes.pop(lane) or ()
            if lane not in waiting and self._goes_on(attempted.outcome):
                self._buffer.extendleft(reversed(behind))
            else:
                waiting.add(lane)
                self._give_back(behind)
        self._give_back_of(waiting)
        self._arrived.set()

    def _goes_on(self, outcome: Outcome) -> bool:
        return isinstance(outcome, Done | Bury) or (isinstance(outcome, Retry) and self._steps_aside)

    def _give_back_of(self, lanes: set[Hashable]) -> None:
        """What has just arrived for these lanes, and nobody has looked at yet."""
        if not lanes.isdisjoint([delivery.lane for delivery in self._buffer]):
            waiting = list(self._buffer)
            self._buffer.clear()
            self._buffer.extend(one for one in waiting if one.lane not in lanes)
            self._give_back(one for one in waiting if one.lane in lanes)

    def _refused(self, delivery: Delivery) -> Attempted | None:
        """Dead before it was attempted."""
        context, message = self.context, delivery.message
        if (
            message.attempt <= self._most_attempts
            and not message.expires_at
            and len(message.body) <= context.body_limit
        ):
            return None  # as almost all are
        reason = admit(message, context.policy, context.body_limit, context.clock.now())
        if reason is None:
            return None
        return Attempted(delivery, Bury(reason), undelivered(context, message, *_why(reason, message, context)))

    def _judged(self, delivery: Delivery, failure: Failure | None, seconds: float) -> Attempted:
        if failure is None:
            return Attempted(delivery, _DONE, None, seconds)
        context = self.context
        outcome = decide(
            delivery.message, failure, context.policy_for(delivery), context.clock.now(), context.clock.rng
        )
        return Attempted(delivery, outcome, failure, seconds)

    async def _settle(self) -> None:
        while True:
            await self._decided.wait()
            self._decided.clear()
            batch, self._outcomes = self._outcomes, []
            undecided, self._undecided = self._undecided, []
            if batch:
                batch += self._held_up_by(undecided)
                settled = await self._carry_out(batch)
                for item in batch:
                    self._held.pop(id(item.delivery), None)
                if undecided:
                    self._leave_lanes(undecided, settled.kept_back)
                self._room.set()

    async def _carry_out(self, batch: Sequence[Attempted]) -> Settled:
        """Until it is done: a broker that is away keeps us from taking more, not from keeping our word."""
        pause = _SHORTEST_PAUSE
        while True:
            wait = max(self._store_pause, 1.0)
            try:
                settled = await settle(self.context, batch, timedelta(seconds=wait))
            except Unavailable as error:
                self._is_down(error, pause)
                if self._ending.is_set():
                    return Settled(kept_back=[item.delivery for item in batch])  # they come back when their leases end
                await self.context.clock.wait(self._ending, pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            else:
                self._is_up()
                self._store_pause = 0.0 if settled.written else min(2 * wait, _LONGEST_PAUSE)
                self.released += sum(isinstance(item.outcome, Release) for item in batch)
                return settled

    async def _renew(self) -> None:
        """Keep the leases of what we hold for as long as we hold it."""
        while True:
            await self.context.clock.sleep(self.context.lease.total_seconds() / 3)
            if not self._held:
                continue
            try:
                lost = await self.context.transport.extend(list(self._held.values()))
            except Unavailable as error:
                self._is_down(error, self.context.lease.total_seconds() / 3)
                continue
            self._is_up()
            self._let_go(lost)

    def _let_go(self, lost: Sequence[Delivery]) -> None:
        """Somebody else has them now. Their handlers run on; what comes of it is not settled by us."""
        if lost:
            names = tuple(one.message.id for one in lost)
            self.context.events.emit(LeaseLost(source=self.context.source, messages=names))
            for one in lost:
                self._forget(one)

    def _forget(self, delivery: Delivery) -> None:
        """It is not ours to settle any more; whoever waits for room is told."""
        self._held.pop(id(delivery), None)
        self._room.set()

    async def _settled(self, settler: asyncio.Task[None]) -> None:
        """Wait until everything decided is carried out, or was tried once more of a broker that is away."""
        self._ending.set()
        while (self._outcomes or self._held) and not settler.done():
            self._room.clear()
            self._decided.set()
            await _until(self._room, [settler])

    def _give_back_all(self) -> None:
        """What was not begun."""
        for waiting in filter(None, (self._buffer, *self._lanes.values())):
            self._give_back(waiting)
            waiting.clear()

    def _give_back(self, deliveries: Iterable[Delivery]) -> None:
        self._outcomes.extend(Attempted(delivery, Release()) for delivery in deliveries)
        self._decided.set()

    def _is_down(self, error: Unavailable, pause: float) -> None:
        self._down = error.name
        self.context.events.emit(BackendDown(backend=error.name, why=str(error), pause=timedelta(seconds=pause)))

    def _is_up(self) -> None:
        if self._down is not None:
            self.context.events.emit(BackendUp(backend=self._down))
            self._down = None


def _why(reason: Reason, message: Message, context: Context) -> tuple[str, str, Category]:
    """Type, message and category of a failure that came before any attempt."""
    match reason:
        case Reason.CRASHED:
            tried = message.attempt - 1
            return (
                "redrive.Crashed",
                f"delivered {tried} times and settled by nobody: it takes its worker down, or outlives its lease",
                Category.PERMANENT,
            )
        case Reason.EXPIRED:
            return "redrive.Expired", f"its time to live ended at {message.expires_at}", Category.PERMANENT
        case _:
            size = f"{len(message.body):,} bytes, over the limit of {context.body_limit:,} (`body_limit`)"
            return "redrive.TooLarge", size, Category.VALIDATION


async def _until(event: asyncio.Event, tasks: Sequence[asyncio.Task[None]]) -> None:
    """Until the event; an error in one of the tasks is a bug of ours and is not hidden."""
    waiter = asyncio.create_task(event.wait())
    try:
        await asyncio.wait([waiter, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done() and not event.is_set():
                task.result()
    finally:
        waiter.cancel()


async def _finish(pool: Sequence[asyncio.Task[None]], grace: timedelta) -> None:
    _, late = await asyncio.wait(pool, timeout=grace.total_seconds())
    await _cancel(list(late))


async def _cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
