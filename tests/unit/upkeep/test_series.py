"""Retries that are counted, and letters from before there were counts."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from redrive.drivers.sqlite.database import close_database, open_database
from redrive.errors import StoreUnavailable
from redrive.forensics.series import DAY, By, Kept, SeriesQuery
from redrive.model import Category
from redrive.stores.memory import MemorySeries, MemoryStore
from redrive.stores.sqlite import SqliteStore
from redrive.telemetry.events import Events, MessageRetried
from redrive.testing.builders import make_failure, make_letter, make_message
from redrive.testing.clock import START, ManualClock
from redrive.testing.past import seed_past
from redrive.upkeep.series import KIND, PAST, RetryCounter, count_past, prune_series, roll_up

NOW = int(START.timestamp())
EVER = SeriesQuery(step=DAY, since=0, until=NOW + DAY)


def retried(source: str = "orders") -> MessageRetried:
    failure = make_failure()
    return MessageRetried(
        source=source, message="m", tenant=None, correlation_id=None, failure=failure, after=timedelta()
    )


async def test_retries_are_counted_and_written_at_a_clean_end() -> None:
    store, events, clock = MemoryStore(), Events(), ManualClock()
    counter = RetryCounter(store, events, clock)
    for source in ("orders", "orders", "mail"):
        events.emit(retried(source))
    assert not await store.series.read(EVER)
    await counter.end()
    events.emit(retried())  # nobody counts any more
    await counter.write()
    found = await store.series.read(SeriesQuery(step=DAY, since=0, until=NOW + DAY, by=By.SOURCE))
    assert [(point.name, point.number) for point in found] == [("mail", 1), ("orders", 2)]


async def test_a_store_that_is_away_gets_them_later() -> None:
    class Away(MemorySeries):
        async def add(self, counts: object) -> None:
            raise StoreUnavailable("x", "away")

    store, events = MemoryStore(), Events()
    there, store.series = store.series, Away()
    counter = RetryCounter(store, events, ManualClock())
    events.emit(retried())
    with pytest.raises(StoreUnavailable):
        await counter.write()
    events.emit(retried())
    store.series = there
    await counter.write()
    assert [point.number for point in await store.series.read(EVER)] == [2]


async def _forget_counts(store: SqliteStore) -> None:
    """As if the letters were from before there were counts."""
    database = open_database(store.url)
    await database.write(lambda connection: connection.execute("DELETE FROM counted").rowcount)
    close_database(database)


async def test_letters_from_before_are_counted_once(tmp_path: Path) -> None:
    store, clock = SqliteStore(f"sqlite:///{tmp_path / 'old.db'}"), ManualClock()
    try:
        times = [START - timedelta(hours=n, minutes=30) for n in range(1200)]
        await store.letters.record([make_letter(at=at) for at in times])
        await _forget_counts(store)
        assert not await store.series.read(EVER)
        for _ in range(2):
            await clock.eventually(count_past(store, clock, Kept(days=timedelta(days=40))))
            await roll_up(store)
        found = await store.series.read(EVER)
        wanted = [at for at in times if START - timedelta(days=40) <= at < START]
        assert sum(point.number for point in found) == len(wanted)
        document = await store.documents.get(KIND, PAST)
        assert document is not None
        assert document.body["done"]
    finally:
        await store.aclose()


async def test_what_was_counted_when_it_was_recorded_is_not_counted_as_the_past() -> None:
    store, clock = MemoryStore(), ManualClock()
    await seed_past(store, [make_letter(at=START - timedelta(hours=n)) for n in range(30)])
    await clock.eventually(count_past(store, clock, Kept()))
    assert sum(point.number for point in await store.series.read(EVER)) == 30


async def test_a_seeded_past_has_what_was_resolved_and_retried() -> None:
    store, at = MemoryStore(), START - timedelta(hours=5)
    letter = make_letter(make_message(source="mail"), at=at)
    later = at + timedelta(hours=1)
    await seed_past(store, [letter], resolved=[(letter.id, later)], retried=[(at, "mail", Category.NETWORK, 7)])
    found = await store.series.read(EVER)
    assert {point.name: point.number for point in found} == {"buried": 1, "resolved": 1, "retried": 7}


async def test_buckets_go_when_they_are_older_than_they_are_kept() -> None:
    store, clock = MemoryStore(), ManualClock()
    await seed_past(store, [make_letter(at=START - timedelta(days=n)) for n in (1, 3, 70)])
    await prune_series(store, clock, Kept())
    kept = {
        step: len(await store.series.read(SeriesQuery(step=step, since=0, until=NOW + DAY))) for step in (60, 3600, DAY)
    }
    assert kept == {60: 1, 3600: 2, DAY: 3}
