"""A past for demonstrations and tests: letters and counts that lie back in time, written by the usual code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from redrive.forensics.series import Count, Counted, minute_of
from redrive.model import UNRESOLVED, Category, Letter, LetterId, State
from redrive.stores.base import Store


async def seed_past(
    store: Store,
    letters: Sequence[Letter] = (),
    *,
    resolved: Iterable[tuple[LetterId, datetime]] = (),
    retried: Iterable[tuple[datetime, str, Category, int]] = (),
) -> None:
    """Give a store a past, before its upkeep begins.

    letters    recorded as they are: each is counted as buried when it was created (`make_letter(at=…)` makes one)
    resolved   which of them succeeded after all, and when
    retried    when, of which source and category, and how many attempts failed that were followed by another
    """
    await store.letters.record(letters)
    by_time: dict[datetime, list[LetterId]] = {}
    for id, at in resolved:
        by_time.setdefault(at, []).append(id)
    for at, ids in sorted(by_time.items()):
        await store.letters.move(ids, expect=UNRESOLVED, to=State.RESOLVED, now=at)
    kinds = [
        Count(minute_of(at), Counted.RETRIED.value, source, category.value, "", number)
        for at, source, category, number in retried
    ]
    await store.series.add(kinds)
    while await store.series.roll_up():
        pass
