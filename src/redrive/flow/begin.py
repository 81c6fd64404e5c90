"""Counts attempts when they begin, where the transport can: what a worker had only fetched when it died is not counted.

Counting costs a round trip, so it is done for as many messages at once as are about to begin: one for each task of the
pool that is idle, or as many as are handled within a moment. Handlers that take no time at all are counted when their
messages are received, which costs nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Any

from redrive.flow.context import Context
from redrive.flow.decision import Decision
from redrive.flow.leases import Leases
from redrive.transports.base import CountsBegun, Delivery

_SAMPLE = 16  # attempts of a batch that are looked at
_MOMENT = 0.002  # seconds: what begins within it begins together
_NO_TIME = 0.000_05  # seconds: a handler that is faster than this waits for nothing outside its process


class Beginning:
    """What is received and not counted yet."""

    def __init__(self, context: Context, leases: Leases) -> None:
        self._counts = isinstance(context.transport, CountsBegun)
        self._transport: Any = context.transport  # one that counts, where it is asked to
        self._source = context.source
        self._leases = leases
        self._is_rated = context.handler.limits.rate is not None
        self._uncounted: deque[Delivery] = deque()
        self._seconds = _MOMENT  # that an attempt takes
        self._is_counting = False

    def __len__(self) -> int:
        return len(self._uncounted)

    @property
    def is_ready(self) -> bool:
        """Whether somebody may call `count` now."""
        return bool(self._uncounted) and not self._is_counting

    def add(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        """Take in what is received; returns what is counted already, and may begin."""
        if deliveries and deliveries[0].is_counted:
            return deliveries
        self._uncounted.extend(deliveries)
        return ()

    async def count(self, idle: int) -> Sequence[Delivery]:
        """Count the next ones, durably; returns those that may begin. Raises TransportUnavailable: none was taken."""
        number = max(1, idle, int(_MOMENT / self._seconds))
        some = list(islice(self._uncounted, number))
        self._is_counting = True
        try:
            lost = await self._transport.begin(some)
        finally:
            self._is_counting = False
        taken = [self._uncounted.popleft() for _ in some[: len(self._uncounted)]]
        if not lost:
            return taken
        self._leases.let_go(lost)
        gone = set(map(id, lost))
        return [delivery for delivery in taken if id(delivery) not in gone]

    def drain(self) -> list[Delivery]:
        """Everything that is not counted."""
        left = list(self._uncounted)
        self._uncounted.clear()
        return left

    def observe(self, decisions: Sequence[Decision]) -> None:
        """Learn from a batch how long attempts take."""
        if not self._counts:
            return
        some = decisions[:: 1 + len(decisions) // _SAMPLE]
        took = [decision.seconds for decision in some if decision.seconds]
        if not took:
            return
        mean = sum(took) / len(took)
        # what has become slow is slow at once; that something is fast has to show several times
        self._seconds = max(1e-6, mean, (self._seconds + 3 * mean) / 4)
        self._transport.begin_at_once(self._source, self._seconds < _NO_TIME and not self._is_rated)
