"""Reading all that a query selects, a page at a time."""

from __future__ import annotations

from datetime import timedelta

import pytest

from redrive.forensics.query import Query
from redrive.model import State
from redrive.stores.memory import MemoryStore
from redrive.stores.paging import every_letter, every_page
from redrive.testing.builders import make_letter, make_message
from redrive.testing.clock import START


@pytest.fixture
async def store() -> MemoryStore:
    store = MemoryStore()
    await store.letters.record(
        [make_letter(make_message(id=f"m-{number}"), at=START + timedelta(minutes=number)) for number in range(7)]
    )
    return store


async def test_every_letter_comes_once_newest_first_if_not_asked_otherwise(store: MemoryStore) -> None:
    newest = [letter.message.id async for letter in every_letter(store.letters, Query(), size=3)]
    oldest = [letter.message.id async for letter in every_letter(store.letters, Query(), size=3, oldest_first=True)]
    assert newest == [f"m-{number}" for number in reversed(range(7))]
    assert oldest == newest[::-1]


@pytest.mark.parametrize(("limit", "sizes"), [(None, [3, 3, 1]), (0, []), (2, [2]), (4, [3, 1]), (6, [3, 3])])
async def test_no_more_than_the_limit_is_read(store: MemoryStore, limit: int | None, sizes: list[int]) -> None:
    assert [len(page) async for page in every_page(store.letters, Query(), size=3, limit=limit)] == sizes


async def test_where_nothing_is_selected_there_is_no_page(store: MemoryStore) -> None:
    assert [page async for page in every_page(store.letters, Query(sources=("elsewhere",)))] == []


async def test_whoever_moves_or_deletes_what_it_reads_misses_nothing(store: MemoryStore) -> None:
    pending, seen = Query(states=(State.PENDING,)), []
    async for page in every_page(store.letters, pending, size=2, oldest_first=True):
        ids = [letter.id for letter in page]
        seen += [letter.message.id for letter in page]
        if len(seen) < 4:
            await store.letters.move(ids, expect=[State.PENDING], to=State.ARCHIVED, now=START)
        else:
            await store.letters.prune(Query(ids=tuple(ids)), limit=2)
    assert seen == [f"m-{number}" for number in range(7)]
    assert await store.letters.count(pending) == 0
