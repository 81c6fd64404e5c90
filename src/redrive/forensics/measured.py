"""What a scrape shows of store and transports, beside what its process has counted itself."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec import Struct

from redrive.forensics.query import Query
from redrive.forensics.stats import Stats
from redrive.model import State
from redrive.stores.base import Letters

if TYPE_CHECKING:
    from redrive.flow.replay import Replays

_AT_REST = (State.PENDING, State.EXHAUSTED)
_MOST = 1000
RUNNING, WAITING, ABANDONED = "running", "waiting", "abandoned"
STANDINGS = (RUNNING, WAITING, ABANDONED)
"""Of a replay not at its end: somebody sends it; its target takes nothing now; it is due, and nobody runs it."""


class Oldest(Struct, frozen=True):
    """The open letter that waits for the longest time."""

    source: str
    at: datetime  # when it was buried, the last time


class Measured(Struct, frozen=True):
    """All of it."""

    stats: Stats
    up: dict[str, bool]  # `store`, `transports.default` …: whether it answered
    oldest: Oldest | None = None
    replays: dict[str, int] = {}  # those that are not at their end, by STANDINGS; empty: not known


async def oldest_open(letters: Letters) -> Oldest | None:
    """The open letter, pending or exhausted, that was buried first."""
    page = await letters.search(Query(states=_AT_REST), limit=1, oldest_first=True)
    return Oldest(page.letters[0].message.source, page.letters[0].created_at) if page.letters else None


async def under_way(replays: Replays, now: datetime) -> dict[str, int]:
    """How many replays are not at their end, by what keeps them."""
    found: Counter[str] = Counter(dict.fromkeys(STANDINGS, 0))
    for replay in await replays.list(_MOST):
        if replay.state == RUNNING:
            is_run = replay.runner_until is not None and replay.runner_until > now
            found[RUNNING if is_run else ABANDONED if replay.is_due(now) else WAITING] += 1
    return dict(found)
