"""What a consumer holds: leased and not settled yet. How much more it may take, and the renewal of its leases."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from redrive.errors import Unavailable
from redrive.flow.availability import Availability
from redrive.flow.context import Context
from redrive.flow.decision import Decision
from redrive.telemetry.events import LeaseLost
from redrive.transports.base import Block, Delivery


class Leases:
    """The deliveries that are held, at most so many.

    worth   how many more are worth a fetch
    """

    def __init__(self, context: Context, most: int, worth: int, availability: Availability) -> None:
        self.changed = asyncio.Event()  # something is no longer held
        self._context = context
        self._most = most
        self._worth = worth
        self._availability = availability
        self._held: dict[int, Delivery] = {}
        self._blocks: dict[int, Block] = {}
        self._in_blocks = 0
        self.settling: Sequence[Decision] = ()  # if one of these is lost, its settlement will say so

    def __len__(self) -> int:
        return len(self._held) + self._in_blocks

    def add(self, deliveries: Sequence[Delivery]) -> None:
        self._held.update(zip(map(id, deliveries), deliveries, strict=True))

    def drop(self, deliveries: Iterable[Delivery]) -> None:
        """Forget what is settled, or not ours to settle any more; wakes whoever waits for capacity."""
        held = self._held
        for delivery in deliveries:
            held.pop(id(delivery), None)
        self.changed.set()

    def add_block(self, block: Block) -> None:
        self._blocks[id(block)] = block
        self._in_blocks += len(block)

    def drop_block(self, block: Block) -> None:
        """As `drop`."""
        if self._blocks.pop(id(block), None) is not None:
            self._in_blocks -= len(block)
            self.changed.set()

    def join(self, block: Block, other: Block) -> None:
        """The other one becomes a part of the first."""
        del self._blocks[id(other)]
        block.join(other)

    def split(self, block: Block, number: int) -> Block:
        """Keep so many in the block; returns the others."""
        rest = block.split(number)
        self._blocks[id(rest)] = rest
        return rest

    def open(self, block: Block) -> list[Delivery]:
        """What is in the block, each by itself from now on."""
        deliveries = block.deliveries()
        self.drop_block(block)
        self.add(deliveries)
        return deliveries

    async def capacity(self) -> int:
        """How many more may be taken; waits until it is worth a fetch."""
        await self.until_at_most(self._most - self._worth)
        return self._most - len(self)

    async def until_at_most(self, number: int) -> None:
        """Wait until no more than so many are held."""
        while len(self) > number:
            self.changed.clear()
            await self.changed.wait()

    async def renew(self) -> None:
        """Keep the leases of what is held for as long as it is held; runs until it is cancelled."""
        pause = self._context.lease.total_seconds() / 3
        while True:
            await self._context.clock.sleep(pause)
            if not self:
                continue
            inside = [delivery for block in self._blocks.values() for delivery in block.deliveries()]
            try:
                lost = await self._context.transport.extend([*self._held.values(), *inside])
            except Unavailable as error:
                self._availability.down(error, pause)
                continue
            self._availability.up()
            self.let_go(self._not_settled(lost))

    def _not_settled(self, lost: Sequence[Delivery]) -> Sequence[Delivery]:
        """Those that are held still, and not about to be settled: the broker may have done that already."""
        if not lost:
            return ()
        settling = {id(decision.delivery) for decision in self.settling}
        return [delivery for delivery in lost if id(delivery) in self._held and id(delivery) not in settling]

    def let_go(self, lost: Sequence[Delivery]) -> None:
        """Forget deliveries that another worker has now. Their handlers run on; their outcome is not settled by us."""
        if lost:
            names = tuple(delivery.message.id for delivery in lost)
            self._context.events.emit(LeaseLost(source=self._context.source, messages=names))
            self.drop(lost)
