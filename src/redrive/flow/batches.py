"""Batch handlers: messages are gathered, handed over in one call, and decided one by one.

    lanes ──▶ gather ──▶ count ──▶ refuse, decode ──▶ call ──▶ decide each ──▶ settle
                                                       ▲ │
                                                       └─┴─ failed as a whole: again in halves, or each by itself

What comes as a block goes another way, for as long as all goes well: its bodies are handed over, and it is settled,
without a look at one of its messages. What is done with a batch is in `batch_handling.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import perf_counter
from typing import Any

from redrive.errors import NotNow
from redrive.flow.batch_attempt import Called, Piece, call
from redrive.flow.batch_handling import BatchHandling, Hand
from redrive.flow.context import Context
from redrive.flow.deadline import Deadline
from redrive.flow.decode import as_is
from redrive.flow.receive import most_held
from redrive.telemetry.events import BatchHandled, BatchSettled, LeaseLost
from redrive.transports.base import Block, Delivery, Prefetches, ReceivesBlocks


class _Gathered:
    """A batch that is being gathered: a block, or its messages."""

    def __init__(self) -> None:
        self.block: Block | None = None
        self.items: list[Delivery] = []

    def __len__(self) -> int:
        return len(self.items) if self.block is None else len(self.block)


class BatchConsumer(BatchHandling):
    """Receives from one source for a handler that takes lists."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        if isinstance(context.transport, Prefetches):
            context.transport.prefetch(context.source, most_held(context)[0])
        self._size = context.handler.batch or 1
        self._within = context.handler.within.total_seconds()
        self._turn = asyncio.Lock()  # one gathers at a time
        self._blocks: Any = context.transport if _takes_blocks(context) else None  # what gives them

    async def _receive(self, limit: int) -> Sequence[Delivery]:
        if self._blocks is None:
            return await super()._receive(limit)
        received: Sequence[Delivery] | Block = await self._blocks.receive_block(self.context.source, limit)
        if not isinstance(received, Block):
            return received
        if self._storm is not None and not self._storm.received(len(received)):
            self._leases.add_block(received)
            self._give_back(self._leases.open(received))
            return ()
        if self._holds is not None:
            await self._know_held_of(received)
        self._leases.add_block(received)
        self.batches.add_block(received)
        return ()

    async def _know_held_of(self, block: Block) -> None:
        try:
            await self._know_held(())
        except BaseException:
            self._leases.add_block(block)
            self._give_back(self._leases.open(block))
            raise

    def _begin(self, deliveries: Sequence[Delivery]) -> None:
        """Attempts are counted when their batch begins, where the transport counts what begins."""
        self.lanes.add(deliveries)
        self._arrived.set()

    async def _work(self) -> None:
        deadline = Deadline(self._deadlines)
        while not self._stopping.is_set():
            batch = await self._gather()
            if batch.block is not None:
                await self._handle_block(batch.block, deadline)
            elif batch.items:
                await self._handle(await self._begun(batch.items), deadline)

    # -- gathering -----------------------------------------------------------------------------------------------

    async def _gather(self) -> _Gathered:
        """The next batch: full, or as large as it got within its time. Nothing if we stop: it is given back."""
        batch = _Gathered()
        try:
            async with self._turn:
                await self._fill(batch)
        except asyncio.CancelledError:
            self._give_back(self._taken_apart(batch))
            raise
        if self._stopping.is_set():
            self._give_back(self._taken_apart(batch))
            return _Gathered()
        return batch

    async def _fill(self, batch: _Gathered) -> None:
        clock, until = self.context.clock, 0.0
        while not self._stopping.is_set():
            is_new = not len(batch)
            self._join(batch)
            if len(batch) >= self._size:
                return
            if not len(batch) and (alone := self.batches.next_alone()) is not None:
                batch.items.append(alone)
                return
            if is_new:
                until = clock.elapsed() + self._within
            self._arrived.clear()
            if not len(batch):
                await self._arrived.wait()
            elif (left := until - clock.elapsed()) <= 0 or not await clock.wait(self._arrived, left):
                return

    def _join(self, batch: _Gathered) -> None:
        """Let join the batch what has arrived: blocks as they are, for as long as nothing else arrives."""
        lanes, leases = self.batches, self._leases
        while not batch.items and len(batch) < self._size and (block := lanes.next_block()) is not None:
            if batch.block is None:
                batch.block = block
            else:
                leases.join(batch.block, block)
            if len(batch.block) > self._size:
                lanes.put_first(leases.split(batch.block, self._size))
        if batch.block is not None and len(batch) < self._size and lanes.has_items:
            batch.items, batch.block = leases.open(batch.block), None
            lanes.enter(batch.items)
        if batch.block is None:
            lanes.gather(batch.items, self._size)

    def _taken_apart(self, batch: _Gathered) -> Sequence[Delivery]:
        return batch.items if batch.block is None else self._leases.open(batch.block)

    # -- blocks --------------------------------------------------------------------------------------------------

    async def _handle_block(self, block: Block, deadline: Deadline) -> None:
        """Hand its bodies over. If all are done, nobody looks at one of them; otherwise they are taken apart."""
        bodies = self._bodies(block)
        if bodies is None:
            return await self._handle(await self._begun(self._begun_items(block)), deadline)
        began = perf_counter()
        try:
            called = await call(self.context, Piece([], bodies), deadline)
        except NotNow as later:
            called = Called(dict.fromkeys(range(len(bodies)), later))
        except asyncio.CancelledError:
            self._give_back(self._leases.open(block))
            raise
        except BaseException:
            self._leases.drop_block(block)
            raise
        seconds = perf_counter() - began
        if called.whole is None and not called.errors:
            return self._settle_block(block, seconds)
        hand = Hand(self._begun_items(block))
        piece = Piece(list(hand.pieces.pop()), bodies)
        self._decide_each(piece, called, seconds, hand)
        return await self._handle(hand, deadline)

    def _begun_items(self, block: Block) -> list[Delivery]:
        """The messages of a block that was begun as a whole."""
        items = self._leases.open(block)
        self.batches.enter(items)
        return items

    def _bodies(self, block: Block) -> list[Any] | None:
        """The bodies, decoded. None: something of it needs a second look."""
        if self._unwritten.remembered or (self._holds is not None and self._holds.keys) or not block.is_ours():
            return None
        decode, bodies = self.context.handler.decode, block.bodies()
        if len(max(bodies, key=len)) > self.context.body_limit:
            return None
        try:
            return bodies if decode is as_is else [decode(body) for body in bodies]
        except Exception:
            return None

    def _settle_block(self, block: Block, seconds: float) -> None:
        lost, source, number = self._blocks.settle_block(block), self.context.source, len(block)
        self._leases.drop_block(block)
        if self._storm is not None:
            self._storm.settled(number, 0, 0)
        emit = self.context.events.emit
        emit(BatchHandled(source=source, messages=number, seconds=seconds))
        emit(BatchSettled(source=source, done=number, retried=0, buried=0, released=0, seconds=(seconds,) * number))
        if lost:
            emit(LeaseLost(source=source, messages=tuple(delivery.message.id for delivery in lost)))


def _takes_blocks(context: Context) -> bool:
    """Whether nobody asks for more than bodies, and one batch is handled at a time: then no two have one lane."""
    handler = context.handler
    wants_more = handler.wants_message or handler.decode_wants_message or context.batch_span is not None
    return isinstance(context.transport, ReceivesBlocks) and handler.concurrency == 1 and not wants_more
