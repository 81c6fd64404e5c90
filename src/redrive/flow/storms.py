"""The storm guard of one source in one worker, and the document of the store by which all workers know of a storm.

The guard stands at three places of a consumer: nothing is received while there is a storm, but for the one message of
a probe; what would be buried beyond the rule is given back; and what was finished is counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from redrive.clock import Clock
from redrive.flow.storm import SHORTEST, Finished, StormState, Window, may_bury
from redrive.model import letter_id
from redrive.policy import Storm
from redrive.stores.base import Document, Documents
from redrive.untrusted import UNREADABLE

KIND = "storm"
_MOST = 1000
_TOLD_EVERY = 5.0  # seconds between two heartbeats
_OLD_NEWS = 15.0  # seconds after a storm in which other workers may still tell what they counted in it


async def _nobody_else() -> Finished:
    return Finished()


class StormGuard:
    """Whether a source is in a storm, as one worker knows it.

    others   asks what the other workers of the source have finished within the same time
    """

    def __init__(
        self,
        documents: Documents,
        clock: Clock,
        *,
        transport: str,
        source: str,
        worker: str,
        rule: Storm,
    ) -> None:
        self.rule = rule
        self.transport = transport
        self.source = source
        self.window = Window(rule.over, clock.elapsed)
        self.is_on = False
        self.is_probing = False  # we are the one who takes a message at a time
        self.changed = asyncio.Event()  # a storm has begun, or something may be received: look
        self.others: Callable[[], Awaitable[Finished]] = _nobody_else
        self.outcome: asyncio.Future[bool | None] | None = None  # of the probe
        self._taken = False  # the message of the probe is received
        self._documents = documents
        self._clock = clock
        self._worker = worker
        self._others = Finished()
        self._asked_at: float | None = None  # for that
        self._news_from = 0.0  # what others say before is of the last storm

    # -- at the consumer -----------------------------------------------------------------------------------------

    async def limit(self, limit: int) -> int:
        """How many may be received; waits while none may."""
        while self.is_on and (not self.is_probing or self._taken):
            self.changed.clear()
            await self.changed.wait()
        return 1 if self.is_on else limit

    def received(self, number: int) -> bool:
        """Whether what was received may be begun. Otherwise it goes back: a storm has begun meanwhile."""
        if not self.is_on:
            return True
        if self.is_probing and not self._taken and number <= 1:
            self._taken = bool(number)
            return True
        return False

    async def allowance(self, done: int, dead: int) -> int:
        """How many of a batch may be buried. Beyond the rule there is a storm, for all workers. Raises
        StoreUnavailable."""
        if self.is_on:
            return dead if self.is_probing else 0
        if not dead:
            return 0
        await self._ask_others(_TOLD_EVERY)
        if (allowed := self._allowed(done, dead)) == dead:
            return dead
        await self._ask_others(0.0)
        if (allowed := self._allowed(done, dead)) == dead:
            return dead
        await self._begin(self.window.total().and_(self._others).and_(Finished(done, allowed + 1)))
        return allowed

    def settled(self, done: int, retried: int, buried: int) -> None:
        """Count what was carried out."""
        self.window.add(done, buried)
        if self.outcome is not None and self._taken and not self.outcome.done():
            self.outcome.set_result(True if done else False if retried or buried else None)

    def _allowed(self, done: int, dead: int) -> int:
        finished = self.window.total().and_(self._others).and_(Finished(done, 0))
        return may_bury(self.rule, finished, dead)

    async def _ask_others(self, age: float) -> None:
        """Know what the others have finished, not longer ago than that. Only who buries something asks."""
        now = self._clock.elapsed()
        if self._asked_at is None or now - self._asked_at >= age:
            self._others = Finished() if now < self._news_from else await self.others()
            self._asked_at = now

    async def _begin(self, finished: Finished) -> None:
        now = self._clock.now()
        state = StormState(
            transport=self.transport,
            source=self.source,
            by=self._worker,
            at=now,
            finished=finished.all,
            buried=finished.buried,
            over=self.rule.over,
            probe_at=now + SHORTEST,
        )
        await self._documents.put(KIND, self.name, body_of(state), expect=0)  # another may have been first
        self.begun()

    @property
    def name(self) -> str:
        """Of the document: short and plain, whatever the source is called."""
        return letter_id(self.transport, self.source)

    # -- at the watch (upkeep/storming.py) -----------------------------------------------------------------------

    def begun(self) -> None:
        self.is_on = True
        self.changed.set()

    def ended(self) -> None:
        """It is over: what was counted in it says nothing of what comes."""
        self.is_on = self.is_probing = self._taken = False
        self.window.clear()
        self._others = Finished()
        self._news_from = self._clock.elapsed() + _OLD_NEWS
        self.changed.set()

    def probe(self) -> asyncio.Future[bool | None]:
        """Let one message be received; what comes of it."""
        self.outcome = asyncio.get_running_loop().create_future()
        self.is_probing, self._taken = True, False
        self.changed.set()
        return self.outcome

    def end_probe(self) -> None:
        self.is_probing = False
        self.outcome = None


async def storms(documents: Documents, *, transport: str | None = None) -> list[tuple[Document, StormState]]:
    """The storms that there are: on that transport, or on all."""
    found = [(document, read(document)) for document in await documents.list(KIND, limit=_MOST)]
    return [(document, state) for document, state in found if state and transport in (None, state.transport)]


def read(document: Document) -> StormState | None:
    try:
        return msgspec.convert(document.body, StormState)
    except UNREADABLE:
        return None


def body_of(state: StormState) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.to_builtins(state)
    return body


async def end_storm(documents: Documents, transport: str, source: str) -> StormState | None:
    """Somebody ends it, whoever probes; returns it, or None if there was none."""
    name = letter_id(transport, source)
    document = await documents.get(KIND, name)
    was_there = document is not None and await documents.delete(KIND, name)
    return read(document) if document is not None and was_there else None
