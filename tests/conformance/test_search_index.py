"""The index of texts on every store that has one: past its bounds, beside other processes, and after a kill."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from redrive.forensics.query import Query, matches
from redrive.forensics.redact import Redactor
from redrive.forensics.searchable import Searchable
from redrive.model import Edit, Letter, Revision
from redrive.registry import open_store
from redrive.stores.base import IndexesTexts, Store
from redrive.stores.mongodb import MongoStore
from redrive.stores.mongodb import texts as mongodb_texts
from redrive.stores.opensearch import OpenSearchStore
from redrive.stores.opensearch import texts as opensearch_texts
from redrive.stores.postgresql import PostgresStore
from redrive.stores.postgresql import texts as postgresql_texts
from redrive.stores.sqlite import SqliteStore
from redrive.stores.sqlite import texts as sqlite_texts
from redrive.testing.builders import make_failure, make_letter, make_message
from redrive.testing.clock import START
from redrive.testing.stores.backend import MINUTE, every_page
from tests.conformance.opensearch_indexes import OpenSearchBackend
from tests.servers.mongodb import MongoDB

Open = Callable[[], Any]


@pytest.fixture(params=["sqlite", "postgresql", "mongodb", "opensearch"])
async def opened(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Open]:
    """Opens the same database as often as it is called, each time as another process would."""
    stores: list[Store] = []
    backend: OpenSearchBackend | None = None
    if request.param == "opensearch":
        backend = OpenSearchBackend(request.getfixturevalue("opensearch_server"), "texts")
    url = backend.url if backend else _url(request, tmp_path)

    def open_another() -> Store:
        stores.append(open_store(url))
        return stores[-1]

    yield open_another
    for store in stores:
        await store.aclose()
    if backend is not None:
        await backend.aclose()


def _url(request: pytest.FixtureRequest, place: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{place / 'letters.db'}"
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgresql_url"))
    server: MongoDB = request.getfixturevalue("mongodb_server")
    address, _, options = server.url.partition("/?")
    return f"{address.rstrip('/')}/texts?letters={uuid4().hex[:12]}&{options}".rstrip("&")


def _letters(count: int) -> list[Letter]:
    return [
        make_letter(
            make_message(id=f"m{number}", source=f"s{number % 3}", body=f"city {number % 2}, order {number}".encode()),
            make_failure(type=f"shop.Error{number % 4}"),
            at=START + number * MINUTE,
        )
        for number in range(count)
    ]


@pytest.fixture
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a few letters were many."""
    for texts in (sqlite_texts, postgresql_texts, mongodb_texts):
        monkeypatch.setattr(texts, "_FEW", 2)
        monkeypatch.setattr(texts, "_WINDOWS", (3, 4))
        monkeypatch.setattr(texts, "_TOGETHER", 5)
    monkeypatch.setattr(opensearch_texts, "_LOOKED_AT", 7)
    monkeypatch.setattr(opensearch_texts, "_TOGETHER", 5)


@pytest.mark.usefixtures("small_bounds")
async def test_a_text_that_many_letters_have_is_found_page_by_page(opened: Open) -> None:
    store = opened()
    letters = _letters(40)
    await store.letters.record(letters)
    queries = [
        Query(text="city 1"),
        Query(text="order 3"),
        Query(text="1"),
        Query(text="city 1", sources=("s2",)),
        Query(text="city 1", error_type="Error0"),  # none of both: many have the text, and many the error
        Query(text="city", message_ids=("m3", "m4")),
    ]
    for query in queries:
        wanted = [letter for letter in letters if matches(query, letter)]
        assert await every_page(store, query, oldest_first=True, limit=2) == wanted, query
        assert await every_page(store, query, oldest_first=False, limit=3) == wanted[::-1], query
        assert await store.letters.count(query) == len(wanted), query
        assert sum(group.count for group in await store.letters.groups(query)) == len(wanted), query
        assert sum(tally.count for tally in await store.letters.tallies(query)) == len(wanted), query
        assert await store.ledger.freeze(str(query), query, now=START) == len(wanted), query


async def test_what_another_process_indexes_meanwhile_is_right(opened: Open) -> None:
    first, second = opened(), opened()
    letters = _letters(200)
    await asyncio.gather(*(first.letters.record(letters[at : at + 20]) for at in range(0, 200, 20)))
    found = await asyncio.gather(*(store.letters.count(Query(text="city 1")) for store in (first, second) * 3))
    assert found == [100] * 6
    assert await first.index_texts(0) == 0


async def test_a_letter_that_is_edited_while_its_text_is_made(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text of what it was is not kept: it is made again."""
    store, other = opened(), opened()
    [letter] = _letters(1)
    await store.letters.record([letter])
    edit = Revision(letter.id, 0, b"Porto", (), Edit(by="ada", at=START))
    await _between(store, monkeypatch, lambda: other.versions.edit([edit]))
    assert await store.letters.count(Query(text="city 0")) == 0
    assert await other.letters.count(Query(text="porto")) == 1


async def test_a_letter_that_is_pruned_while_its_text_is_made(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    store, other = opened(), opened()
    await store.letters.record(_letters(1))
    await _between(store, monkeypatch, lambda: other.letters.prune(Query(), limit=9))
    assert await store.letters.count(Query(text="city")) == 0
    assert await store.index_texts(9) == 0
    assert await _kept(store) == 0


async def test_who_is_killed_while_it_makes_texts_loses_none(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    store, other = opened(), opened()
    await store.letters.record(_letters(3))

    async def killed() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await _between(store, monkeypatch, killed)
    assert await other.letters.count(Query(text="city")) == 3


async def test_who_has_other_rules_writes_none_of_its_texts_any_more(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process has been told of a new secret, the other still makes texts by the rules of before."""
    store, other = opened(), opened()
    store.search_as(Searchable(rules="before"))
    await store.letters.record([make_letter(make_message(body=b'{"note": "zeppelin"}'))])
    other.search_as(Searchable(Redactor(keys=("note",)), "now"))
    await _between(store, monkeypatch, lambda: other.index_texts(9))
    assert await other.letters.count(Query(text="zeppelin")) == 0
    assert await other.letters.count(Query(text="redacted")) == 1


async def test_a_database_whose_role_may_not_make_the_extension(postgresql_url: str) -> None:
    """It is searched without the index, the doctor says so, and upkeep makes it when it can be had."""
    async with await psycopg.AsyncConnection.connect(postgresql_url, autocommit=True) as owner:
        await owner.execute("DROP ROLE IF EXISTS plain_role")
        await owner.execute("CREATE ROLE plain_role LOGIN")
        await owner.execute("CREATE SCHEMA plain AUTHORIZATION plain_role")
        store = PostgresStore(_as_role(postgresql_url, "plain_role"))
        await store.letters.record(_letters(10))
        assert await store.letters.count(Query(text="city 1")) == 5
        assert any("no index of texts" in doubt.text for doubt in await store.doubts())
        await owner.execute("CREATE EXTENSION pg_trgm")
        assert isinstance(store, IndexesTexts)
        await store.index_texts(10)
        assert not any("no index of texts" in doubt.text for doubt in await store.doubts())
        assert await store.letters.count(Query(text="city 1")) == 5
        await store.aclose()
        await owner.execute("DROP SCHEMA plain CASCADE")
        await owner.execute("DROP ROLE plain_role")


async def _kept(store: Any) -> int:
    """How many texts there are, of letters or of none."""
    if isinstance(store, MongoStore):
        return await store._access.texts.count_documents({})
    if isinstance(store, OpenSearchStore):
        return await store.letters.count_of({"exists": {"field": "redrive.shown_by"}})
    if isinstance(store, SqliteStore):
        statement = "SELECT count(*) FROM searchable"
        found = await store._access.read(lambda connection: connection.execute(statement).fetchall())
    else:
        found = await store._access.fetch(f"SELECT count(*) FROM {store._access.schema}.texts", {})
    return int(found[0][0])


def _as_role(url: str, role: str) -> str:
    scheme, _, rest = url.partition("://")
    host = rest.partition("@")[2] or rest
    return f"{scheme}://{role}@{host}{'&' if '?' in host else '?'}schema=plain"


async def _between(store: Any, monkeypatch: pytest.MonkeyPatch, happens: Callable[[], Awaitable[Any]]) -> None:
    """Index, and let something happen after a text was made and before it is written."""
    done = False

    def then(work: Callable[..., Awaitable[Any]], *, first: bool) -> Callable[..., Awaitable[Any]]:
        async def later(*given: Any) -> Any:
            nonlocal done
            is_now, done = not done, True
            if is_now and first:
                await happens()
            found = await work(*given)
            if is_now and not first:
                await happens()
            return found

        return later

    texts = store.letters.texts
    await texts.index(0)
    with monkeypatch.context() as patched:
        if isinstance(store, SqliteStore):
            patched.setattr(store._access, "write", then(store._access.write, first=True))
        else:
            patched.setattr(asyncio, "to_thread", then(asyncio.to_thread, first=False))
        await texts.index(9)
    assert done
