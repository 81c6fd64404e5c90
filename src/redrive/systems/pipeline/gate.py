"""The gate of a module: while its breaker is not closed, streams wait here and spend no attempt."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from enum import Enum, auto
from operator import attrgetter

from redrive.clock import Clock
from redrive.errors import NotNow
from redrive.flow.breaker import Breaker, Position

_LOOK = 0.1  # seconds between two looks at the breaker, while somebody waits
_LONGEST_STAY = 5.0  # seconds that a stream stays: as long an engine needs to stop, or to see that it lost the stream
_MOST_KNOWN = 100_000


class _Answer(Enum):
    TRY = auto()  # be called: what comes of it decides for all
    AGAIN = auto()  # go back to the topic and come again


class _Waiter:
    """A stream that waits."""

    __slots__ = ("answer", "attempt", "until")

    def __init__(self, attempt: int, until: float) -> None:
        self.attempt = attempt
        self.until = until
        self.answer: asyncio.Future[_Answer] = asyncio.get_running_loop().create_future()


class Gate:
    """Lets one stream through when the breaker may be tried, the one that has spent the fewest attempts. All others
    are given back (`NotNow`) when it is closed: their partition may have moved to another engine while they waited.

    At most as many wait here as an engine works on at once; everything behind them stays on its topic.

    somebody_is_there   whether there is an instance that could be called
    """

    def __init__(self, breaker: Breaker, clock: Clock, somebody_is_there: Callable[[], Awaitable[bool]]) -> None:
        self._breaker = breaker
        self._clock = clock
        self._somebody_is_there = somebody_is_there
        self._waiters: list[_Waiter] = []
        self._since: dict[str, float] = {}  # by the id of a message: when it first came to the closed gate
        self._changed = asyncio.Event()
        self._watch: asyncio.Task[None] | None = None

    async def enter(self, id: str, attempt: int, patience: timedelta) -> bool:
        """True: this stream is to be called now. False: its patience is over. NotNow: it has to come again."""
        end = self._arrival(id) + patience.total_seconds()
        now = self._clock.elapsed()
        if await self._answer(attempt, max(now, min(end, now + _LONGEST_STAY))) is _Answer.TRY:
            return True
        if self._clock.elapsed() < end or self._breaker.position is Position.CLOSED:
            raise NotNow
        self._since.pop(id, None)
        return False

    def look(self) -> None:
        """Look at the breaker now: something became known of the module."""
        self._changed.set()

    def opened(self) -> None:
        """The breaker has closed: whoever comes to it again has all its patience."""
        self._since.clear()
        self.look()

    async def aclose(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)

    def _arrival(self, id: str) -> float:
        if len(self._since) >= _MOST_KNOWN:  # of streams that other engines have meanwhile
            self._since.pop(next(iter(self._since)))
        return self._since.setdefault(id, self._clock.elapsed())

    async def _answer(self, attempt: int, until: float) -> _Answer:
        waiter = _Waiter(attempt, until)
        self._waiters.append(waiter)
        if self._watch is None or self._watch.done():
            self._watch = asyncio.create_task(self._serve())
        try:
            return await waiter.answer
        except asyncio.CancelledError:
            if waiter.answer.done() and not waiter.answer.cancelled() and waiter.answer.result() is _Answer.TRY:
                self._breaker.forgotten()
            raise

    async def _serve(self) -> None:
        while self._waiters:
            self._changed.clear()
            await self._answer_some()
            if self._waiters:
                await self._clock.wait(self._changed, _LOOK)

    async def _answer_some(self) -> None:
        may_try = await self._somebody_is_there() and self._breaker.capacity(1) > 0
        now, closed = self._clock.elapsed(), self._breaker.position is Position.CLOSED
        self._waiters = [waiter for waiter in self._waiters if not waiter.answer.done()]  # the others were cancelled
        if may_try and not closed and self._waiters:
            first = min(self._waiters, key=attrgetter("attempt"))
            self._waiters.remove(first)
            self._breaker.sent(1)
            first.answer.set_result(_Answer.TRY)
        for waiter in self._waiters:
            if closed or waiter.until <= now:
                waiter.answer.set_result(_Answer.AGAIN)
        self._waiters = [waiter for waiter in self._waiters if not waiter.answer.done()]
