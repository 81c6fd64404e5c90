"""A queue in this process's memory: for tests, and for work that may die with its process."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from itertools import count, islice

from msgspec.structs import replace

from redrive.clock import Clock
from redrive.model import Failure, Message, MessageId, Release, Retry
from redrive.transports.base import (
    ACCEPTED,
    Delivery,
    Depth,
    Features,
    Listing,
    Paused,
    Queued,
    QueueState,
    SendResult,
    Settlement,
    number_after,
)

_LONGEST_WAIT = 3600.0
_LOOK = 1.0  # seconds after which a pause may be over by itself


class Parcel:
    """A message in the queue. `turn` tells a live place in a heap from one it has left behind."""

    __slots__ = ("attempt", "failures", "lapsed", "lease", "message", "number", "turn")

    def __init__(self, message: Message, number: int = 0) -> None:
        self.number = number  # in the order in which they were sent
        self.message = _due(message)
        self.attempt = message.attempt - 1
        self.failures: tuple[Failure, ...] = ()
        self.lease = 0  # 0: nobody holds it
        self.lapsed = False  # whether a lease on it ever ended unsettled
        self.turn = 0


class Queue:
    """One source: what is ready, by urgency; what waits, by time; what is leased, in the order the leases end."""

    def __init__(self) -> None:
        self.parcels: dict[str, Parcel] = {}
        self.ready: list[tuple[int, int, Parcel]] = []
        self.waiting: list[tuple[float, int, Parcel]] = []
        self.leased: dict[str, float] = {}  # one length of lease, so insertion order is the order of their ends
        self.event = asyncio.Event()


class MemoryTransport:
    """A queue with the promises of the others, but for durability and other processes."""

    def __init__(self, *, clock: Clock, lease: timedelta, native_delay: bool = True) -> None:
        self.features = Features(
            durable=False,
            native_delay=native_delay,
            counts_attempts=True,
            keeps_history=True,
            ordered_by="source",
            idempotent_send=True,
            shared=False,
            delays_sends=native_delay,
        )
        self._clock = clock
        self._lease = lease.total_seconds()
        self._turns = count(1)
        self._queues: dict[str, Queue] = {}
        self._pauses: dict[str, Paused] = {}

    async def receive(self, source: str, limit: int) -> Sequence[Delivery]:
        queue = self._queue(source)
        while True:
            self._ripen(queue)
            paused = self._pause_of(source)
            if paused is None and (taken := self._take(queue, limit)):
                return taken
            queue.event.clear()
            await self._clock.wait(queue.event, self._next(queue) - self._clock.elapsed() if paused is None else _LOOK)

    async def extend(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        return [delivery for delivery in deliveries if not self._extended(delivery)]

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Delivery]:
        return [settlement.delivery for settlement in settlements if not self._settled(settlement)]

    async def send(self, messages: Sequence[Message]) -> Sequence[SendResult]:
        for message in messages:
            queue = self._queue(message.source)
            known = queue.parcels.get(message.id)
            if known is None:
                parcel = queue.parcels[message.id] = Parcel(message, next(self._turns))
                self._hold_back(queue, parcel, self._delay(message))
            elif message.was_sent_back:
                known.message, known.attempt, known.failures = _due(message), message.attempt - 1, ()
                known.lapsed, known.lease = known.lapsed or known.lease != 0, 0  # a late ack was meant for the copy
        return [ACCEPTED] * len(messages)

    async def find(
        self,
        source: str,
        *,
        ids: Collection[MessageId] | None = None,
        containing: bytes | None = None,
        since: datetime | None = None,
        limit: int = 1000,
    ) -> Sequence[Message]:
        held = self._queues[source].parcels.values() if source in self._queues else ()
        found = (
            parcel.message
            for parcel in held
            if (ids is None or parcel.message.id in ids)
            and (containing is None or containing in parcel.message.body)
            and (since is None or parcel.message.enqueued_at >= since)
        )
        return list(islice(found, limit))

    @property
    def holder(self) -> str:
        return ""  # this process, and no other

    async def listing(
        self, source: str, *, state: QueueState | None = None, after: str | None = None, limit: int = 100
    ) -> Listing:
        queue, start = self._queues.get(source, Queue()), number_after(after)
        self._ripen(queue)
        due = {id(parcel): at for at, turn, parcel in queue.waiting if turn == parcel.turn}
        found = [
            (parcel.number, self._stand(queue, parcel, due.get(id(parcel))))
            for parcel in queue.parcels.values()
            if parcel.number > start
        ]
        wanted = [(number, queued) for number, queued in found if state is None or queued.state is state]
        more = str(wanted[limit - 1][0]) if len(wanted) > limit else None
        return Listing(tuple(queued for _, queued in wanted[:limit]), more)

    def _stand(self, queue: Queue, parcel: Parcel, due: float | None) -> Queued:
        ends = queue.leased.get(parcel.message.id)
        state = QueueState.LEASED if ends else QueueState.READY if due is None else QueueState.DELAYED
        at = ends or due
        until = None if at is None else self._clock.now() + timedelta(seconds=at - self._clock.elapsed())
        message = replace(parcel.message, attempt=parcel.attempt if ends else parcel.attempt + 1)
        return Queued(message, state, parcel.failures, until, "this process" if ends else "")

    async def pause(self, paused: Paused) -> Paused:
        return self._pauses.setdefault(paused.source, self._pause_of(paused.source) or paused)

    async def resume(self, source: str) -> Paused | None:
        ended = self._pause_of(source)
        self._pauses.pop(source, None)
        self._queue(source).event.set()
        return ended

    async def pauses(self) -> Sequence[Paused]:
        return [paused for source in list(self._pauses) if (paused := self._pause_of(source)) is not None]

    def _pause_of(self, source: str) -> Paused | None:
        """The pause of that source, unless it is over."""
        paused = self._pauses.get(source)
        if paused is not None and paused.is_over(self._clock.now()):
            del self._pauses[source]
            return None
        return paused

    async def depths(self) -> dict[str, Depth]:
        return {source: self._depth(queue) for source, queue in self._queues.items() if queue.parcels}

    async def check(self) -> None:
        return None

    async def aclose(self) -> None:
        return None

    def _queue(self, source: str) -> Queue:
        if source not in self._queues:
            self._queues[source] = Queue()
        return self._queues[source]

    def _take(self, queue: Queue, limit: int) -> list[Delivery]:
        taken: list[Delivery] = []
        while queue.ready and len(taken) < limit:
            _, turn, parcel = heapq.heappop(queue.ready)
            if turn != parcel.turn:
                continue
            parcel.lapsed = parcel.lapsed or parcel.lease != 0
            parcel.attempt += 1
            parcel.lease = parcel.turn = next(self._turns)
            queue.leased[parcel.message.id] = self._clock.elapsed() + self._lease
            message = parcel.message if parcel.attempt == 1 else replace(parcel.message, attempt=parcel.attempt)
            taken.append(Delivery(message, parcel.lease, parcel.failures, parcel.lapsed))
        return taken

    def _extended(self, delivery: Delivery) -> bool:
        parcel = self._held(delivery)
        if parcel is None:
            return False
        leased = self._queue(delivery.message.source).leased
        leased.pop(parcel.message.id, None)
        leased[parcel.message.id] = self._clock.elapsed() + self._lease
        parcel.turn = next(self._turns)  # if the lease had ended, its place among the ready is no longer its own
        return True

    def _settled(self, settlement: Settlement) -> bool:
        parcel = self._held(settlement.delivery)
        if parcel is None:
            return False
        queue = self._queue(settlement.delivery.message.source)
        queue.leased.pop(parcel.message.id, None)
        match settlement.outcome:
            case Retry(after):
                if settlement.failure is not None:
                    parcel.failures = (*parcel.failures, settlement.failure)
                self._hold_back(queue, parcel, after)
            case Release(pause):
                parcel.attempt -= 1
                self._hold_back(queue, parcel, pause)
            case _:
                parcel.turn = -1
                del queue.parcels[parcel.message.id]
        return True

    def _held(self, delivery: Delivery) -> Parcel | None:
        parcel = self._queue(delivery.message.source).parcels.get(delivery.message.id)
        return parcel if parcel is not None and parcel.lease == delivery.token else None

    def _hold_back(self, queue: Queue, parcel: Parcel, span: timedelta) -> None:
        parcel.lease = 0
        if span <= timedelta():
            return self._offer(queue, parcel)
        parcel.turn = next(self._turns)
        heapq.heappush(queue.waiting, (self._clock.elapsed() + span.total_seconds(), parcel.turn, parcel))
        queue.event.set()
        return None

    def _delay(self, message: Message) -> timedelta:
        return timedelta() if message.not_before is None else message.not_before - self._clock.now()

    def _offer(self, queue: Queue, parcel: Parcel) -> None:
        parcel.turn = next(self._turns)
        heapq.heappush(queue.ready, (parcel.message.priority, parcel.turn, parcel))
        queue.event.set()

    def _ripen(self, queue: Queue) -> None:
        """Make ready what waited long enough, and what a worker held too long."""
        now = self._clock.elapsed()
        while queue.waiting and queue.waiting[0][0] <= now:
            _, turn, parcel = heapq.heappop(queue.waiting)
            if turn == parcel.turn:
                self._offer(queue, parcel)
        while queue.leased and next(iter(queue.leased.values())) <= now:
            id = next(iter(queue.leased))
            del queue.leased[id]
            self._offer(queue, queue.parcels[id])

    def _next(self, queue: Queue) -> float:
        """When the next message becomes ready."""
        times = [queue.waiting[0][0]] if queue.waiting else []
        times += [next(iter(queue.leased.values()))] if queue.leased else []
        return min(times, default=self._clock.elapsed() + _LONGEST_WAIT)

    def _depth(self, queue: Queue) -> Depth:
        self._ripen(queue)
        ready = sum(turn == parcel.turn for _, turn, parcel in queue.ready)
        leased = len(queue.leased)
        return Depth(ready, len(queue.parcels) - ready - leased, leased)


def _due(message: Message) -> Message:
    """The message as it is once it may be received."""
    return message if message.not_before is None else replace(message, not_before=None)


def open_transport(url: str, *, clock: Clock, lease: timedelta) -> MemoryTransport:
    """The queue of `memory://`; each is a queue of its own."""
    return MemoryTransport(clock=clock, lease=lease)
