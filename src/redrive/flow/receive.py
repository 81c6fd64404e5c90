"""Take deliveries in batches, attempt them with bounded concurrency, settle in batches, stop cleanly.

    fetch ──▶ lanes ──▶ N attempts at once ──▶ decisions ──▶ settle
      ▲                                                        │
      └─────────── capacity, as what is held gets settled ◀────┘

One task fetches, a fixed pool of tasks attempts, one task settles: a task or a round trip for each message is
what makes consumers slow. While one settlement is under way the next batch of decisions gathers by itself.

Where the transport keeps order, `lanes.py` decides what may begin. `leases.py` keeps what is held.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from time import perf_counter
from typing import cast

from redrive.errors import NotNow, Unavailable
from redrive.flow.attempt import attempt, refusal, set_aside, stumble, unreadable
from redrive.flow.availability import Availability, between_tries, between_writes
from redrive.flow.begin import Beginning
from redrive.flow.context import Context
from redrive.flow.deadline import Deadline, Deadlines
from redrive.flow.decide import decide
from redrive.flow.decision import Decision
from redrive.flow.lanes import Lanes
from redrive.flow.leases import Leases
from redrive.flow.lineage import LETTER
from redrive.flow.settle import Settled, settle
from redrive.flow.tasks import cancel, finish, until
from redrive.flow.unwritten import Unwritten
from redrive.model import Bury, Done, Failure, Holds, Message, MessageId, Reason, Release, letter_id
from redrive.proof import ring
from redrive.transports.base import Delivery, KeepsOrder, MovesKeys

_DONE = Done()
_UNPROVEN = timedelta(seconds=1)  # until what came back is looked at again, while nobody can tell who sent it


class Consumer:
    """Receives from one source until `stop` is called."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.released = 0  # how many were given back
        self.lanes: Lanes[Delivery] = Lanes(retries_block=context.policy.holds is not Holds.NOTHING)
        self._is_ours = context.transport.is_ours if isinstance(context.transport, KeepsOrder) else _always
        self._next = self.lanes.next if self._is_ours is _always else self._next_of_ours
        self._storm = context.storm
        self._holds = context.holds
        self._held: Mapping[bytes | None, Sequence[MessageId]] = {} if context.holds is None else context.holds.keys
        self._moves = context.transport if isinstance(context.transport, MovesKeys) else None
        self._availability = Availability(context.events)
        self._leases = Leases(context, *most_held(context), self._availability)
        self._beginning = Beginning(context, self._leases)
        self._counting = between_tries()
        self._idle = 0  # tasks of the pool that have nothing to do
        self._unwritten = Unwritten(context)
        self._deadlines = Deadlines(context.handler.timeout)
        self._most_attempts = context.most_attempts
        self._decisions: list[Decision] = []  # to be settled
        self._arrived = asyncio.Event()
        self._decided = asyncio.Event()
        self._stopping = asyncio.Event()
        self._ending = asyncio.Event()  # what is settled now is settled for the last time
        self._one_at_a_time = False  # what came last may take its worker down
        self._writes = between_writes()
        self._store_pause = 0.0  # how long letters are held back, and nothing new is taken

    async def run(self, grace: timedelta) -> None:
        """Run until `stop`: then take nothing new, let what runs finish within the grace, and give the rest back."""
        fetching, renewal = asyncio.create_task(self._fetch()), asyncio.create_task(self._leases.renew())
        pool = [asyncio.create_task(self._work()) for _ in range(self.context.handler.concurrency)]
        settler = asyncio.create_task(self._settle())
        try:
            await until(self._stopping, [fetching, renewal, *pool, settler])
        finally:
            self.stop()  # whatever ended it: a cancellation and a bug of ours end the idle ones too
            await cancel([fetching])
            self._give_back([*self.lanes.drain(), *self._beginning.drain()])
            await finish(pool, grace)
            self._give_back([*self.lanes.drain(), *self._beginning.drain()])  # what was counted while it ended
            await self._last_settlement(settler)
            await cancel([renewal, settler])

    def stop(self) -> None:
        """Take nothing new."""
        self._stopping.set()
        self._arrived.set()

    def pause(self) -> None:
        """Give back what is not begun: its source is paused, and its transport hands out nothing more of it."""
        self._give_back([*self.lanes.give_back(), *(self._beginning.drain() if self._beginning.is_ready else ())])

    @property
    def in_hand(self) -> int:
        """How many messages are received and not settled."""
        return len(self._leases)

    # -- fetching ------------------------------------------------------------------------------------------------

    async def _fetch(self) -> None:
        pause = between_tries()
        while True:
            capacity = await self._leases.capacity()
            if self._store_pause:
                await self.context.clock.sleep(self._store_pause)
            limit = 1 if self._one_at_a_time else min(capacity, self.context.batch)
            if self._storm is not None:
                limit = await self._storm.limit(limit)
            try:
                deliveries = await self._receive(limit)
            except Unavailable as error:
                self._availability.down(error, pause.seconds)
                await self.context.clock.sleep(pause.next())
                continue
            self._availability.up()
            pause.reset()
            self._leases.add(deliveries)
            if self._storm is not None and deliveries and not self._storm.received(len(deliveries)):
                self._give_back(deliveries)
                continue
            if self._holds is not None:
                await self._know_held(deliveries)
            suspect = next((item for item in deliveries if item.redelivered and self._is_suspect(item)), None)
            self._one_at_a_time = suspect is not None
            if suspect is not None:
                await self._attempt_alone(suspect, deliveries)
            else:
                self._begin(deliveries)

    async def _receive(self, limit: int) -> Sequence[Delivery]:
        return await self.context.transport.receive(self.context.source, limit)

    async def _know_held(self, deliveries: Sequence[Delivery]) -> None:
        """Know which keys are held before these are begun. For the first answer of the store it is waited; if it does
        not answer later, what was known is known: nothing dies meanwhile, because that needs the store, too."""
        holds, pause = self._holds, between_tries()
        moves = 0 if self._moves is None else self._moves.moves
        try:
            while holds is not None and holds.is_due(moves):
                try:
                    await holds.look(moves)
                    break
                except Unavailable as error:
                    self._availability.down(error, pause.seconds)
                    if holds.is_known:
                        break
                    await self.context.clock.sleep(pause.next())
        except BaseException:
            self._give_back(deliveries)
            raise

    def _is_suspect(self, delivery: Delivery) -> bool:
        """Whoever held it did not settle it, and this is its last attempt."""
        return delivery.message.attempt == self._most_attempts and not delivery.perhaps_untried

    async def _attempt_alone(self, suspect: Delivery, deliveries: Sequence[Delivery]) -> None:
        """Attempt it while nothing else is held: if it takes its worker down, it takes no other message along."""
        if not self.lanes.is_next(suspect, deliveries):
            self._give_back(deliveries)
            return await self._leases.until_at_most(0)
        self._give_back(delivery for delivery in deliveries if delivery is not suspect)
        try:
            await self._leases.until_at_most(1)
        except asyncio.CancelledError:
            self._give_back([suspect])
            raise
        self._begin([suspect])
        return await self._leases.until_at_most(0)

    def _begin(self, deliveries: Sequence[Delivery]) -> None:
        self.lanes.add(self._beginning.add(deliveries))
        self._arrived.set()

    # -- attempting ----------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        deadline = Deadline(self._deadlines)
        while not self._stopping.is_set():
            delivery = self._next()
            if delivery is None:
                await self._more_to_begin()
                continue
            try:
                while delivery is not None:
                    try:
                        decision = self._refused(delivery)
                        if decision is None:
                            began = perf_counter()
                            failure = await attempt(self.context, delivery.message, deadline)
                            decision = self._decide(delivery, failure, perf_counter() - began)
                    except NotNow as later:
                        decision = Decision(delivery, Release(later.pause))
                    except Exception as error:  # of our own code, about this message: what is behind it goes on
                        decision = self._stumbled(delivery, error)
                    self._decisions.append(decision)  # looked up after the wait: the list is swapped meanwhile
                    delivery = None if delivery.lane is None else self._behind(decision)
            except asyncio.CancelledError:  # the grace is over: it was not the message's fault
                self._decisions.append(Decision(cast(Delivery, delivery), Release()))
                raise
            except BaseException:  # a bug of ours: left to its lease, so that this attempt counts
                self._leases.drop([cast(Delivery, delivery)])
                raise
            finally:
                self._decided.set()

    async def _more_to_begin(self) -> None:
        """Wait until something may begin; one of those who wait counts what has arrived."""
        self._idle += 1
        try:
            if self._beginning.is_ready:
                await self._count_begun()
            else:
                self._arrived.clear()
                await self._arrived.wait()
        finally:
            self._idle -= 1

    async def _count_begun(self) -> None:
        try:
            self.lanes.add(await self._beginning.count(self._idle))
        except Unavailable as error:
            self._availability.down(error, self._counting.seconds)
            await self.context.clock.wait(self._stopping, self._counting.next())
        else:
            self._counting.reset()
            self._arrived.set()

    def _next_of_ours(self) -> Delivery | None:
        """The first that may begin, where what was received can be taken from us before that."""
        while (delivery := self.lanes.next()) is not None:
            if self._is_ours(delivery) or (delivery := self._after_lost(delivery)) is not None:
                return delivery
        return None

    def _behind(self, decision: Decision) -> Delivery | None:
        """The next of its lane, if it may begin at once."""
        delivery = decision.delivery
        if decision.outcome is not _DONE or delivery.redelivered or delivery.message.was_sent_back:
            self.lanes.block(delivery, decision.outcome)  # it waits, or a store has to take it first
            return None
        if self._stopping.is_set():
            return None  # they are given back
        following = self.lanes.done(delivery)
        return following if following is None or self._is_ours(following) else self._after_lost(following)

    def _after_lost(self, lost: Delivery) -> Delivery | None:
        """What follows in its lane: its partition has moved to another worker since it was received."""
        following: Delivery | None = lost
        while following is not None and not self._is_ours(following):
            self._leases.drop([following])
            following = self.lanes.done(following)
        return following

    def _refused(self, delivery: Delivery) -> Decision | None:
        """The decision on a message without an attempt: to bury it, or what was decided before; None if it is
        attempted."""
        context, message = self.context, delivery.message
        if delivery.failures or self._unwritten.remembered or self._held:  # while nothing is held, that costs nothing
            decided = self._decided_before(delivery)
            if decided is not None:
                return decided
        if message.headers and ring().is_unread and message.header(LETTER) is not None:
            return Decision(delivery, Release(_UNPROVEN))  # it needs the store, which has not answered yet
        if (
            message.attempt <= self._most_attempts
            and not message.expires_at
            and len(message.body) <= context.body_limit
            and not delivery.unreadable
            and not delivery.uncountable
        ):
            return None  # as almost all are
        refused = refusal(context, delivery)
        if refused is None:
            return None
        self._died(message)
        return Decision(delivery, Bury(refused.reason), refused.failure)

    def _decided_before(self, delivery: Delivery) -> Decision | None:
        """What is behind a dead message of its key is not attempted; nor is what could not be written before."""
        message, holds = delivery.message, self._holds
        if holds is not None and message.key in self._held and holds.is_behind(message):
            return self._set_aside(delivery, self._held[message.key][0])
        decided = self._unwritten.decision(delivery)
        if decided is not None and isinstance(decided.outcome, Bury):
            self._died(message)
        return decided

    def _set_aside(self, delivery: Delivery, head: MessageId) -> Decision:
        message = delivery.message
        why = set_aside(self.context, message, letter_id(message.source, head))
        return Decision(delivery, Bury(Reason.BEHIND), why)

    def _died(self, message: Message) -> None:
        """It is to be buried: what is behind it of its key is set aside from now on, where keys are held."""
        if self._holds is not None:
            self._holds.died(message)

    def _decide(self, delivery: Delivery, failure: Failure | None, seconds: float) -> Decision:
        if failure is None:
            return Decision(delivery, _DONE, None, seconds)
        context, clock = self.context, self.context.clock
        outcome = decide(delivery.message, failure, context.policy_for(delivery), clock.now(), clock.rng)
        if isinstance(outcome, Bury):
            self._died(delivery.message)
        return Decision(delivery, outcome, failure, seconds)

    def _stumbled(self, delivery: Delivery, error: Exception) -> Decision:
        """The decision to bury a message that our own code cannot cope with."""
        why = stumble("to attempt it or to decide what becomes of it", error)
        self._died(delivery.message)
        return Decision(delivery, Bury(Reason.UNDECODABLE), unreadable(self.context, delivery.message, why))

    # -- settling ------------------------------------------------------------------------------------------------

    async def _settle(self) -> None:
        while True:
            await self._decided.wait()
            self._decided.clear()
            batch, self._decisions = self._decisions, []
            if batch:
                batch += [Decision(delivery, Release()) for delivery in self.lanes.held_up()]
                self._beginning.observe(batch)
                self._leases.settling = batch
                settled = await self._carry_out(batch)
                self._leases.drop([decision.delivery for decision in batch])
                if self.lanes.is_blocked:
                    self._give_back(self.lanes.settled(settled.kept_back))
                    self._arrived.set()

    async def _carry_out(self, batch: Sequence[Decision]) -> Settled:
        """Settle the batch, and try again until it is settled: while the broker is away, nothing new is taken."""
        pause = between_tries()
        while True:
            try:
                settled = await settle(self.context, batch, timedelta(seconds=self._writes.seconds))
            except Unavailable as error:
                self._availability.down(error, pause.seconds)
                if self._ending.is_set():  # they come back when their leases end
                    return Settled(kept_back=tuple(decision.delivery for decision in batch))
                await self.context.clock.wait(self._ending, pause.next())
            else:
                self._availability.up()
                self._spare_the_store(settled.written)
                self._unwritten.remember(settled.unwritten)
                self.released += sum(isinstance(decision.outcome, Release) for decision in batch)
                return settled

    def _spare_the_store(self, written: bool) -> None:
        """While the store takes nothing, fetch nothing new for a pause that grows."""
        if written:
            self._writes.reset()
            self._store_pause = 0.0
        else:
            self._writes.next()
            self._store_pause = self._writes.seconds

    def _give_back(self, deliveries: Iterable[Delivery]) -> None:
        if releases := [Decision(delivery, Release()) for delivery in deliveries]:
            self._decisions += releases
            self._decided.set()

    async def _last_settlement(self, settler: asyncio.Task[None]) -> None:
        """Wait until everything decided is carried out, or was tried once more of a broker that is away."""
        self._ending.set()
        while (self._decisions or len(self._leases)) and not settler.done():
            self._leases.changed.clear()
            self._decided.set()
            await until(self._leases.changed, [settler])


def most_held(context: Context) -> tuple[int, int]:
    """How many may be held at a time, and how many more are worth a fetch: a batch runs while the next one is fetched.
    Under a rate, only what runs: what is taken ahead of it could begin too late, together with what the rate allows
    then. A batch handler has batches that run, one that is gathered, and two that are fetched or settled."""
    concurrency, size = context.handler.concurrency, context.handler.batch
    if size is None:
        most = concurrency if context.handler.limits.rate else max(2 * context.batch, 2 * concurrency)
        return most, max(1, most // 4)
    most = concurrency * size if context.handler.limits.rate else max(2 * context.batch, (concurrency + 3) * size)
    return most, min(size, max(1, most // 4))


def _always(delivery: Delivery) -> bool:
    return True
