"""Notes, somebody who sees to a group, what differs in it; a letter's lineage; settings; how sources stand."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import msgspec
import pytest

from redrive import Redrive
from redrive.access.actors import Actor, Role, Scope, Via
from redrive.config.settings import Redaction, Settings
from redrive.forensics.query import Query
from redrive.model import Letter
from redrive.service import Service
from redrive.testing.builders import make_failure, make_letter, make_message
from redrive.transports.base import Depth
from redrive.upkeep.heartbeat import KIND as BEATS
from redrive.upkeep.heartbeat import Beat, Working
from tests.actors import acting
from tests.admin.conftest import SECRET, Client, Shop

ANN = acting("ann")


async def test_people_write_notes_and_say_who_sees_to_it(client: Client, shop: Shop, buried: list[str]) -> None:
    http = await client(Role.OPERATOR)
    group = (await http.get("/api/groups")).json()[0]["id"]
    assert (await http.get(f"/api/groups/{group}/notes")).json() == []
    await http.post(f"/api/groups/{group}/notes", json={"text": "seen in 1.4"})
    notes = (await http.post(f"/api/groups/{group}/notes", json={"text": f"password {SECRET}"})).json()
    assert notes[0]["text"] == "seen in 1.4"
    assert "hunter2" not in str(notes)
    assert notes[0]["actor"].startswith("operator")
    assert (await http.get(f"/api/groups/{group}/notes")).json() == notes
    view = (await http.post(f"/api/groups/{group}/assign", json={"to": "ann"})).json()
    assert (view["assignee"], (await http.get(f"/api/groups/{group}")).json()["assignee"]) == ("ann", "ann")
    assert (await http.get("/api/groups")).json()[0]["assignee"] == "ann"
    assert (await http.post(f"/api/groups/{group}/assign", json={"to": None})).json()["assignee"] is None
    for bad in ({"text": ""}, {"text": "x" * 10_001}, {}):
        assert (await http.post(f"/api/groups/{group}/notes", json=bad)).status_code == 422
    assert (await http.post(f"/api/groups/{group}/assign", json={"to": "a\nb"})).status_code == 400
    actions = [line["action"] for line in await Service(shop.app).audit(20)]
    assert actions.count("note-group") == 2
    assert actions.count("assign") == 3  # one of them refused


def _dead(number: int, *, mine: bool, secret: str = "") -> Letter:
    body = {"id": number, "country": "DE" if mine else "FR", "items": [{"sku": "a1"}], "password": secret or "pw"}
    message = make_message(
        id=f"{mine}-{number}",
        source="orders",
        body=msgspec.json.encode(body),
        tenant="acme",
        headers=(("x-region", b"eu" if mine else b"us"), ("authorization", b"Bearer abc")),
    )
    return make_letter(message, make_failure(type="Mine" if mine else "Other", version="2.0" if mine else "1.0"))


async def test_what_many_here_have_and_few_elsewhere_is_named(shop: Shop) -> None:
    letters = [_dead(number, mine=True, secret="only-here") for number in range(20)]
    await shop.app.store.letters.record([*letters, *(_dead(number, mine=False) for number in range(30))])
    found = await Service(shop.app).differs(letters[0].group)
    assert (found.letters, found.others) == (20, 30)
    told = {(fact.field, fact.value): (fact.here, fact.elsewhere) for fact in found.fields}
    assert told == {
        ("body.country", "DE"): (1.0, 0.0),
        ("header.x-region", "eu"): (1.0, 0.0),
        ("version", "2.0"): (1.0, 0.0),
    }  # neither the tenant and sku that all have, nor ids, nor secrets
    alone = await Service(shop.app).differs(_dead(0, mine=False).group)
    assert {fact.value for fact in alone.fields} == {"FR", "us", "1.0"}


async def test_a_pattern_of_ones_own_keeps_a_value_out(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'r.db'}"
    redact = Redaction(keys=("country",))
    async with Redrive(settings=Settings(store=url, transports={"default": url}, redact=redact)) as app:
        letters = [_dead(number, mine=True) for number in range(5)]
        await app.store.letters.record([*letters, *(_dead(number, mine=False) for number in range(5))])
        found = await Service(app).differs(letters[0].group)
        assert "body.country" not in {fact.field for fact in found.fields}


async def test_who_reaches_a_part_compares_with_that_part(shop: Shop) -> None:
    await shop.app.store.letters.record([_dead(n, mine=True) for n in range(5)])
    vault = [make_letter(make_message(source="orders", tenant="vault"), make_failure(type="V")) for _ in range(5)]
    await shop.app.store.letters.record(vault)
    part = Actor(id="t", name="bob", role=Role.VIEWER, via=Via.TOKEN, scope=Scope(tenants=("acme",)))
    found = await Service(shop.app).seen_by(part).differs(_dead(0, mine=True).group)
    assert (found.letters, found.others, found.fields) == (5, 0, [])


async def test_the_lineage_of_a_letter(client: Client, shop: Shop) -> None:
    parent = make_letter(make_message(id="p", source="orders"))
    child = make_letter(make_message(id="c", source="orders"), depends_on=("p",))
    await shop.app.store.letters.record([parent, child])
    service = Service(shop.app)
    replay = await service.replay(Query(ids=(parent.id,)), actor=ANN)
    await service.run_replay(replay.id)
    http = await client(Role.VIEWER)
    shown = (await http.get(f"/api/letters/{parent.id}/lineage")).json()
    assert [letter["id"] for letter in shown["children"]] == [child.id]
    assert (shown["parent"], shown["is_all_children"]) == (None, True)
    assert [(one["id"], one["status"]) for one in shown["replays"]] == [(replay.id, "sent")]
    other = (await http.get(f"/api/letters/{child.id}/lineage")).json()
    assert other["parent"]["letter"]["id"] == parent.id
    assert (await http.get("/api/letters/nowhere/lineage")).status_code == 404


async def test_who_reaches_a_part_is_told_of_no_child_beyond_it(shop: Shop) -> None:
    parent = make_letter(make_message(id="p", source="orders", tenant="acme"))
    theirs = make_letter(make_message(id="c", source="orders", tenant="acme"), depends_on=("p",))
    beyond = make_letter(make_message(id="v", source="orders", tenant="vault"), depends_on=("p",))
    await shop.app.store.letters.record([parent, theirs, beyond])
    part = Actor(id="t", name="bob", role=Role.VIEWER, via=Via.TOKEN, scope=Scope(tenants=("acme",)))
    found = await Service(shop.app).seen_by(part).lineage(parent.id)
    assert ([child.id for child in found.children], found.is_all_children) == ([theirs.id], True)


async def test_settings_say_where_they_come_from(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    http = await client(Role.ADMIN)
    shown = {one["name"]: one for one in (await http.get("/api/settings")).json()}
    assert (shown["worker"]["value"], shown["worker"]["from"]) == ("w", "argument")
    assert shown["admin.port"]["from"] == "default"
    (tmp_path / "redrive.toml").write_text("[admin]\nport = 9000\n[lineage]\nkey = 'very-secret-key'\n")
    monkeypatch.setenv("REDRIVE_TRANSPORTS_DEFAULT", "redis://:hunter2@localhost:1")
    monkeypatch.setenv("REDRIVE_STORE", "memory://")
    app = Redrive(config=tmp_path / "redrive.toml")
    told: dict[str, Any] = {one.name: one for one in Service(app).settings()}
    assert (told["admin.port"].value, told["admin.port"].origin) == ("9000", "file")
    assert told["admin.port"].place.endswith("redrive.toml")
    assert told["store"].origin == "environment"
    assert "hunter2" not in msgspec.json.encode(list(told.values())).decode()
    assert "very-secret-key" not in str(told)


async def test_sources_are_told_while_a_broker_is_down(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    url = f"sqlite:///{tmp_path / 'r.db'}"
    transports = {"default": url, "away": f"redis://127.0.0.1:{port}"}
    async with Redrive(settings=Settings(store=url, transports=transports)) as app:
        app.declare("orders")
        app.declare("far", transport="away")
        await app.send("orders", {"id": 1})
        await app.store.letters.record([make_letter(make_message(source="orders"))])
        await Service(app).pause("orders", actor=ANN, why="tests")
        found = await Service(app).sources_in_detail()
        details = {one.source: one for one in found.details}
        orders = details["orders"]
        assert orders.queued is not None
        assert (orders.queued.ready, sum(orders.states.values()), orders.transport) == (1, 1, "default")
        assert orders.paused is not None
        assert orders.paused.why == "tests"
        assert (details["far"].queued, details["far"].transport) == (None, "away")
        assert [silent.backend for silent in found.unanswered] == ["transports.away"]


async def test_letters_of_a_source_stand_where_its_queue_is(tmp_path: Path) -> None:
    url, other = (f"sqlite:///{tmp_path / name}" for name in ("r.db", "other.db"))
    async with Redrive(settings=Settings(store=url, transports={"default": url, "other": other})) as app:
        await app.store.letters.record([make_letter(make_message(source="tasks"))])
        await app.transport("other").send([make_message(source="tasks")])
        found = (await Service(app).sources_in_detail()).details
        assert [(one.transport, one.source, sum(one.states.values())) for one in found] == [("other", "tasks", 1)]
        await app.transport().send([make_message(source="tasks")])
        found = (await Service(app).sources_in_detail()).details
        assert [(one.transport, one.source) for one in found] == [("default", "tasks"), ("other", "tasks")]


async def test_a_source_stands_where_its_worker_receives_it_and_is_empty_if_nothing_waits(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'r.db'}"
    async with Redrive(settings=Settings(store=url, transports={"default": url})) as app:
        await app.store.letters.record([make_letter(make_message(source=name)) for name in ("docs.ocr", "gone")])
        now = app.clock.now()
        sources = (Working("docs.ocr", "pipeline", 4, 1), Working("mails", "default", 5, 0))
        beat = Beat(worker="w", host="h", pid=1, version="1", redrive="", started_at=now, at=now, sources=sources)
        await app.store.documents.put(BEATS, "w", msgspec.to_builtins(beat))
        found = (await Service(app).sources_in_detail()).details
    told = [(one.transport, one.source, one.workers, one.queued) for one in found]
    assert told == [
        ("pipeline", "docs.ocr", 1, None),
        ("default", "gone", 0, None),
        ("default", "mails", 1, Depth(0, 0, 0)),
    ]
