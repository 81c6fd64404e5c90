"""A batch in hand: its handler is called, each message is decided by itself, and what failed as a whole is tried again.

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
from redrive.flow.batch_attempt import Called, Piece, call, split
from redrive.flow.context import Context
from redrive.flow.deadline import Deadline
from redrive.flow.decision import Decision
from redrive.flow.gather import BatchLanes, runs_alone
from redrive.flow.receive import Consumer
from redrive.model import Bury, Done, Holds, Release, Retry
from redrive.telemetry.events import BatchHandled
from redrive.transports.base import CountsBegun, Delivery

_DONE = Done()
_GIVE_UP = 3
"""Messages of a batch that fail alone, to be tried again, while none of it succeeds: then the rest is given back."""


class Hand:
    """A batch that is in hand: what of it is not decided, and in which pieces it is tried next (the last one first)."""

    def __init__(self, batch: Sequence[Delivery]) -> None:
        self.left: Sequence[Delivery] = batch
        self.pieces: list[Sequence[Delivery]] = [batch] if batch else []
        self.lanes: set[Hashable] = {delivery.lane for delivery in batch if delivery.lane is not None}
        self.blocked: set[Hashable] = set()  # lanes that go on when something of them is settled
        self.failed_alone = 0
        self.has_succeeded = False

    def drop(self, decided: Sequence[Delivery]) -> None:
        """These are decided, or not in this hand any more."""
        self.left = [] if len(decided) == len(self.left) else without(self.left, decided)

    def take_out(self, lane: Hashable) -> list[Delivery]:
        """Take what is not begun of a lane out of the pieces, in order."""
        taken = [delivery for piece in reversed(self.pieces) for delivery in piece if delivery.lane == lane]
        if taken:
            pieces = [[delivery for delivery in piece if delivery.lane != lane] for piece in self.pieces]
            self.pieces = [piece for piece in pieces if piece]
            self.drop(taken)
        return taken


class BatchHandling(Consumer):
    """What a consumer does with a batch."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.batches: BatchLanes[Delivery] = BatchLanes(
            alone=runs_alone, opened=self._leases.open, retries_block=context.policy.holds is not Holds.NOTHING
        )
        self.lanes = self.batches

    async def _handle(self, hand: Hand, deadline: Deadline) -> None:
        """Decide all of it; what is not decided when we are cancelled is given back."""
        try:
            while hand.pieces:
                await self._try(hand, deadline)
        except asyncio.CancelledError:  # the grace is over: it was not their fault
            self._give_back(hand.left)
            raise
        except BaseException:  # a bug of ours: left to their leases, so that this attempt counts
            self._leases.drop(hand.left)
            raise
        finally:
            self.batches.free(hand.lanes - hand.blocked)
            self._arrived.set()

    # -- before the call -----------------------------------------------------------------------------------------

    async def _begun(self, batch: Sequence[Delivery]) -> Hand:
        """The batch in hand: without what is not ours any more, and counted, where attempts count when they begin."""
        hand = Hand(batch)
        if moved := [delivery for delivery in batch if not self._is_ours(delivery)]:
            self._leases.drop(moved)
            self._leave_out(moved, hand)
        try:
            lost = await self._count([delivery for delivery in hand.left if not delivery.is_counted])
        except asyncio.CancelledError:
            self._give_back(hand.left)
            raise
        if lost:
            self._leave_out(lost, hand)
        return hand

    def _leave_out(self, lost: Sequence[Delivery], hand: Hand) -> None:
        hand.drop(lost)
        hand.pieces = [hand.left] if hand.left else []

    async def _count(self, uncounted: Sequence[Delivery]) -> Sequence[Delivery]:
        """Count their attempts, durably. Returns those that nobody must attempt: their leases are lost, or we stop."""
        transport, pause = self.context.transport, between_tries()
        while uncounted and isinstance(transport, CountsBegun):
            try:
                lost = await transport.begin(uncounted)
            except Unavailable as error:
                self._availability.down(error, pause.seconds)
                if await self.context.clock.wait(self._stopping, pause.next()):
                    self._give_back(uncounted)
                    return uncounted
            else:
                self._availability.up()
                self._leases.let_go(lost)
                return lost
        return ()

    def _decoded(self, deliveries: Sequence[Delivery], hand: Hand) -> Piece:
        """What the handler is called with: decoded for each call, because it may have changed what it had. What is
        refused, or cannot be decoded, is decided, and poisons nobody's batch."""
        piece, decided, behind = Piece([], []), list[Decision](), list[Delivery]()
        closed: set[Hashable] = set()  # lanes that go on when something else is decided, or settled
        for delivery in deliveries:
            if closed and delivery.lane in closed:
                behind.append(delivery)
            elif (decision := self._join_piece(delivery, piece)) is not None:
                if delivery.lane is not None and _has_lane(piece.deliveries, delivery.lane):
                    self._unwritten.remember([decision])
                    behind.append(delivery)  # it is decided after what is before it, in a batch that follows
                else:
                    decided.append(decision)
                closed |= {delivery.lane} - {None}
        for lane in closed:
            self.batches.wait_behind(hand.take_out(lane))
        if behind:
            self.batches.wait_behind(behind)
            hand.drop(behind)
        if decided:
            self._take(decided, hand)
        return piece

    def _join_piece(self, delivery: Delivery, piece: Piece) -> Decision | None:
        """Add it to what the handler is called with; or what is decided of it without that."""
        handler, message = self.context.handler, delivery.message
        try:
            if (decision := self._refused(delivery)) is not None:
                return decision
            try:
                wants = handler.decode_wants_message
                body = handler.decode(message.body, message) if wants else handler.decode(message.body)
            except Exception as error:
                return self._decide(delivery, undecodable(self.context, message, error), 0.0)
        except Exception as error:  # of our own code, about this message
            return self._stumbled(delivery, error)
        piece.deliveries.append(delivery)
        piece.bodies.append(body)
        return None

    # -- the call ------------------------------------------------------------------------------------------------

    async def _try(self, hand: Hand, deadline: Deadline) -> None:
        """Call the handler with the next piece."""
        piece = self._decoded(hand.pieces.pop(), hand)
        if not len(piece):
            return
        began = perf_counter()
        try:
            called = await call(self.context, piece, deadline)
        except NotNow as later:
            self._take([Decision(delivery, Release(later.pause)) for delivery in piece.deliveries], hand)
            return
        self._decide_each(piece, called, perf_counter() - began, hand)

    def _decide_each(self, piece: Piece, called: Called, seconds: float, hand: Hand) -> None:
        """Decide on each message after a call, or what to try again of a piece that failed as a whole."""
        context = self.context
        context.events.emit(BatchHandled(source=context.source, messages=len(piece), seconds=seconds))
        if called.whole is None:
            hand.has_succeeded |= len(called.errors) < len(piece)
            self._take(self._each(piece, called, seconds), hand)
        elif len(piece) == 1:
            decision = self._failed(piece.deliveries[0], called.whole, seconds)
            self._take([decision], hand)
            self._give_up_if_down(decision, hand)
        else:
            hand.pieces += reversed(split(piece.deliveries, context.policy.batch_failure))

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

    def _give_up_if_down(self, decision: Decision, hand: Hand) -> None:
        """Give the rest back, for as long as the last one waits, once so many failed alone and none succeeded."""
        if hand.has_succeeded or not isinstance(decision.outcome, Retry):
            return
        hand.failed_alone += 1
        if hand.failed_alone >= _GIVE_UP and hand.pieces:
            rest = [delivery for piece in reversed(hand.pieces) for delivery in piece]
            hand.pieces.clear()
            self._take([Decision(delivery, Release(decision.outcome.after)) for delivery in rest], hand)

    # -- order ---------------------------------------------------------------------------------------------------

    def _take(self, decisions: Sequence[Decision], hand: Hand) -> None:
        """Hand decisions over to be settled; what is behind one of them in its lane does not overtake it."""
        decisions = self._in_order(decisions, hand) if hand.lanes else decisions
        self._decisions += decisions
        self._decided.set()
        hand.drop([decision.delivery for decision in decisions])

    def _in_order(self, decisions: Sequence[Decision], hand: Hand) -> Sequence[Decision]:
        """What is behind one that has to wait is given back with it, whatever came of it, and handled again after it.
        Behind one that dies it is set aside, where keys are held.
        Such a lane, and one of which a store has to take something first, goes on when that is settled."""
        blocked: dict[Hashable, Decision] = {}
        kept: list[Decision] = []
        for decision in decisions:
            lane = decision.delivery.lane
            if lane is not None:
                first = blocked.get(lane)
                if first is not None and self._holds_key(first):
                    decision = self._set_aside(decision.delivery, first.delivery.message.id)
                elif first is not None and self.batches.holds_up(first.outcome):
                    if self._holds is not None:
                        self._holds.spared(decision.delivery.message)
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

    def _holds_key(self, decision: Decision) -> bool:
        has_key = decision.delivery.message.key is not None
        return self._holds is not None and has_key and isinstance(decision.outcome, Bury)


def without(batch: Iterable[Delivery], gone: Iterable[Delivery]) -> list[Delivery]:
    """The batch, less these."""
    names = set(map(id, gone))
    return [delivery for delivery in batch if id(delivery) not in names]


def _has_lane(deliveries: Iterable[Delivery], lane: Hashable) -> bool:
    return any(delivery.lane == lane for delivery in deliveries)


def _is_simply_done(decision: Decision) -> bool:
    delivery = decision.delivery
    return decision.outcome is _DONE and not delivery.redelivered and not delivery.message.was_sent_back
