"""Deletes letters past their time to live, and the oldest over a limit; exports them first, if asked."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from redrive.clock import Clock
from redrive.forensics.query import Query
from redrive.forensics.transfer import append_lines
from redrive.model import Letter, State, Version
from redrive.stores.base import Store
from redrive.telemetry.events import Events, LettersPruned

_BATCH = 500
_FORGOTTEN_FIRST = (State.RESOLVED, State.ARCHIVED, State.SENT, State.EXHAUSTED, State.PENDING)


class Retention(Struct, frozen=True):
    """How long letters are kept, and how many. Nothing set: none is ever deleted."""

    ttl: timedelta | None = None  # beside the policies' own
    max_letters: int | None = None
    export: str | None = None  # a file of JSON lines that gets every letter before it is deleted


async def prune(store: Store, events: Events, clock: Clock, retention: Retention) -> int:
    """One round; how many letters were deleted."""
    return await _expired(store, events, clock.now(), retention) + await _over_limit(store, events, retention)


async def _expired(store: Store, events: Events, now: datetime, retention: Retention) -> int:
    total = 0
    old = [Query(expired=now, states=_FORGOTTEN_FIRST)]
    if retention.ttl is not None:
        old.append(Query(before=now - retention.ttl, states=_FORGOTTEN_FIRST, scheduled=False))
    for query in old:
        while gone := await _forget(store, query, _BATCH, retention):
            total += gone
    if total:
        events.emit(LettersPruned(count=total, why="their time to live ended"))
    return total


async def _over_limit(store: Store, events: Events, retention: Retention) -> int:
    """Delete the oldest over the limit, those that need nobody first; never one that is still to be retried."""
    if retention.max_letters is None:
        return 0
    total = 0
    for state in _FORGOTTEN_FIRST:
        while (over := await store.letters.count(Query()) - retention.max_letters) > 0:
            doomed = Query(states=(state,), scheduled=False)
            gone = await _forget(store, doomed, min(over, _BATCH), retention)
            total += gone
            if not gone:
                break
    if total:
        events.emit(LettersPruned(count=total, why=f"there were more than {retention.max_letters:,}"))
    return total


async def _forget(store: Store, query: Query, limit: int, retention: Retention) -> int:
    """Delete them, exported before: a crash between the two leaves a letter in both places, never in neither."""
    if retention.export is None:
        return len(await store.letters.prune(query, limit=limit))
    page = await store.letters.search(query, limit=limit, oldest_first=True)
    versions = {letter.id: await _older(store, letter) for letter in page.letters if letter.version}
    append_lines(Path(retention.export), page.letters, versions)
    ids = tuple(letter.id for letter in page.letters)
    # the whole query again: one that died anew since it was exported stays
    return len(await store.letters.prune(replace(query, ids=ids), limit=limit)) if ids else 0


async def _older(store: Store, letter: Letter) -> list[Version]:
    """What the message of a letter was before it was edited."""
    found = [await store.versions.get(letter.id, number) for number in range(letter.version)]
    return [version for version in found if version is not None]
