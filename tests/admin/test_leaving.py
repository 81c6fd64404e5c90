"""A search whose client has left is over in the store, and a letter is shown while searches run."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import uvicorn
from litestar import Router, get
from litestar.di import NamedDependency

from redrive.access.actors import Role
from redrive.access.tokens import Tokens
from redrive.admin.api import create_api
from redrive.admin.server import Uvicorn, config_of, listen
from redrive.drivers.sqlite.database import Database, close_database, open_database
from redrive.errors import Unavailable
from redrive.service import Service
from tests.admin.conftest import Shop

ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"


class Search:
    """A search that never ends by itself, and signals that it began and that it is over."""

    def __init__(self) -> None:
        self.began, self.over = threading.Event(), threading.Event()

    def __call__(self, connection: sqlite3.Connection) -> int:
        self.began.set()
        try:
            return int(connection.execute(ENDLESS).fetchone()[0])
        finally:
            self.over.set()

    async def signal(self, event: threading.Event) -> None:
        assert await asyncio.to_thread(event.wait, 60)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = open_database(f"sqlite:///{tmp_path / 'redrive.db'}")
    yield opened
    close_database(opened)


async def test_what_nobody_waits_for_any_more_is_interrupted(database: Database) -> None:
    searches = [Search(), Search()]  # as many as there are threads
    asked = [asyncio.create_task(database.read(search, is_search=True)) for search in searches]
    for search in searches:
        await search.signal(search.began)
    third = Search()
    waiting = asyncio.create_task(database.read(third, is_search=True))
    assert await database.read(lambda connection: connection.execute("SELECT 7").fetchone()[0]) == 7
    for task in (waiting, *asked):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    for search in searches:
        await search.signal(search.over)
    assert await database.read(lambda connection: 8, is_search=True) == 8
    assert not third.began.is_set()  # what had not begun does not begin


async def test_giving_up_one_read_leaves_the_next_on_its_connection_alone(database: Database) -> None:
    for _ in range(20):
        task = asyncio.create_task(database.read(lambda connection: connection.execute(ENDLESS).fetchone()))
        await asyncio.sleep(0)
        task.cancel()
        rows = await database.read(lambda connection: connection.execute("SELECT 1 UNION SELECT 2").fetchall())
        assert rows == [(1,), (2,)]


async def test_a_read_that_fails_by_itself_is_still_told(database: Database) -> None:
    with pytest.raises(Unavailable, match="no such table"):
        await database.read(lambda connection: connection.execute("SELECT * FROM nowhere"))


async def test_a_search_ends_with_its_client_and_letters_are_shown_meanwhile(
    shop: Shop, buried: list[str], request: pytest.FixtureRequest
) -> None:
    database = open_database(shop.app.settings.store)  # the one that the store has open
    request.addfinalizer(lambda: close_database(database))
    searches = [Search(), Search()]
    rest = list(searches)

    @get("/slow", role=Role.VIEWER)
    async def slow(service: NamedDependency[Service]) -> int:
        found: int = await database.read(rest.pop(), is_search=True)
        return found

    tokens = Tokens(shop.app.store.documents, shop.app.clock)
    headers = {"Authorization": f"Bearer {(await tokens.create('me', Role.VIEWER))[1]}"}
    api = create_api(Service(shop.app), tokens=tokens, routers=[Router("/api", route_handlers=[slow])])
    socket = listen("127.0.0.1", 0)
    server: uvicorn.Server = Uvicorn(config_of(api, shop.app.settings.admin))
    serving = asyncio.create_task(server.serve([socket]))
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{socket.getsockname()[1]}", timeout=60) as http:
            asked = [asyncio.create_task(http.get("/api/slow", headers=headers)) for _ in searches]
            for search in searches:
                await search.signal(search.began)
            shown = await http.get(f"/api/letters/{buried[0]}", headers=headers)
            assert shown.status_code == 200
            assert (await http.get("/api/letters?states=pending", headers=headers)).json()["letters"]
            for task in asked:
                task.cancel()  # the connection is closed
            await asyncio.gather(*asked, return_exceptions=True)
            for search in searches:
                await search.signal(search.over)
            assert (await http.get("/api/letters?text=price", headers=headers)).status_code == 200
    finally:
        server.should_exit = True
        await serving
