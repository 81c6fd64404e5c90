"""Counts over time: what a worker adds to them, and what upkeep does with them.

What is buried and resolved is counted by the store, with the letters. What is retried is counted here, in the process,
and written every second and at a clean end: whoever is killed loses a second of it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from msgspec import Struct, convert, to_builtins
from msgspec.structs import replace

from redrive.clock import Clock
from redrive.errors import Unavailable
from redrive.flow.tasks import is_to_end
from redrive.forensics.query import Query
from redrive.forensics.series import DAY, MINUTE, STEPS, Counted, Kept, SeriesQuery, buried, minute_of, retried
from redrive.stores.base import Cursor, Document, Store
from redrive.telemetry.events import Event, Events, MessageRetried

EVERY = timedelta(seconds=1)
_LAST_WORD = 2.0  # seconds
_MOST_KINDS = 100_000  # of a store that is away: minutes, sources and categories
KIND, PAST = "series", "past"
_PAGE = 500
_PAUSE = 0.05  # seconds between two pages: others read and write, too
_MOST_PAST = 2_000_000  # letters
_FOREVER = 1 << 40  # seconds


class RetryCounter:
    """Counts the retries of one process, and writes them down every second."""

    def __init__(self, store: Store, events: Events, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._counts: Counter[tuple[int, str, str]] = Counter()
        self._unsubscribe = events.subscribe(self._see)

    def _see(self, event: Event) -> None:
        if isinstance(event, MessageRetried):
            kind = minute_of(self._clock.now()), event.source, event.failure.category.value
            if kind in self._counts or len(self._counts) < _MOST_KINDS:
                self._counts[kind] += 1

    async def run(self) -> None:
        """Write until it is cancelled. A store that is away gets it later."""
        while not is_to_end():
            await self._clock.sleep(EVERY.total_seconds())
            with suppress(Unavailable):
                await self.write()

    async def write(self) -> None:
        """Write what was counted since the last time."""
        counts, self._counts = self._counts, Counter()
        if counts:
            try:
                await self._store.series.add(retried(counts))
            except BaseException:
                self._counts.update(counts)
                raise

    async def end(self) -> None:
        """Write the rest: the process ends cleanly."""
        self._unsubscribe()
        with suppress(Unavailable, TimeoutError):
            async with asyncio.timeout(_LAST_WORD):
                await self.write()


async def roll_up(store: Store) -> None:
    """Sum up all that was counted since the last time."""
    while await store.series.roll_up() and not is_to_end():
        pass


async def prune_series(store: Store, clock: Clock, kept: Kept) -> None:
    """Delete the buckets that are older than they are kept."""
    now = clock.now()
    for step in STEPS:
        await store.series.prune(step, int((now - kept.of(step)).timestamp()))


# -- letters from before -----------------------------------------------------------------------------------------------


class Past(Struct, frozen=True):
    """How far the letters are counted that were recorded before there were counts."""

    before: datetime  # what died from then on was counted when it was recorded
    after: Cursor | None = None  # where the next page begins
    letters: int = 0  # counted so far
    done: bool = False


async def count_past(store: Store, clock: Clock, kept: Kept) -> None:
    """Count the letters that were recorded before there were counts, the newest first, once over all processes.

    A page is taken by writing down that it is, and counted then: a crash between the two leaves its letters out.
    """
    document = await store.documents.get(KIND, PAST) or await _begin(store, clock)
    past = convert(document.body, Past)
    oldest = clock.now() - kept.days
    while not past.done and not is_to_end():
        page = await store.letters.search(Query(before=past.before), after=past.after, limit=_PAGE)
        letters = [letter for letter in page.letters if letter.created_at >= oldest]
        total = past.letters + len(letters)
        done = page.after is None or len(letters) < len(page.letters) or total >= _MOST_PAST
        new = replace(past, after=page.after, letters=total, done=done)
        if not await store.documents.put(KIND, PAST, to_builtins(new), expect=document.version):
            return  # another process does it
        await store.series.add(buried(letters))
        document, past = replace(document, version=document.version + 1), new
        if not done:
            await clock.sleep(_PAUSE)


async def _begin(store: Store, clock: Clock) -> Document:
    """Write down what is from before: all that died before the first minute that was counted, or before now."""
    first = await _first_counted(store)
    before = clock.now() if first is None else datetime.fromtimestamp(first, UTC)
    await store.documents.put(KIND, PAST, to_builtins(Past(before)), expect=0)
    document = await store.documents.get(KIND, PAST)
    assert document is not None
    return document


async def _first_counted(store: Store) -> int | None:
    asked = SeriesQuery(step=DAY, since=-_FOREVER, until=_FOREVER, outcomes=(Counted.BURIED.value,))
    days = await store.series.read(asked)
    if not days:
        return None
    day = days[0].at
    minutes = await store.series.read(replace(asked, step=MINUTE, since=day, until=day + DAY))
    return minutes[0].at if minutes else day
