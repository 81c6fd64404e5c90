"""A past that is true: messages are handled by the handlers that handle them now, at times that have gone by.

What is decided of each attempt, what its letter says and where it is counted comes from the code that does so for
every message. Only the clock is another one.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from random import Random

from msgspec.structs import replace

from redrive.app import Redrive
from redrive.clock import SystemClock
from redrive.flow.attempt import attempt
from redrive.flow.bury import letter_of
from redrive.flow.context import Context
from redrive.flow.deadline import Deadline, Deadlines
from redrive.flow.decide import decide
from redrive.model import Bury, Category, Failure, Letter, LetterId, Message, Retry
from redrive.stores.base import Store
from redrive.testing.past import seed_past
from redrive.transports.base import Delivery


class PastClock(SystemClock):
    """A clock that shows the time it is set to."""

    def __init__(self, at: datetime) -> None:
        super().__init__()
        self.at = at

    def now(self) -> datetime:
        return self.at


class Past:
    """Two days that have gone by: today, and yesterday to compare it with."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        self.random = Random(18)  # the same past every time
        self.clock = PastClock(now)
        self._letters: list[Letter] = []
        self._resolved: list[tuple[LetterId, datetime]] = []
        self._retried: list[tuple[datetime, str, Category, int]] = []

    def times(self, since: float, until: float, number: int, *, late: float = 1.0) -> list[datetime]:
        """So many times between so many hours ago and so many, in order; the larger `late`, the later most of them."""
        hours = (since - (since - until) * self.random.random() ** (1 / late) for _ in range(number))
        return [self.now - timedelta(hours=ago) for ago in sorted(hours, reverse=True)]

    async def handle(
        self, app: Redrive, message: Message, at: datetime, *, version: str = "", resolved: timedelta | None = None
    ) -> None:
        """Let the handler of that message have it at that time, as often as its policy says. What is buried may have
        been resolved so long after."""
        handler = app.handlers[message.source]
        context = replace(app.context(handler), clock=self.clock, version=version or app.version)
        letter = await self._fate(context, replace(message, enqueued_at=at, expires_at=None), at)
        if letter is not None:
            self.record(letter, resolved=resolved)

    def record(self, letter: Letter, *, resolved: timedelta | None = None) -> None:
        """Keep a letter of that time."""
        self._letters.append(letter)
        if resolved is not None and letter.created_at + resolved < self.now:
            self._resolved.append((letter.id, letter.created_at + resolved))

    async def _fate(self, context: Context, message: Message, at: datetime) -> Letter | None:
        """Its letter; None if it succeeded."""
        handler, failures = context.handler, tuple[Failure, ...]()
        deadline = Deadline(Deadlines(handler.timeout))
        while True:
            self.clock.at = at
            failed = await attempt(context, message, deadline)
            match decide(message, failed, handler.policy, at, self.random), failed:
                case Retry(after), Failure():
                    self._retried.append((at, message.source, failed.category, 1))
                    failures, at = (*failures, failed), at + after
                    message = replace(message, attempt=message.attempt + 1)
                case Bury(reason), Failure():
                    delivery = Delivery(message, None, failures=failures)
                    known = {"transport": handler.transport, "now": at, "rng": self.random}
                    return letter_of(delivery, failed, reason, handler.policy, **known)  # type: ignore[arg-type]
                case _:
                    return None

    async def write(self, store: Store) -> None:
        """Write all of it into a store, before its upkeep begins."""
        letters = sorted(self._letters, key=lambda letter: letter.created_at)
        await seed_past(store, letters, resolved=self._resolved, retried=self._retried)
