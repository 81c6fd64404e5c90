"""Large replays are answered while they freeze, frozen by whoever lives, never sent in part; a retry tells of each."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from litestar import Litestar
from msgspec.structs import replace

from redrive import Redrive
from redrive.access.actors import Actor, Role, Scope, Via
from redrive.access.tokens import Tokens
from redrive.admin.api import create_api
from redrive.clock import SystemClock
from redrive.config.settings import Access, Settings
from redrive.flow.replay import Replays, ReplayState
from redrive.flow.replay_document import ReplayBook
from redrive.forensics.query import Query
from redrive.model import Letter, State
from redrive.service import Service
from redrive.service.replaying import LARGE
from redrive.telemetry.events import MessageBuried
from redrive.testing.builders import make_failure, make_letter, make_message
from redrive.upkeep.replaying import APART, Replaying
from tests.actors import acting
from tests.admin.asking import asking, running
from tests.admin.conftest import Client, Shop

MANY = LARGE + 1
ME = acting("ann")


def settings(place: Path, **more: object) -> Settings:
    url = f"sqlite:///{place / 'redrive.db'}"
    return Settings(store=url, transports={"default": url}, worker="w", **more)  # type: ignore[arg-type]


class Later(SystemClock):
    """The clock of somebody who looks when every hold has lapsed."""

    def now(self) -> datetime:
        return super().now() + APART + timedelta(minutes=5)


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Redrive]:
    async with Redrive(settings=settings(tmp_path)) as made:
        made.declare("orders", "mail")
        await made.store.letters.record([_letter("orders", number) for number in range(MANY)])
        await made.store.letters.record([_letter("mail", number) for number in range(3)])
        yield made


def _letter(source: str, number: int) -> Letter:
    message = make_message(id=f"{source}-{number}", source=source, tenant="acme" if source == "mail" else "corp")
    return make_letter(message, make_failure())


async def sent(app: Redrive, id: str) -> dict[str, int]:
    return {str(status): count for status, count in (await app.store.ledger.tally(id)).items()}


async def test_a_large_one_is_answered_before_it_is_frozen(app: Redrive) -> None:
    service = Service(app)
    replay = await service.replay(Query(sources=("orders",)), actor=ME, later=True)
    assert (replay.state, replay.total) == (ReplayState.FREEZING, 0)
    assert await sent(app, replay.id) == {}
    late = _letter("orders", MANY)  # not there when it was asked for
    await app.store.letters.record([replace(late, created_at=late.created_at + timedelta(seconds=1))])
    report = await service.run_replay(replay.id)
    assert (report.replay.state, report.replay.total) == (ReplayState.SENT, MANY)
    assert (await app.transport().depths())["orders"].total == MANY


async def test_a_small_one_and_one_that_a_second_person_sees_are_frozen_at_once(app: Redrive, tmp_path: Path) -> None:
    small = await Service(app).replay(Query(sources=("mail",)), actor=ME, later=True)
    assert (small.state, small.total) == (ReplayState.RUNNING, 3)
    async with Redrive(settings=settings(tmp_path, access=Access(approve_over=10))) as careful:
        with pytest.raises(Exception, match="waits for a second person"):
            await Service(careful).replay(Query(sources=("orders",)), actor=ME, later=True)


async def test_it_can_be_cancelled_while_it_freezes(app: Redrive) -> None:
    service = Service(app)
    replay = await service.replay(Query(sources=("orders",)), actor=ME, later=True)
    report = await service.cancel_replay(replay.id, actor=ME)
    assert report.replay.state is ReplayState.CANCELLED
    assert (await service.run_replay(replay.id)).replay.state is ReplayState.CANCELLED
    assert await app.store.letters.count(Query(states=(State.PENDING,))) == MANY + 3


async def _run_all(upkeep: Replaying) -> None:
    """Begin what nobody runs, and wait until it is done."""
    before = asyncio.all_tasks()
    await upkeep.begin()
    await asyncio.gather(*(asyncio.all_tasks() - before))


async def test_upkeep_freezes_what_its_maker_left_and_in_his_scope(app: Redrive) -> None:
    part = Actor(id="t", name="bob", role=Role.OPERATOR, via=Via.TOKEN, scope=Scope(tenants=("corp",)))
    replay = await Service(app).seen_by(part).replay(Query(), actor=part, every=True, later=True)
    assert replay.state is ReplayState.FREEZING
    replays = Replays(app.store, app.transports, app.events, app.clock)
    upkeep = Replaying(replays, app.events, app.clock, owner="upkeep")
    await _run_all(upkeep)
    assert (await replays.get(replay.id)).total == MANY  # and not the three of somebody else
    assert "mail" not in await app.transport().depths()


_CRASHES = """
import asyncio, os, signal, sys, threading
from redrive import Redrive
from redrive.config.settings import Settings
from redrive.forensics.query import Query
from redrive.service import Service
from tests.actors import acting

async def main(url, moment):
    async with Redrive(settings=Settings(store=url, transports={"default": url}, worker="doomed")) as app:
        app.declare("orders")
        service = Service(app)
        replay = await service.replay(Query(sources=("orders",)), actor=acting("ann"), later=True, id="doomed")
        if moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        database = app.store.letters._access._database
        real = database._writer_connection.execute
        class Dies:
            def execute(self, statement, *more):
                found = real(statement, *more)
                if "INSERT INTO ledger" in statement or "INSERT OR IGNORE INTO ledger" in statement:
                    os.kill(os.getpid(), signal.SIGKILL)  # frozen, and not committed
                return found
            def __getattr__(self, name):
                return getattr(type(self).connection, name)
        Dies.connection = database._writer_connection
        database._writer_connection = Dies()
        await service.run_replay(replay.id)
        print("it lives")

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("moment", ["before", "within"])
async def test_a_crash_while_it_freezes_loses_and_sends_nothing(app: Redrive, tmp_path: Path, moment: str) -> None:
    url = app.settings.store
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _CRASHES, url, moment, cwd=Path(__file__).parents[2], stdout=asyncio.subprocess.PIPE
    )
    said, _ = await child.communicate()
    assert (child.returncode, said) == (-9, b"")
    replays = Replays(app.store, app.transports, app.events, app.clock)
    assert (await replays.get("doomed")).state is ReplayState.FREEZING
    assert await sent(app, "doomed") == {}
    assert (await app.transport().depths()).get("orders") is None
    clock = Later()
    after = Replays(app.store, app.transports, app.events, clock)
    upkeep = Replaying(after, app.events, clock, owner="upkeep")
    await _run_all(upkeep)
    assert await sent(app, "doomed") == {"sent": MANY}
    assert (await app.transport().depths())["orders"].total == MANY


async def test_one_whose_maker_died_with_it_in_hand_is_cancelled(app: Redrive) -> None:
    replays = Replays(app.store, app.transports, app.events, app.clock)
    replay = await replays.start(Query(sources=("mail",)), actor="ann", id="small")
    book = ReplayBook(app.store.documents)
    await book.change("small", lambda old: replace(old, state=ReplayState.FREEZING, total=0))
    assert replay.state is ReplayState.RUNNING

    class MuchLater(SystemClock):
        def now(self) -> datetime:
            return super().now() + timedelta(hours=3)

    clock = MuchLater()
    await Replaying(Replays(app.store, app.transports, app.events, clock), app.events, clock, owner="u").begin()
    assert (await replays.get("small")).state is ReplayState.CANCELLED


async def test_over_http_it_is_freezing_and_then_sent(app: Redrive, tmp_path: Path) -> None:
    tokens, done = Tokens(app.store.documents, app.clock), asyncio.Event()
    app.events.subscribe(lambda event: done.set() if getattr(event, "state", "") == "sent" else None)
    api: Litestar = create_api(Service(app), tokens=tokens)
    async with running(api), asking(api, (await tokens.create("me", Role.OPERATOR))[1]) as http:
        order = {"query": {"sources": ["orders"]}, "guarded": False, "order": False, "id": "all-orders"}
        answer = await http.post("/api/replays", json=order)
        assert (answer.status_code, answer.json()["state"]) == (202, "freezing"), answer.text
        async with asyncio.timeout(60):
            await done.wait()
        report = (await http.get("/api/replays/all-orders")).json()
        assert report["entries"] == {"sent": MANY}


async def test_a_retry_says_what_the_ledger_says_of_each(client: Client, shop: Shop, buried: list[str]) -> None:
    http = await client(Role.OPERATOR)
    ids = [(await http.get(f"/api/letters/{name}")).json()["id"] for name in buried]
    await http.post("/api/letters/archive", json={"ids": [ids[2]]})
    report = (await http.post("/api/letters/retry", json={"ids": [ids[0], ids[2], "m0"]})).json()
    assert [(letter["id"], letter["status"]) for letter in report["letters"]] == [(ids[0], "sent"), (ids[2], "refused")]
    assert report["letters"][1]["why"].startswith("it is archived: only pending")
    assert report["entries"] == {"sent": 1}
    again = (await http.post("/api/letters/retry", json={"ids": [ids[0]]})).json()  # it is on its way
    assert again["letters"] == [
        {"id": ids[0], "status": "refused", "why": again["letters"][0]["why"]},
    ]
    assert "it is replaying" in again["letters"][0]["why"]
    await shop.until(MessageBuried, 1)
