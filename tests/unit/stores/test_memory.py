"""How much a store in memory looks at to answer: not all it has."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from redrive.forensics.query import Query, matches
from redrive.forensics.searchable import Searchable
from redrive.model import Letter, State
from redrive.stores import memory
from redrive.stores.memory import MemoryStore
from redrive.testing.builders import make_letter, make_message
from redrive.testing.clock import START

MANY, DUE = 2_000, 10
HOUR = timedelta(hours=1)


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[Letter]:
    seen: list[Letter] = []

    def counted(query: Query, letter: Letter, searchable: Searchable) -> bool:
        seen.append(letter)
        return matches(query, letter, searchable)

    monkeypatch.setattr(memory, "matches", counted)
    return seen


async def _store() -> MemoryStore:
    """Many that wait for later, a few that are due."""
    store = MemoryStore()
    for number in range(MANY):
        due = START if number % (MANY // DUE) == 0 else START + HOUR
        message = make_message(id=f"m-{number}", priority=number % 3)
        await store.letters.record([make_letter(message, next_retry_at=due)])
    return store


async def _claim(store: MemoryStore, **options: Any) -> list[Letter]:
    given = {"to": State.RETRYING, "owner": "me", "now": START, "until": START + HOUR, "limit": MANY, **options}
    query = Query(states=(State.PENDING,), due=given.pop("due", START))
    return list(await store.letters.claim(query, **given))


async def test_a_claim_looks_only_at_what_is_due(looked_at: list[Letter]) -> None:
    store = await _store()
    assert len(await _claim(store, limit=3)) == 3
    assert len(looked_at) == 3
    assert len(await _claim(store)) == DUE - 3
    assert len(looked_at) == DUE
    assert await _claim(store) == []
    assert len(looked_at) == DUE


async def test_what_is_given_back_is_claimed_again_and_what_changed_is_not() -> None:
    store = await _store()
    first, second, *_ = await _claim(store)
    await store.letters.move([first.id], expect=[State.RETRYING], to=State.PENDING, now=START)
    await store.letters.move([second.id], expect=[State.RETRYING], to=State.ARCHIVED, now=START)
    assert [one.id for one in await _claim(store)] == [first.id]


async def test_a_clock_that_went_back_claims_nothing_too_early() -> None:
    store = await _store()
    assert await _claim(store, limit=0, due=START + HOUR) == []  # by now it has seen that all of them were due
    assert len(await _claim(store, due=START)) == DUE
    assert await _claim(store, due=START) == []
    assert len(await _claim(store, due=START + HOUR)) == MANY - DUE


async def test_who_looks_for_those_on_their_way_looks_at_no_others(looked_at: list[Letter]) -> None:
    store = await _store()
    await _claim(store)
    looked_at.clear()
    page = await store.letters.search(Query(states=(State.RETRYING, State.REPLAYING)))
    assert (len(page.letters), len(looked_at)) == (DUE, DUE)


async def test_a_page_looks_at_no_more_than_it_shows(looked_at: list[Letter]) -> None:
    store = await _store()
    page = await store.letters.search(Query(), limit=50)
    following = await store.letters.search(Query(), limit=50, after=page.after)
    assert [one.message.id for one in page.letters + following.letters] == [
        f"m-{number}" for number in range(MANY - 1, MANY - 101, -1)
    ]
    assert len(looked_at) == 100
