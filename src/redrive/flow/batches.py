"""Batch handlers: messages are gathered, handed over in one call, and decided one by one.

    lanes ──▶ gather ──▶ count ──▶ refuse, decode ──▶ call ──▶ decide each ──▶ settle
                                                       ▲ │
                                                       └─┴─ failed as a whole: again in halves, or each by itself

A message has failed when it fails by name or alone; that it was in a batch that failed is not counted. While the
pieces of a batch fail one after the other and none succeeds, what they need is down: a few fail alone, which counts
for them, and the rest is given back as if it had not been received.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable, Sequence
from time import perf_counter

from redrive.errors import NotNow, Unavailable
from redrive.flow.attempt import failure, undecodable
from redrive.flow.availability import between_tries
from redrive.flow.batch_attempt import Called, Piece, call
from redrive.flow.context import Context
from redrive.flow.deadline import Deadline
from redrive.flow.decision import Decision
from redrive.flow.gather import BatchLanes, runs_alone
from redrive.flow.receive import Consumer, most_held
from redrive.model import Done, Holds, Release, Retry
from redrive.telemetry.events import BatchHandled
from redrive.transports.base import CountsBegun, Delivery, Prefetches

_DONE = Done()
_GIVE_UP = 3
"""Messages of a batch that fail alone, to be tried again, while none of it succeeds: then the rest is given back."""


class BatchConsumer(Consumer):
    """Receives from one source for a handler that takes lists."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        if isinstance(context.transport, Prefetches):
            context.transport.prefetch(context.source, most_held(context)[0])
        self.batches: BatchLanes[Delivery] = BatchLanes(
            alone=runs_alone, retries_block=context.policy.holds is not Holds.NOTHING
        )
        self.lanes = self.batches
        self._size = context.handler.batch or 1
        self._within = context.handler.within.total_seconds()
        self._turn = asyncio.Lock()  # one gathers at a time

    def _begin(self, deliveries: Sequence[Delivery]) -> None:
        """Attempts are counted when their batch begins, where the transport counts what begins."""
        self.lanes.add(deliveries)
        self._arrived.set()

    async def _work(self) -> None:
        deadline = Deadline(self._deadlines)
        while not self._stopping.is_set():
            if batch := await self._gather():
                await self._handle(batch, deadline)

    # -- gathering -----------------------------------------------------------------------------------------------

    async def _gather(self) -> list[Delivery]:
        """The next batch: full, or as large as it got within its time. None if we stop: it is given back."""
        batch: list[Delivery] = []
        try:
            async with self._turn:
                await self._fill(batch)
        except asyncio.CancelledError:
            self._give_back(batch)
            raise
        if self._stopping.is_set():
            self._give_back(batch)
            return []
        return batch

    async def _fill(self, batch: list[Delivery]) -> None:
        clock, until = self.context.clock, 0.0
        while not self._stopping.is_set():
            is_new = not batch
            self.batches.gather(batch, self._size)
            if len(batch) >= self._size:
                return
            if not batch and (alone := self.batches.next_alone()) is not None:
                batch.append(alone)
                return
            if is_new:
                until = clock.elapsed() + self._within
            self._arrived.clear()
            if not batch:
                await self._arrived.wait()
            elif (left := until - clock.elapsed()) <= 0 or not await clock.wait(self._arrived, left):
                return

    # -- handling ------------------------------------------------------------------------------------------------

    async def _handle(self, batch: Sequence[Delivery], deadline: Deadline) -> None:
        """Decide all of it; what is not decided when we are cancelled is given back."""
        hand = _Hand(batch)
        try:
            self._prepare(await self._counted(self._still_ours(batch)), hand)
            while hand.pieces:
                await self._call(hand, deadline)
        except asyncio.CancelledError:  # the grace is over: it was not their fault
            self._give_back(hand.left)
            raise
        except BaseException:  # a bug of ours: left to their leases, so that this attempt counts
            self._leases.drop(hand.left)
            raise
        finally:
            self.batches.free(hand.lanes - hand.blocked)
            self._arrived.set()

    def _still_ours(self, batch: Sequence[Delivery]) -> Sequence[Delivery]:
        """Without what has moved to another worker since it was received."""
        lost = [delivery for delivery in batch if not self._is_ours(delivery)]
        if not lost:
            return batch
        self._leases.drop(lost)
        return _without(batch, lost)

    async def _counted(self, batch: Sequence[Delivery]) -> Sequence[Delivery]:
        """Those of which the attempt is counted, durably, where that has to be done when it begins."""
        transport = self.context.transport
        uncounted = [delivery for delivery in batch if not delivery.is_counted]
        pause = between_tries()
        while uncounted and isinstance(transport, CountsBegun):
            try:
                lost = await transport.begin(uncounted)
            except Unavailable as error:
                self._availability.down(error, pause.seconds)
                if await self.context.clock.wait(self._stopping, pause.next()):
                    self._give_back(batch)
                    return ()
            else:
                self._availability.up()
                self._leases.let_go(lost)
                return _without(batch, lost) if lost else batch
        return batch

    def _prepare(self, batch: Sequence[Delivery], hand: _Hand) -> None:
        """Decode the bodies. What is refused, or cannot be decoded, is decided, and poisons nobody's batch."""
        piece = Piece([], [])
        decided, behind = list[Decision](), list[Delivery]()
        for delivery in batch:
            if behind and delivery.lane is not None and _has_lane(behind, delivery.lane):
                behind.append(delivery)
            elif (decision := self._decoded(delivery, piece)) is None:
                pass
            elif delivery.lane is not None and _has_lane(piece.deliveries, delivery.lane):
                self._unwritten.remember([decision])
                behind.append(delivery)  # it is decided after what is before it, in a batch that follows
            else:
                decided.append(decision)
        hand.left, hand.pieces = piece.deliveries, [piece] if len(piece) else []
        self.batches.wait_behind(behind)
        if decided:
            self._take(decided, hand)

    def _decoded(self, delivery: Delivery, piece: Piece) -> Decision | None:
        """Add it to what the handler is called with; or what is decided of it without that."""
        handler, message = self.context.handler, delivery.message
        try:
            if (decision := self._refused(delivery)) is not None:
                return decision
            try:
                body = (
                    handler.decode(message.body, message)
                    if handler.decode_wants_message
                    else handler.decode(message.body)
                )
            except Exception as error:
                return self._decide(delivery, undecodable(self.context, message, error), 0.0)
        except Exception as error:  # of our own code, about this message
            return self._stumbled(delivery, error)
        piece.deliveries.append(delivery)
        piece.bodies.append(body)
        return None

    async def _call(self, hand: _Hand, deadline: Deadline) -> None:
        piece, context = hand.pieces.pop(), self.context
        began = perf_counter()
        try:
            called = await call(context, piece, deadline)
        except NotNow as later:
            self._take([Decision(delivery, Release(later.pause)) for delivery in piece.deliveries], hand)
            return
        seconds = perf_counter() - began
        context.events.emit(BatchHandled(source=context.source, messages=len(piece), seconds=seconds))
        if called.whole is None:
            hand.has_succeeded |= len(called.errors) < len(piece)
            self._take(self._each(piece, called, seconds), hand)
        elif len(piece) == 1:
            decision = self._failed(piece.deliveries[0], called.whole, seconds)
            self._take([decision], hand)
            self._give_up_if_down(decision, hand)
        else:
            hand.pieces += reversed(piece.split(context.policy.batch_failure))

    def _each(self, piece: Piece, called: Called, seconds: float) -> list[Decision]:
        decisions = [Decision(delivery, _DONE, None, seconds) for delivery in piece.deliveries]
        for place, error in called.errors.items():
            decisions[place] = self._failed(piece.deliveries[place], error, seconds)
        return decisions

    def _failed(self, delivery: Delivery, error: BaseException, seconds: float) -> Decision:
        if isinstance(error, NotNow):
            return Decision(delivery, Release(error.pause))
        try:
            return self._decide(delivery, failure(self.context, delivery.message, error), seconds)
        except Exception as second:  # of our own code, about this message
            return self._stumbled(delivery, second)

    def _give_up_if_down(self, decision: Decision, hand: _Hand) -> None:
        """Give the rest back, for as long as the last one waits, once so many failed alone and none succeeded."""
        if hand.has_succeeded or not isinstance(decision.outcome, Retry):
            return
        hand.failed_alone += 1
        if hand.failed_alone >= _GIVE_UP and hand.pieces:
            rest = [delivery for piece in reversed(hand.pieces) for delivery in piece.deliveries]
            hand.pieces.clear()
            self._take([Decision(delivery, Release(decision.outcome.after)) for delivery in rest], hand)

    # -- order ---------------------------------------------------------------------------------------------------

    def _take(self, decisions: Sequence[Decision], hand: _Hand) -> None:
        """Hand decisions over to be settled; what is behind one of them in its lane does not overtake it."""
        decisions = self._in_order(decisions, hand) if hand.lanes else decisions
        self._decisions += decisions
        self._decided.set()
        hand.drop([decision.delivery for decision in decisions])

    def _in_order(self, decisions: Sequence[Decision], hand: _Hand) -> Sequence[Decision]:
        """What is behind one that has to wait is given back with it, whatever came of it, and handled again after it.
        Such a lane, and one of which a store has to take something first, goes on when that is settled."""
        blocked: dict[Hashable, Decision] = {}
        kept: list[Decision] = []
        for decision in decisions:
            lane = decision.delivery.lane
            if lane is not None:
                first = blocked.get(lane)
                if first is not None and self.batches.holds_up(first.outcome):
                    decision = Decision(decision.delivery, Release())
                elif not _is_simply_done(decision):
                    blocked[lane] = decision
            kept.append(decision)
        if not blocked:
            return decisions
        for lane, decision in blocked.items():
            self.batches.wait_behind(hand.take_out(lane))
            self.batches.block(decision.delivery, decision.outcome)
        hand.blocked |= blocked.keys()
        return kept


class _Hand:
    """A batch that is in hand: what of it is not decided, and in which pieces it is tried next (the last one first)."""

    def __init__(self, batch: Sequence[Delivery]) -> None:
        self.left: Sequence[Delivery] = batch
        self.lanes: set[Hashable] = {delivery.lane for delivery in batch if delivery.lane is not None}
        self.blocked: set[Hashable] = set()  # lanes that go on when something of them is settled
        self.pieces: list[Piece] = []
        self.failed_alone = 0
        self.has_succeeded = False

    def drop(self, decided: Sequence[Delivery]) -> None:
        """These are decided."""
        self.left = [] if len(decided) == len(self.left) else _without(self.left, decided)

    def take_out(self, lane: Hashable) -> list[Delivery]:
        """Take what is not begun of a lane out of the pieces, in order."""
        taken: list[Delivery] = []
        for number in reversed(range(len(self.pieces))):
            piece = self.pieces[number]
            taken += [delivery for delivery in piece.deliveries if delivery.lane == lane]
            stays = [place for place, delivery in enumerate(piece.deliveries) if delivery.lane != lane]
            self.pieces[number] = piece.only(stays)
        self.pieces = [piece for piece in self.pieces if len(piece)]
        if taken:
            self.drop(taken)
        return taken


def _without(batch: Iterable[Delivery], gone: Iterable[Delivery]) -> list[Delivery]:
    names = set(map(id, gone))
    return [delivery for delivery in batch if id(delivery) not in names]


def _has_lane(deliveries: Iterable[Delivery], lane: Hashable) -> bool:
    return any(delivery.lane == lane for delivery in deliveries)


def _is_simply_done(decision: Decision) -> bool:
    delivery = decision.delivery
    return decision.outcome is _DONE and not delivery.redelivered and not delivery.message.was_sent_back
