"""Every route, as somebody who reaches a part: what is out of scope does not exist, and is not acted on.

The routes are those of the API itself, so a new one is asked, too: whatever it tells somebody of `mail` and `acme` must
not name the vault.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import httpx
import msgspec
import pytest
from litestar import Litestar
from msgspec.structs import replace

from redrive.access.actors import Role, Scope
from redrive.access.tokens import Tokens
from redrive.admin.access import handlers_of
from redrive.alerts.incidents import Incidents, Timing
from redrive.alerts.model import Alert, Severity
from redrive.flow.held import KIND as HELD
from redrive.flow.held import HeldKey, held_id
from redrive.forensics.query import Query
from redrive.forensics.transfer import line_of
from redrive.model import Letter, State, Version
from redrive.service import Service
from redrive.testing.builders import make_failure, make_letter, make_message
from redrive.upkeep.heartbeat import KIND as BEATS
from redrive.upkeep.heartbeat import Beat, Working
from tests.actors import acting
from tests.admin.asking import asking
from tests.admin.conftest import Shop

OURS, THEIRS = "mail.out", "vault"
SCOPES = [Scope(sources=("mail.*",)), Scope(tenants=("acme",)), Scope(sources=("mail.*", "v*"), tenants=("ac?e",))]
_WHOLE = {  # cannot be narrowed: those who reach a part are refused
    "GET /metrics",
    "GET /api/settings",
    "GET /api/doctor",
    "GET /api/audit/lines",
    "GET /api/audit/checkpoint",
    "GET /api/repairs",
    "GET /api/repairs/{id}",
    "POST /api/repairs",
    "POST /api/repairs/{id}/undo",
}
_BODIES: dict[str, Any] = {
    "/api/replays": {"query": {}, "all": True},
    "/api/replays/plan": {"query": {}},
    "/api/groups/{id}/fix": {"version": "1.0"},
    "/api/groups/{id}/mute": {"seconds": 60, "why": "x"},
    "/api/groups/{id}/notes": {"text": "x"},
    "/api/groups/{id}/assign": {"to": "ann"},
    "/api/pauses": {"source": THEIRS, "force": True},
    "/api/pauses/resume": {"source": THEIRS},
    "/api/letters/{id}/edit": {"version": 0, "body": "1"},
    "/api/incidents/{id}/notes": {"text": "x"},
    "/api/letters/archive": {"query": {}, "all": True},
    "/api/letters/unarchive": {"query": {}, "all": True},
    "/api/replays/{id}/pace": {"rate": 1},
    "/api/letters/{id}/undo": {"version": 0},
    "/api/letters/{id}/preview": {"version": 0, "body": "1"},
    "/api/letters/purge": {"query": {}, "all": True},
    "/api/count": {"groups": ["nothing"]},
    "/api/export": {},
    "/api/audit/verify": {"seq": 1, "hash": "", "at": "", "key": "", "signature": ""},
    "/api/letters/{id}/unmask": {"reason": "x"},
    "/api/approvals/{id}/refuse": {"reason": "x"},
}


def _letter(source: str, tenant: str, number: int) -> Letter:
    message = make_message(id=f"{source}-{number}", source=source, tenant=tenant, body=f'"{source}"'.encode())
    return make_letter(message, make_failure(type=f"{source}.Error", message=f"{source} does not answer"))


class Fixed:
    """Two teams on one store: letters, marks, replays, incidents and a trail of both."""

    def __init__(self, shop: Shop) -> None:
        self.shop = shop
        self.service = Service(shop.app)
        self.ours, self.theirs = _letter(OURS, "acme", 1), _letter(THEIRS, "vaultcorp", 1)
        self.ids: dict[str, str] = {}

    async def fill(self) -> None:
        app, service, me = self.shop.app, self.service, acting("vaultkeeper")
        app.declare(OURS)
        app.declare(THEIRS)
        await app.store.letters.record(
            [self.ours, self.theirs, _letter(OURS, "acme", 2), _letter(THEIRS, "vaultcorp", 2)]
        )
        await service.mute(self.theirs.group, timedelta(days=1), actor=me, why="vault is moved")
        await service.pause(THEIRS, actor=me, why="vault")
        replay = await service.replay(Query(ids=(self.theirs.id,)), actor=me, reason="vault")
        await self._work_on_both()
        mine = await service.replay(Query(ids=(self.ours.id,)), actor=acting("postkeeper"), reason="post")
        incidents = Incidents(app.store.documents, app.clock, app.events)
        found = {}
        for letter in (self.ours, self.theirs):
            source = letter.message.source
            alert = Alert(
                key=source,
                name="Growing",
                severity=Severity.WARNING,
                summary=f"{source} grows",
                starts_at=app.clock.now(),
                group=letter.group,
                source=source,
            )
            found[source] = (await incidents.report(alert, Timing(timedelta(hours=1), timedelta(hours=1)))).id
        self.of = {
            OURS: {"letters": self.ours.id, "groups": self.ours.group, "replays": mine.id, "incidents": found[OURS]},
            THEIRS: {
                "letters": self.theirs.id,
                "groups": self.theirs.group,
                "replays": replay.id,
                "incidents": found[THEIRS],
            },
        }

    async def _work_on_both(self) -> None:
        """A worker has messages of both, and a key of theirs is held."""
        app, now = self.shop.app, self.shop.app.clock.now()
        sources = tuple(Working(source, "default", 1, 1) for source in (OURS, THEIRS))
        beat = Beat(worker="w", host="h", pid=1, version="1", redrive="1", started_at=now, at=now, sources=sources)
        await app.store.documents.put(BEATS, "beat", msgspec.to_builtins(beat))
        held = HeldKey(
            transport="default",
            source=THEIRS,
            key=b"vault",
            members=(self.theirs.message.id, f"{THEIRS}-2"),
            since=now,
            longest=timedelta(hours=1),
        )
        await app.store.documents.put(HELD, held_id("default", THEIRS, b"vault"), msgspec.to_builtins(held))


@pytest.fixture
async def fixed(shop: Shop, tokens: Tokens) -> Fixed:
    made = Fixed(shop)
    await made.fill()
    made.ids["tokens"] = (await tokens.create("vaultadmin", Role.ADMIN))[0].id
    return made


@pytest.fixture
async def people(api: Litestar, tokens: Tokens) -> AsyncIterator[Any]:
    made: list[httpx.AsyncClient] = []

    async def person(role: Role, scope: Scope) -> httpx.AsyncClient:
        made.append(asking(api, (await tokens.create("somebody", role, scope=scope, unmask=True))[1]))
        return made[-1]

    yield person
    for one in made:
        await one.aclose()


def _asked(api: Litestar) -> list[tuple[str, str, Role]]:
    return [(method, path, handler.opt["role"]) for method, path, handler in handlers_of(api) if handler.opt["role"]]


def _at(path: str, ids: dict[str, str]) -> str:
    kind = path.split("/")[2] if path.count("/") > 1 else ""
    ends = "?seconds=0" if path == "/api/events" else ""
    return re.sub(r"{\w+}", ids.get(kind, "nothing"), path) + ends


@pytest.mark.parametrize("scope", SCOPES, ids=["source", "tenant", "both"])
async def test_no_route_tells_or_does_anything_of_what_is_out_of_scope(
    api: Litestar, fixed: Fixed, people: Any, scope: Scope
) -> None:
    store = fixed.shop.app.store
    before = await store.letters.get(fixed.theirs.id), await fixed.service.group(fixed.theirs.group)
    theirs = {**fixed.of[THEIRS], **fixed.ids}
    somebody = {role: await people(role, scope) for role in Role}
    for method, path, needed in _asked(api):
        for role, http in somebody.items():
            body = (
                {"json": _BODIES.get(path, {} if "{" in path else {"ids": [fixed.theirs.id]})}
                if method == "POST"
                else {}
            )
            answer = await http.request(method, _at(path, theirs), **body)
            said = answer.text.replace(str(body), "")
            where = (method, path, role, answer.status_code, answer.text)
            if not role.allows(needed):
                assert answer.status_code == 403, where
                continue
            assert answer.status_code < 500, where
            if f"{method} {path}" in _WHOLE:
                assert answer.status_code == 403, where
            elif "{" in path:
                assert answer.status_code == 404, where
            if path not in ("/api/pauses", "/api/pauses/resume") or method == "GET":
                assert "vault" not in said.replace(theirs["tokens"], ""), where
            else:
                assert answer.status_code == 422, where  # as a source that never was
    assert (await store.letters.get(fixed.theirs.id), await fixed.service.group(fixed.theirs.group)) == before
    assert [pause.by for pause in await fixed.service.pauses()] == ["vaultkeeper"]


async def test_what_is_in_scope_is_as_it_is_for_everybody(api: Litestar, fixed: Fixed, people: Any) -> None:
    everybody = await people(Role.VIEWER, Scope())
    some = await people(Role.VIEWER, Scope(sources=("mail.*",)))
    for kind, id in fixed.of[OURS].items():
        whole, part = await everybody.get(f"/api/{kind}/{id}"), await some.get(f"/api/{kind}/{id}")
        assert part.status_code == 200, (kind, part.text)
        assert part.json() == whole.json()
    workers = (await some.get("/api/workers")).json()
    assert [[working["source"] for working in worker["sources"]] for worker in workers] == [[OURS]]
    assert [held["source"] for held in (await everybody.get("/api/held-keys")).json()] == [THEIRS]
    letters = (await some.get("/api/letters")).json()["letters"]
    assert {letter["source"] for letter in letters} == {OURS}
    assert len(letters) == 2
    stats = (await some.get("/api/stats")).json()
    assert stats["total"] == 2
    assert [source["source"] for source in stats["sources"]] == [OURS]
    assert (await some.get("/api/sources")).json()["sources"] == [OURS]
    assert [replay["id"] for replay in (await some.get("/api/replays")).json()] == [fixed.of[OURS]["replays"]]
    assert [found["id"] for found in (await some.get("/api/incidents")).json()] == [fixed.of[OURS]["incidents"]]


async def test_a_replay_of_everything_takes_what_is_in_scope(fixed: Fixed, people: Any) -> None:
    http = await people(Role.OPERATOR, Scope(tenants=("acme",)))
    answer = await http.post("/api/replays", json={"query": {}, "all": True})
    assert answer.status_code == 202, answer.text
    entries, _ = await fixed.service.replay_entries(answer.json()["id"])
    assert answer.json()["total"] == len(entries) == 2
    assert fixed.theirs.id not in {entry.letter for entry in entries}
    assert (await http.get(f"/api/replays/{answer.json()['id']}")).status_code == 200


async def test_a_scope_that_a_query_claims_widens_nothing(fixed: Fixed, people: Any) -> None:
    http = await people(Role.OPERATOR, Scope(sources=("mail.*",)))
    plan = {"query": {"scope": {"sources": ["*"]}}}
    answer = await http.post("/api/replays/plan", json=plan)
    assert (answer.status_code, "a request cannot give it" in answer.text) == (422, True)
    same = {"query": {}, "all": True, "id": fixed.of[THEIRS]["replays"]}
    assert (await http.post("/api/replays", json=same)).status_code in (404, 409)


async def test_a_group_that_others_share_is_seen_in_part_and_not_muted(fixed: Fixed, people: Any) -> None:
    shared = make_failure(type="shop.Shared", message="no answer")
    mine = make_letter(make_message(source=OURS, tenant="acme"), shared)
    other = make_letter(make_message(source=THEIRS, tenant="vaultcorp"), shared)
    await fixed.shop.app.store.letters.record([mine, other])
    assert mine.group == other.group
    http = await people(Role.OPERATOR, Scope(sources=("mail.*",)))
    seen = (await http.get(f"/api/groups/{mine.group}")).json()
    assert (seen["count"], seen["sources"], seen["tenants"]) == (1, [OURS], ["acme"])
    answer = await http.post(f"/api/groups/{mine.group}/mute", json={"seconds": 60, "why": "noise"})
    assert answer.status_code == 403
    assert "beyond your scope" in answer.json()["error"]
    archived = await http.post("/api/letters/archive", json={"query": {"groups": [mine.group]}})
    assert archived.json() == {"archived": 1, "ids": [mine.id]}
    left = await fixed.shop.app.store.letters.get(other.id)
    assert left is not None
    assert left.state is State.PENDING


async def test_an_admin_of_a_part_makes_tokens_of_that_part_only(fixed: Fixed, people: Any) -> None:
    http = await people(Role.ADMIN, Scope(sources=("mail.*",)))
    for scope in ({}, {"sources": ["*"]}, {"sources": ["mail.out", "vault"]}, {"tenants": ["acme"]}):
        answer = await http.post("/api/tokens", json={"name": "x", "role": "viewer", "scope": scope})
        assert answer.status_code == 403, (scope, answer.text)
    made = await http.post("/api/tokens", json={"name": "x", "role": "viewer", "scope": {"sources": ["mail.a*"]}})
    assert made.status_code == 201, made.text
    assert {token["name"] for token in (await http.get("/api/tokens")).json()} == {"somebody", "x"}
    assert (await http.delete(f"/api/tokens/{fixed.ids['tokens']}")).status_code == 404


async def test_an_import_touches_no_letter_out_of_scope(fixed: Fixed, people: Any) -> None:
    store, theirs = fixed.shop.app.store, fixed.theirs
    http = await people(Role.ADMIN, Scope(sources=("mail.*",)))
    later = make_failure(type="Other", message="later", at=theirs.created_at + timedelta(hours=1))
    forged = replace(make_letter(replace(fixed.ours.message, body=b"forged"), later), id=theirs.id)
    answer = await http.post("/api/import", content=line_of(forged))
    assert (answer.status_code, "another source or tenant" in answer.text) == (403, True), answer.text
    assert await store.letters.get(theirs.id) == theirs
    planted = Version(theirs.id, 0, (), 6, None, b"forged")
    answer = await http.post("/api/import", content=line_of(fixed.ours, [planted]))
    assert (answer.status_code, "versions of another letter" in answer.text) == (400, True), answer.text
    assert not await store.versions.list(theirs.id)


async def test_a_replay_whose_letters_were_deleted_is_its_makers(fixed: Fixed, people: Any, api: Litestar) -> None:
    http = await people(Role.OPERATOR, Scope(sources=("mail.*",)))
    ours = (await http.post("/api/replays", json={"query": {"sources": [OURS], "message_ids": [f"{OURS}-2"]}})).json()
    theirs = fixed.of[THEIRS]["replays"]
    await fixed.service.purge(Query(ids=(fixed.theirs.id,)), actor=acting("root"))
    assert (await http.get(f"/api/replays/{theirs}")).status_code == 404
    assert (await http.get(f"/api/replays/{theirs}/entries")).status_code == 404
    await fixed.service.archive(Query(message_ids=(f"{OURS}-2",)), actor=acting("root"))
    await fixed.service.purge(Query(message_ids=(f"{OURS}-2",)), actor=acting("root"))
    known = {replay["id"] for replay in (await http.get("/api/replays")).json()}
    assert known == {ours["id"], fixed.of[OURS]["replays"]}


async def test_a_source_that_nobody_knows_is_not_explained_by_one_out_of_scope(
    api: Litestar, fixed: Fixed, people: Any
) -> None:
    """Of a worker, of a queue or of a pause: none of them is what was meant."""
    app = fixed.shop.app
    now = app.clock.now()
    sources = (Working("email.vault", "default", 1, 1),)
    beat = Beat(worker="v", host="h", pid=1, version="1", redrive="1", started_at=now, at=now, sources=sources)
    await app.store.documents.put(BEATS, "other", msgspec.to_builtins(beat))
    app.declare("fmail.vault")
    await app.send("fmail.vault", {})
    await fixed.service.pause("gmail.vault", actor=acting("root"), force=True)
    http = await people(Role.OPERATOR, Scope(sources=("mail.*",)))
    answers = [
        await http.get("/api/queue?source=mail.vault"),
        await http.post("/api/pauses", json={"source": "mail.vault"}),
        await http.post("/api/pauses/resume", json={"source": "mail.vault"}),
    ]
    for answer in answers:
        assert (answer.status_code, answer.json()["kind"]) == (422, "UnknownSource")
        assert not re.search(r"[efg]mail", answer.text), answer.text


async def test_whoever_fixes_a_group_hears_of_no_version_of_others(fixed: Fixed, people: Any) -> None:
    app = fixed.shop.app
    now = app.clock.now()
    for id, source, version in (("mine", OURS, "2.0"), ("other", THEIRS, "6.6")):
        working = (Working(source, "default", 1, 1),)
        beat = Beat(worker=id, host="h", pid=1, version=version, redrive="1", started_at=now, at=now, sources=working)
        await app.store.documents.put(BEATS, id, msgspec.to_builtins(beat))
    http = await people(Role.OPERATOR, Scope(sources=("mail.*",)))
    told = {}
    for version in ("2.0", "6.6"):
        answer = await http.post(f"/api/groups/{fixed.ours.group}/fix", json={"version": version})
        told[version] = [note for note in answer.json()["notes"] if "has reported" in note]
    assert not told["2.0"]
    assert told["6.6"]  # as of any version that nobody in scope has


_PARTS = [
    Scope(sources=("mail.*",)),
    Scope(tenants=("acme",)),
    Scope(tenants=("ac*",)),
    Scope(sources=("mail.out",), tenants=("ac?e",)),
    Scope(sources=("mail.*",), systems=("def*",)),
]


@pytest.mark.parametrize("scope", _PARTS, ids=["source", "tenant", "tenants", "both", "system"])
async def test_what_others_say_of_their_groups_costs_nobody_else(
    fixed: Fixed, people: Any, monkeypatch: pytest.MonkeyPatch, scope: Scope
) -> None:
    """Each list asks which groups are muted: however many those of others are, that is a few questions."""
    letters, me = fixed.shop.app.store.letters, acting("ann")
    many = [
        make_letter(
            make_message(source=THEIRS, tenant=tenant), make_failure(type=f"vault.E{'x' * number}", message="no")
        )
        for number, tenant in enumerate(["vaultcorp", None] * 10)
    ]
    shared = make_failure(type="shop.Shared", message="no answer")
    mine = make_letter(make_message(source=OURS, tenant="acme"), shared)
    part = [
        make_letter(make_message(source=THEIRS, tenant="vaultcorp"), shared),
        make_letter(make_message(source=THEIRS, tenant=None), shared),
    ]
    await letters.record([*many, mine, *part])
    for letter in (*many, mine, fixed.ours):
        await fixed.service.mute(letter.group, timedelta(days=1), actor=me, why="noise")
    http = await people(Role.VIEWER, scope)
    asked = 0

    def counting(asking: Any) -> Any:
        def counted(*given: Any, **more: Any) -> Any:
            nonlocal asked
            asked += 1
            return asking(*given, **more)

        return counted

    for name in ("search", "count", "groups", "tenants"):
        monkeypatch.setattr(letters, name, counting(getattr(letters, name)))
    assert [mark["group"] for mark in (await http.get("/api/muted-groups")).json()] == [fixed.ours.group]
    assert asked <= 8
    assert [group["id"] for group in (await http.get("/api/groups")).json()] == [mine.group]
    everything = (await http.get("/api/groups?with_muted=true")).json()
    assert {group["id"]: (group["count"], group["tenants"]) for group in everything} == {
        mine.group: (1, ["acme"]),
        fixed.ours.group: (2, ["acme"]),
    }
    asked = 0
    assert (await http.get("/api/groups/nothing")).status_code == 404
    assert asked <= 4  # not one for each group there is
    found = await http.get(f"/api/groups/{mine.group[:8]}")
    assert (found.status_code, found.json()["count"]) == (200, 1)
    assert (await http.get(f"/api/groups/{many[0].group[:8]}")).status_code == 404
