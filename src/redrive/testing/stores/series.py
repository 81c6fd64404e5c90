"""What a store tells of the past: counts that are right whoever asks, and whenever."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from redrive.forensics.series import (
    DAY,
    HOUR,
    MINUTE,
    STEPS,
    By,
    Count,
    Point,
    SeriesQuery,
    floored,
    minute_of,
    points_of,
    rows_of,
    told,
)
from redrive.model import UNRESOLVED, Category, Letter, Reason, State
from redrive.stores.base import Series as StoredSeries
from redrive.stores.base import Store
from redrive.testing.builders import make_failure, make_letter, make_message
from redrive.testing.clock import START
from redrive.testing.stores.backend import ALL, StoreBackend, claim

NOW = int(START.timestamp())
EVER = SeriesQuery(step=DAY, since=0, until=NOW + 400 * DAY)


class Series:
    """Counts by minute, hour and day equal a recount, summed up or not."""

    async def test_what_is_recorded_is_counted_at_the_time_it_died(self, store: Store) -> None:
        times = [START, START + timedelta(seconds=1), START + timedelta(minutes=5), START - timedelta(days=40)]
        await store.letters.record([make_letter(at=at) for at in times])
        assert await _all(store, MINUTE) == _points({START: 2, times[2]: 1, times[3]: 1}, MINUTE, "buried")
        assert await _all(store, DAY) == _points({START: 3, times[3]: 1}, DAY, "buried")

    async def test_recording_the_same_failure_twice_counts_once(self, store: Store) -> None:
        letters = [make_letter() for _ in range(3)]
        await store.letters.record([*letters, letters[0]])
        await store.letters.record(letters)
        assert _total(await store.series.read(EVER)) == {"buried": 3}

    async def test_a_letter_that_dies_again_is_counted_again_and_told_apart_if_it_was_sent_back(
        self, store: Store
    ) -> None:
        letter = make_letter()
        await store.letters.record([letter])
        await store.letters.record([_died(letter, 2)])
        assert _total(await store.series.read(EVER)) == {"buried": 2}
        await claim(store, ALL, to=State.REPLAYING, owner="me")
        await store.letters.record([_died(letter, 3)])
        assert _total(await store.series.read(EVER)) == {"buried": 3, "again": 1}

    async def test_what_only_waits_in_the_store_is_not_buried(self, store: Store) -> None:
        parked = make_letter(reason=Reason.PARKED)
        await store.letters.record([parked, make_letter(reason=Reason.BEHIND)])
        assert not await store.series.read(EVER)
        await store.letters.record([_died(parked, 2)])
        assert _total(await store.series.read(EVER)) == {"buried": 1}

    async def test_what_is_resolved_is_counted_once_by_its_source_and_category(self, store: Store) -> None:
        failure = make_failure(category=Category.NETWORK)
        letters = [make_letter(make_message(source="mail"), failure), make_letter(make_message(source="orders"))]
        await store.letters.record(letters)
        ids = [letter.id for letter in letters]
        for _ in range(2):
            await store.letters.move(ids, expect=UNRESOLVED, to=State.RESOLVED, now=START)
        by_source = replace(EVER, by=By.SOURCE, outcomes=("resolved",))
        assert _total(await store.series.read(by_source)) == {"mail": 1, "orders": 1}
        assert _total(await store.series.read(replace(by_source, by=By.CATEGORY))) == {"network": 1, "transient": 1}

    async def test_a_move_elsewhere_counts_nothing(self, store: Store) -> None:
        letter = make_letter()
        await store.letters.record([letter])
        await store.letters.move([letter.id], expect=[State.PENDING], to=State.ARCHIVED, now=START)
        assert _total(await store.series.read(EVER)) == {"buried": 1}

    async def test_pruning_letters_does_not_change_the_past(self, store: Store) -> None:
        await store.letters.record([make_letter() for _ in range(3)])
        await store.letters.prune(ALL, limit=10)
        assert _total(await store.series.read(EVER)) == {"buried": 3}

    async def test_every_question_is_answered_as_the_reference_does_before_and_after_it_is_summed_up(
        self, store: Store
    ) -> None:
        counts = _many(random.Random(3))
        middle = len(counts) // 2
        await store.series.add(counts[:middle])
        await _settled(store.series)
        await store.series.add(counts[middle:])
        await store.series.add([])
        for _ in range(2):  # the second time, nothing waits
            for query in _QUESTIONS:
                assert list(await store.series.read(query)) == told(points_of(rows_of(counts), query)), query
            await _settled(store.series)

    async def test_counts_of_a_group_are_of_its_sources(self, store: Store) -> None:
        await store.letters.record(
            [make_letter(make_message(source=name), group="g") for name in ("a", "b", "b")] + [make_letter(group="h")]
        )
        query = replace(EVER, by=By.GROUP, groups=("g", "nobody"))
        assert _total(await store.series.read(query)) == {"g": 3}
        assert _total(await store.series.read(replace(query, sources=("b",)))) == {"g": 2}

    async def test_old_buckets_are_pruned_by_their_step(self, store: Store) -> None:
        old, new = NOW - 3 * DAY, NOW
        await store.series.add([_count(old, 5), _count(new, 7)])
        await _settled(store.series)
        await store.series.prune(MINUTE, NOW - 2 * DAY)
        assert [point.number for point in await _all(store, MINUTE)] == [7]
        assert [point.number for point in await _all(store, HOUR)] == [5, 7]

    async def test_names_of_any_kind_are_counted_as_they_are(self, store: Store) -> None:
        names = ["a:b", "ärger", "per cent %", "$dollar.dot", "x" * 200, "quote'\"", "1"]
        await store.letters.record([make_letter(make_message(source=name)) for name in names])
        for _ in range(2):
            assert _total(await store.series.read(replace(EVER, by=By.SOURCE))) == dict.fromkeys(names, 1)
            await _settled(store.series)
        dollar = replace(EVER, by=By.SOURCE, sources=("$dollar.dot",))
        assert _total(await store.series.read(dollar)) == {"$dollar.dot": 1}

    async def test_many_who_count_and_sum_up_at_once_lose_nothing(self, store: Store, backend: StoreBackend) -> None:
        other = await backend.open() if store.features.shared else store
        letters = [[make_letter(group=f"g{n % 3}") for n in range(7)] for _ in range(10)]
        try:
            await asyncio.gather(
                *(place.letters.record(some) for some, place in zip(letters, [store, other] * 5, strict=True)),
                *(place.series.add([_count(NOW, 2, "retried")]) for place in [store, other] * 3),
                *(_settled(place.series) for place in [store, other] * 3),
            )
            await _settled(other.series)
            assert _total(await store.series.read(EVER)) == {"buried": 70, "retried": 12}
        finally:
            if other is not store:
                await other.aclose()


def _count(at: int, number: int, outcome: str = "buried", source: str = "orders", group: str = "") -> Count:
    return Count(floored(at, MINUTE), outcome, source, "transient", group, number)


def _many(rng: random.Random) -> list[Count]:
    return [
        Count(
            minute_of(START - timedelta(minutes=rng.randrange(100_000))),
            outcome,
            rng.choice(("mail", "orders")),
            rng.choice(("network", "transient")),
            rng.choice(("g", "h")) if outcome == "buried" else "",
            rng.randrange(1, 5),
        )
        for outcome in rng.choices(("buried", "retried", "resolved"), k=120)
    ]


_SPANS: list[dict[str, Any]] = [{"since": NOW - days * DAY, "until": NOW} for days in (1, 30, 100)]
_NARROWED: list[dict[str, Any]] = [
    {},
    {"sources": ("mail",)},
    {"sources": ("mail", "nobody"), "outcomes": ("buried", "resolved")},
    {"categories": ("network",)},
    {"sources": ()},
]
_QUESTIONS = [
    SeriesQuery(step=step, by=by, groups=("g", "x") if by is By.GROUP else (), **span, **narrowed)
    for step in STEPS
    for by in By
    for span in _SPANS[STEPS.index(step) :][:1]
    for narrowed in (_NARROWED if by is not By.GROUP else _NARROWED[:2])
]


async def _settled(series: StoredSeries) -> None:
    while await series.roll_up():
        pass


async def _all(store: Store, step: int) -> list[Point]:
    return list(await store.series.read(replace(EVER, step=step)))


def _points(numbers: dict[object, int], step: int, name: str) -> list[Point]:
    found = {floored(minute_of(at), step): number for at, number in numbers.items()}  # type: ignore[arg-type]
    return [Point(at, name, number) for at, number in sorted(found.items())]


def _total(points: Sequence[Point]) -> dict[str, int]:
    names = sorted({point.name for point in points})
    return {name: sum(point.number for point in points if point.name == name) for name in names}


def _died(letter: Letter, attempt: int) -> Letter:
    at = START + timedelta(minutes=attempt)
    failure = make_failure(attempt=attempt, at=at)
    return replace(letter, reason=Reason.ATTEMPTS, failures=(failure,), created_at=at, updated_at=at)
