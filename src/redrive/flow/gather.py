"""What a batch may be made of. Pure: no I/O, no time.

A batch holds messages that were never tried. What was tried before, by whomever, runs alone: it may be what fails a
whole batch, or takes its worker down. Where the transport keeps order, a batch may hold several messages of one lane,
in their order, and no other batch holds any of that lane before all of them are decided.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence

from redrive.flow.lanes import L, Lanes
from redrive.model import Outcome
from redrive.transports.base import Block, Delivery


def runs_alone(delivery: Delivery) -> bool:
    """Whether it was tried before. What a broker only says was delivered before, to nobody's knowledge, was not."""
    return delivery.message.attempt > 1 or (delivery.redelivered and not delivery.perhaps_untried)


class BatchLanes(Lanes[L]):
    """Lanes that are begun in batches.

    Blocks wait as they are, for as long as there is nothing but blocks: then they are in order.

    alone   whether an item shares no batch
    opened  the items of a block
    """

    def __init__(
        self,
        *,
        alone: Callable[[L], bool],
        opened: Callable[[Block], Iterable[L]] = lambda block: (),
        retries_block: bool = True,
    ) -> None:
        super().__init__(retries_block=retries_block)
        self._runs_alone = alone
        self._opened = opened
        self._blocks: deque[Block] = deque()
        self._alone: deque[L] = deque()
        self._gathered: set[Hashable] = set()  # lanes of the batch that is being gathered

    # -- blocks --------------------------------------------------------------------------------------------------

    def add_block(self, block: Block) -> None:
        """Take in what has arrived as a block."""
        self._blocks.append(block)
        if self.has_items:
            self.open_blocks()

    @property
    def has_items(self) -> bool:
        """Whether there is something else than blocks."""
        return bool(self._ready or self._busy or self._alone)

    def next_block(self) -> Block | None:
        """The next block, if there is nothing but blocks."""
        return self._blocks.popleft() if self._blocks else None

    def put_first(self, block: Block) -> None:
        """Put back what is left of a block."""
        self._blocks.appendleft(block)

    def open_blocks(self) -> None:
        """From now on everything is looked at one by one."""
        while self._blocks:
            super().add(self._opened(self._blocks.popleft()))

    def enter(self, items: Iterable[L]) -> None:
        """Items of a block that is gathered, or has begun, as a whole: they have their lanes. Nothing else is begun."""
        self._gathered.clear()
        self._gathered.update(item.lane for item in items if item.lane is not None)
        self._busy.update(dict.fromkeys(self._gathered))
        self.open_blocks()

    def add(self, items: Iterable[L]) -> None:
        if arrived := list(items):
            self.open_blocks()
            super().add(arrived)

    def is_next(self, item: L, arrived: Sequence[L]) -> bool:
        self.open_blocks()
        return super().is_next(item, arrived)

    # -- items ---------------------------------------------------------------------------------------------------

    def next_alone(self) -> L | None:
        """The next item that shares no batch; it has its lane."""
        return self._alone.popleft() if self._alone else None

    def gather(self, batch: list[L], size: int) -> None:
        """Add to the batch what may join it, up to that size; an empty one is a new one."""
        if not batch:
            self._gathered.clear()
        ready = self._ready
        while ready and len(batch) < size:
            item = ready.popleft()
            if item.lane is not None and not self._enter(item):
                continue
            (self._alone if self._runs_alone(item) else batch).append(item)

    def _enter(self, item: L) -> bool:
        """Whether its lane is free, or the batch's own and nothing waits in it; otherwise it waits behind."""
        lane, busy = item.lane, self._busy
        alone = self._runs_alone(item)
        if lane not in busy:
            busy[lane] = None
            if not alone:
                self._gathered.add(lane)
            return True
        behind = busy[lane]
        if not behind and lane in self._gathered and not alone:
            return True
        if behind is None:
            behind = busy[lane] = deque()
        behind.append(item)
        return False

    def free(self, lanes: Iterable[Hashable]) -> None:
        """All of these is simply done: what waits behind may be gathered."""
        for lane in lanes:
            if behind := self._busy.pop(lane):
                self._ready.extendleft(reversed(behind))

    def wait_behind(self, items: Iterable[L]) -> None:
        """Items of a batch that were not begun, in their order: they wait until what blocks their lane is settled."""
        for item in reversed(list(items)):
            behind = self._busy[item.lane]
            if behind is None:
                behind = self._busy[item.lane] = deque()
            behind.appendleft(item)

    def holds_up(self, outcome: Outcome) -> bool:
        """Whether what is behind has to wait for what comes of it."""
        return not self._goes_on(outcome)

    def drain(self) -> list[L]:
        self.open_blocks()
        left = [*self._alone, *super().drain()]
        self._alone.clear()
        return left
