"""The stream of changes on a real server: resumed, scoped, ended, bounded, and no hindrance to stopping."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from msgspec.structs import replace

from redrive import Redrive
from redrive.access.actors import Role, Scope
from redrive.access.tokens import Tokens
from redrive.admin.server import Server
from redrive.config.settings import Admin, Settings
from redrive.flow.replay_document import KIND as REPLAYS
from redrive.forensics.query import Query
from redrive.service import Service
from redrive.testing.builders import make_failure, make_letter, make_message
from tests.actors import acting
from tests.admin.test_stalling import SOON, answered, opened


class Stream:
    """One open stream, read event by event."""

    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer
        self.lines = answer.aiter_lines()
        self.last = ""

    async def next(self) -> tuple[str, dict[str, Any]]:
        name = ""
        async with asyncio.timeout(60):
            async for line in self.lines:
                kind, _, text = line.partition(": ")
                if kind == "id":
                    self.last = text
                elif kind == "event":
                    name = text
                elif kind == "data":
                    return name, msgspec.json.decode(text)
        raise AssertionError("it ended")

    async def until(self, wanted: str, *what: str) -> dict[str, Any]:
        """The next event of that name; of `changed`, when all of these were named."""
        missing = set(what)
        while True:
            name, data = await self.next()
            missing -= set(data.get("what", ()))
            if name == wanted and not missing:
                return data


class Served:
    def __init__(self, server: Server, place: Path) -> None:
        self.server = server
        self.place = place
        self.app = server.app
        self.tokens = Tokens(server.app.store.documents, server.app.clock)

    @asynccontextmanager
    async def stream(self, token: str, **headers: str) -> AsyncIterator[Stream]:
        sent = {"Authorization": f"Bearer {token}", **headers}
        async with (
            httpx.AsyncClient(base_url=self.server.address, timeout=60) as http,
            http.stream("GET", "/api/events", headers=sent) as answer,
        ):
            assert answer.status_code == 200, await answer.aread()
            yield Stream(answer)

    async def token(self, role: Role = Role.VIEWER, scope: Scope | None = None) -> str:
        return (await self.tokens.create("me", role, scope=scope or Scope()))[1]


@asynccontextmanager
async def served(place: Path, **limits: object) -> AsyncIterator[Served]:
    url = f"sqlite:///{place / 'redrive.db'}"
    admin = replace(Admin(), **limits)
    async with Redrive(settings=Settings(store=url, transports={"default": url}, admin=admin)) as app:
        app.declare("mail.out", "vault")
        server = Server(app, "127.0.0.1", 0, upkeep=False)
        await Tokens(app.store.documents, app.clock).create("first", Role.ADMIN)
        begun = asyncio.Event()
        running = asyncio.create_task(server.run(lambda _: begun.set()))
        await begun.wait()
        try:
            yield Served(server, place)
        finally:
            server.stop()
            await running


@pytest.fixture
async def live(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path) as made:
        yield made


def letter(source: str, number: int) -> Any:
    message = make_message(id=f"{source}-{number}", source=source, tenant="acme" if source != "vault" else "vaultcorp")
    return make_letter(message, make_failure(type=f"{source}.Error"))


async def test_it_says_hello_and_then_what_another_process_changed(live: Served) -> None:
    url = f"sqlite:///{live.place / 'redrive.db'}"
    async with (
        live.stream(await live.token(Role.OPERATOR)) as stream,
        Redrive(settings=Settings(store=url, transports={"default": url})) as other,
    ):
        name, hello = await stream.next()
        assert (name, hello["role"]) == ("hello", "operator")
        assert hello["server_time"]
        assert hello["version"]
        await other.store.letters.record([letter("mail.out", 1)])  # no event of this process tells of it
        assert set((await stream.until("changed", "letters", "groups"))["what"]) >= {"letters", "groups"}
        service = Service(other)
        await service.pause("mail.out", actor=acting("ann"), transport="default", force=True)
        await stream.until("changed", "sources")
        found = await other.store.letters.get(letter("mail.out", 1).id)
        assert found is not None
        await service.edits.edit(found, body=b"[7]", actor=acting("ann"))  # changes no count
        await stream.until("changed", "letters")


async def test_a_replay_is_followed(live: Served) -> None:
    await live.app.store.letters.record([letter("mail.out", n) for n in range(3)])
    async with live.stream(await live.token()) as stream:
        await stream.next()
        service = Service(live.app)
        replay = await service.replay(Query(sources=("mail.out",)), actor=acting("ann"))
        await service.run_replay(replay.id)
        while True:
            told = await stream.until("replay")
            assert told["id"] == replay.id
            if told["state"] == "sent":
                assert told["tally"] == {"sent": 3}
                return


async def test_who_comes_back_is_told_what_was_missed(live: Served) -> None:
    token = await live.token()
    async with live.stream(token) as first, live.stream(token) as witness:
        await first.next()
        await witness.next()
        last = first.last
    async with live.stream(token) as witness:
        await witness.next()
        await live.app.store.letters.record([letter("mail.out", 1)])
        await witness.until("changed", "letters")
        async with live.stream(token, **{"Last-Event-ID": last}) as again:
            await again.next()
            assert (await again.until("changed"))["what"] == ["groups", "letters"]
        async with live.stream(token, **{"Last-Event-ID": witness.last}) as current:
            await current.next()
            assert current.last == witness.last
        async with live.stream(token, **{"Last-Event-ID": "of-another-server.7"}) as stranger:
            await stranger.next()
            assert len((await stranger.until("changed"))["what"]) == 6  # anything may have changed


async def test_who_reaches_a_part_hears_of_that_part(live: Served) -> None:
    for scope in (Scope(sources=("mail.*",)), Scope(tenants=("acme",))):
        async with live.stream(await live.token()) as everybody, live.stream(await live.token(scope=scope)) as part:
            await everybody.next()
            await part.next()
            number = scope.tenants == ("acme",)
            await live.app.store.letters.record([letter("vault", number)])
            await everybody.until("changed")
            replay = await Service(live.app).replay(Query(sources=("vault",)), actor=acting("keeper"))
            await everybody.until("replay")
            await Service(live.app).cancel_replay(replay.id, actor=acting("keeper"))
            await everybody.until("replay")  # looks follow each other: the part has been told of all before this one
            assert not live_channel(live, scope).number
            await live.app.store.letters.record([letter("mail.out", number)])
            assert (await part.next())[1]["what"] == ["groups", "letters"]


def live_channel(live: Served, scope: Scope) -> Any:
    watcher = live.server.watcher
    assert watcher is not None
    return next(listener.channel for listener in watcher.listeners if listener.actor.scope == scope)


async def test_a_look_that_fails_is_not_the_last(live: Served, caplog: pytest.LogCaptureFixture) -> None:
    failed = asyncio.Event()

    def heard(record: logging.LogRecord) -> bool:
        if "a look at what changed failed" in record.getMessage():
            failed.set()
        return True

    caplog.handler.addFilter(heard)
    async with live.stream(await live.token()) as stream:
        await stream.until("hello")
        await live.app.store.documents.put(REPLAYS, "broken", {})
        await live.app.store.letters.record([letter("mail.out", 1)])
        async with asyncio.timeout(60):
            await failed.wait()
        await live.app.store.documents.delete(REPLAYS, "broken")
        await stream.until("changed", "letters")


async def test_it_ends_with_its_token(live: Served) -> None:
    token, text = await live.tokens.create("me", Role.VIEWER)
    async with live.stream(text) as stream:
        await stream.next()
        await live.tokens.revoke(token.id)
        assert "revoked" in (await stream.until("bye"))["why"]


async def test_it_does_not_hinder_the_server_from_stopping(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with served(tmp_path) as live, live.stream(await live.token()) as stream:
        await stream.next()
        live.server.stop()
        assert (await stream.until("bye"))["why"] == "the server stops"
    assert "graceful shutdown exceeded" not in caplog.text


async def test_one_token_opens_so_many_and_the_next_is_told(live: Served) -> None:
    token = await live.token()
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(base_url=live.server.address, timeout=60) as http:
        limits = [http.stream("GET", "/api/events", headers=headers) for _ in range(20)]
        opened = [await one.__aenter__() for one in limits]
        assert {answer.status_code for answer in opened} == {200}
        refused = await http.get("/api/events", headers=headers)
        assert refused.status_code == 429
        assert "20 pages are open as 'me'" in refused.json()["error"]
        for one in limits:
            await one.__aexit__(None, None, None)
        again = await http.get("/api/events?seconds=0", headers=headers)
        while again.status_code == 429:  # the server hears of each that left
            again = await http.get("/api/events?seconds=0", headers=headers)
        assert "event: bye" in again.text


async def test_deadlines_of_clients_do_not_cut_it(tmp_path: Path) -> None:
    short = {"header_timeout": SOON, "body_timeout": SOON, "idle_timeout": SOON}
    async with served(tmp_path, **short) as live, live.stream(await live.token()) as stream:
        await stream.next()
        late = await opened(live.server)  # its headers never come: what that takes is longer than each deadline
        assert b" 408 " in await answered(late)
        await live.app.store.letters.record([letter("mail.out", 1)])
        await stream.until("changed", "letters")
