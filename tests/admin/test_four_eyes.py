"""Acts past a size wait for a second person, and what was approved is exactly what was frozen."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from litestar import Litestar
from msgspec.structs import replace

from redrive.access.actors import Actor, Role, Scope, Via
from redrive.access.approvals import Approval, Approvals, ApprovalState, NeedsApproval
from redrive.access.tokens import Tokens
from redrive.admin.api import create_api
from redrive.config.settings import Access
from redrive.errors import NotAllowed
from redrive.model import letter_id
from redrive.service import Service
from redrive.stores.base import Entry, EntryStatus
from redrive.testing.builders import make_letter, make_message
from redrive.testing.clock import ManualClock
from tests.admin.asking import asking, running
from tests.admin.conftest import Client, Shop

pytestmark = pytest.mark.asyncio


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    made = Shop(tmp_path / "redrive.db")
    made.app.settings = replace(made.app.settings, access=Access(approve_over=1))
    async with made.app:
        yield made


@pytest.fixture
async def api(shop: Shop, tokens: Tokens) -> AsyncIterator[Litestar]:
    made = create_api(Service(shop.app), tokens=tokens)
    async with running(made):
        yield made


@pytest.fixture
async def client(api: Litestar, tokens: Tokens) -> AsyncIterator[Client]:
    """A client of somebody with that role, each time somebody else; or with that text for a token."""
    made: list[httpx.AsyncClient] = []

    async def as_(role: Role | str | None) -> httpx.AsyncClient:
        text = (await tokens.create(f"{role} {len(made)}", role))[1] if isinstance(role, Role) else role
        made.append(asking(api, text))
        return made[-1]

    yield as_
    for http in made:
        await http.aclose()


async def _archive_all(client: httpx.AsyncClient) -> dict[str, Any]:
    answer = await client.post("/api/letters/archive", json={"query": {}, "all": True})
    assert answer.status_code == 202, answer.text
    waiting: dict[str, Any] = answer.json()["approval"]
    return waiting


async def test_an_act_on_many_letters_is_done_when_a_second_person_says_so(client: Client, buried: list[str]) -> None:
    ann, bob = await client(Role.OPERATOR), await client(Role.OPERATOR)
    waiting = await _archive_all(ann)
    assert (waiting["action"], waiting["total"], waiting["state"]) == ("archive", len(buried), "waiting")
    listed = (await bob.get("/api/approvals")).json()
    assert [approval["id"] for approval in listed] == [waiting["id"]]
    own = await ann.post(f"/api/approvals/{waiting['id']}/approve")
    assert (own.status_code, "second person" in own.text) == (403, True)
    viewer = await (await client(Role.VIEWER)).post(f"/api/approvals/{waiting['id']}/approve")
    assert viewer.status_code == 403
    answer = await bob.post(f"/api/approvals/{waiting['id']}/approve")
    assert (answer.status_code, answer.json()["state"]) == (200, "done"), answer.text
    assert answer.json()["result"] == f"{len(buried)} of {len(buried)} letters"
    assert (await bob.post(f"/api/approvals/{waiting['id']}/approve")).status_code == 400
    trail = (await (await client(Role.ADMIN)).get("/api/audit")).json()
    told = [(line["action"], line["outcome"]) for line in reversed(trail)]
    assert told == [
        ("archive", "waits"),
        ("approve", "refused"),
        ("request", "refused"),
        ("approve", "done"),
        ("archive", "done"),
        ("approve", "refused"),
    ]


async def test_of_many_who_say_yes_at_once_one_does_it_and_all_hear_what_came_of_it(
    client: Client, buried: list[str]
) -> None:
    waiting = await _archive_all(await client(Role.OPERATOR))
    others = [await client(Role.OPERATOR) for _ in range(4)]
    answers = await asyncio.gather(*(other.post(f"/api/approvals/{waiting['id']}/approve") for other in others))
    assert {answer.json().get("result", "") for answer in answers if answer.status_code == 200} == {
        f"{len(buried)} of {len(buried)} letters"
    }
    kept = (await others[0].get(f"/api/approvals/{waiting['id']}")).json()
    assert kept["result"] == f"{len(buried)} of {len(buried)} letters"


async def test_what_changed_since_is_left_alone(client: Client, shop: Shop, buried: list[str]) -> None:
    ann, bob = await client(Role.OPERATOR), await client(Role.OPERATOR)
    waiting = await _archive_all(ann)
    one = await ann.post("/api/letters/archive", json={"ids": buried[:1]})
    assert one.json() == {"archived": 1, "ids": [letter_id("orders", buried[0])]}, "one letter alone does not wait"
    changed = await ann.post(f"/api/letters/{buried[1]}/edit", json={"version": 0, "body": '{"id": 9}'})
    assert changed.status_code == 200, changed.text
    answer = (await bob.post(f"/api/approvals/{waiting['id']}/approve")).json()
    left = len(buried) - 2
    skipped = "1 skipped: archived now; 1 skipped: edited since"
    assert answer["result"] == f"{left} of {len(buried)} letters; {skipped}"


async def test_what_is_refused_or_withdrawn_is_not_done(client: Client, shop: Shop, buried: list[str]) -> None:
    ann, bob = await client(Role.OPERATOR), await client(Role.OPERATOR)
    first, second = await _archive_all(ann), await _archive_all(ann)
    assert (await bob.post(f"/api/approvals/{first['id']}/withdraw")).status_code == 403
    refused = await bob.post(f"/api/approvals/{first['id']}/refuse", json={"reason": "not on a Friday"})
    assert (refused.json()["state"], refused.json()["why"]) == ("refused", "not on a Friday")
    assert (await ann.post(f"/api/approvals/{second['id']}/withdraw")).json()["state"] == "withdrawn"
    for id in (first["id"], second["id"]):
        assert (await bob.post(f"/api/approvals/{id}/approve")).status_code == 400
    late = (await bob.post(f"/api/approvals/{first['id']}/approve")).json()["error"]
    assert late == f"{first['id']} is refused already, by {refused.json()['decided_by']['name']}"
    assert (await bob.get("/api/stats")).json()["open"] == len(buried)


async def test_a_replay_waits_with_its_selection_frozen(client: Client, shop: Shop, buried: list[str]) -> None:
    ann, bob = await client(Role.OPERATOR), await client(Role.OPERATOR)
    answer = await ann.post("/api/replays", json={"query": {}, "all": True, "id": "mine"})
    assert (answer.status_code, answer.json()["approval"]["replay"]) == (202, "mine"), answer.text
    again = await ann.post("/api/replays", json={"query": {}, "all": True, "id": "mine"})
    assert again.json()["approval"]["id"] == answer.json()["approval"]["id"]
    assert (await ann.post("/api/replays/mine/resume")).status_code == 400
    assert (await ann.get("/api/replays/mine")).json()["replay"]["state"] == "paused"
    done = await bob.post(f"/api/approvals/{answer.json()['approval']['id']}/approve")
    assert done.json()["result"] == "replay mine runs"
    report = (await ann.get("/api/replays/mine")).json()
    assert report["replay"]["state"] in ("running", "sent")
    assert report["replay"]["total"] == len(buried)


async def test_what_nobody_looked_at_expires(client: Client, shop: Shop, buried: list[str]) -> None:
    ann, bob = await client(Role.OPERATOR), await client(Role.OPERATOR)
    waiting = await _archive_all(ann)
    document = await shop.app.store.documents.get("approval", waiting["id"])
    assert document is not None
    await shop.app.store.documents.put("approval", waiting["id"], {**document.body, "expires_at": document.body["at"]})
    assert (await bob.get(f"/api/approvals/{waiting['id']}")).json()["state"] == "expired"
    assert (await bob.post(f"/api/approvals/{waiting['id']}/approve")).status_code == 400


async def test_a_person_with_two_tokens_of_one_name_is_one(client: Client, tokens: Tokens, buried: list[str]) -> None:
    ann, again = [await client((await tokens.create(name, Role.OPERATOR))[1]) for name in ("Ann Lee", "ann  lee")]
    waiting = await _archive_all(ann)
    for decision in ("approve", "refuse"):
        answer = await again.post(f"/api/approvals/{waiting['id']}/{decision}", json={"reason": "x"})
        assert (answer.status_code, "same person" in answer.text) == (403, True), answer.text


@pytest.mark.parametrize("change", ["widened", "gone", "no list"])
async def test_a_selection_that_was_changed_in_the_store_is_not_carried_out(
    client: Client, shop: Shop, buried: list[str], change: str
) -> None:
    documents = shop.app.store.documents
    ann, bob = await client(Role.OPERATOR), await client(Role.OPERATOR)
    waiting = await _archive_all(ann)
    [part] = await documents.list("approval-part")
    if change == "gone":
        await documents.delete(part.kind, part.id)
    else:
        lines = [*part.body["letters"][1:], ["another", 0, "exhausted"]] if change == "widened" else 5
        await documents.put(part.kind, part.id, {"letters": lines})
    answer = await bob.post(f"/api/approvals/{waiting['id']}/approve")
    assert (answer.status_code, "not what was frozen" in answer.text) == (400, True), answer.text
    assert (await bob.get("/api/stats")).json()["open"] == len(buried)


async def test_a_replay_whose_ledger_was_widened_is_not_carried_out(
    client: Client, shop: Shop, buried: list[str]
) -> None:
    ann, bob = await client(Role.OPERATOR), await client(Role.OPERATOR)
    answer = await ann.post("/api/replays", json={"query": {"tenants": ["acme"]}, "all": True, "id": "mine"})
    assert answer.status_code == 202, answer.text
    now = shop.app.clock.now()
    entry = Entry(replay="mine", letter=letter_id("orders", buried[3]), status=EntryStatus.SELECTED, at=now)
    await shop.app.store.ledger.mark([entry])
    done = await bob.post(f"/api/approvals/{answer.json()['approval']['id']}/approve")
    assert (done.status_code, "changed it in the store" in done.text) == (400, True), done.text
    assert (await ann.get("/api/replays/mine")).json()["replay"]["state"] == "paused"


async def test_a_replay_in_whose_ledger_a_letter_was_exchanged_is_not_carried_out(
    client: Client, shop: Shop, buried: list[str]
) -> None:
    ann, bob = await client(Role.OPERATOR), await client(Role.OPERATOR)
    answer = await ann.post("/api/replays", json={"query": {"tenants": ["acme"]}, "id": "mine"})
    assert answer.json()["approval"]["places"] == [["orders", "acme"]]
    before, after = (letter_id("orders", id) for id in (buried[0], buried[3]))
    with sqlite3.connect(shop.app.settings.store.removeprefix("sqlite:///")) as connection:
        statement = "UPDATE ledger SET letter_id = ? WHERE letter_id = ?"
        assert connection.execute(statement, (after, before)).rowcount == 1
    connection.close()
    done = await bob.post(f"/api/approvals/{answer.json()['approval']['id']}/approve")
    assert (done.status_code, "changed it in the store" in done.text) == (400, True), done.text
    assert (await ann.get("/api/replays/mine")).json()["replay"]["state"] == "paused"


async def test_a_yes_for_what_is_to_be_written_does_not_last_for_ever(shop: Shop) -> None:
    """A repair that was approved and never carried out waits anew, past the time that approvals have."""
    clock = ManualClock()
    approvals = Approvals(shop.app.store.documents, clock)
    ann, bob = [Actor(id=name, name=name, role=Role.OPERATOR, via=Via.TOKEN) for name in ("ann", "bob")]
    now = clock.now()
    asked = Approval(id="a", action="repair", by=ann, at=now, expires_at=now + timedelta(hours=1), total=2, digest="d")
    await approvals.ask(asked)
    await approvals.approve("a", bob)
    assert await approvals.approved("repair", "d") is not None
    await clock.advance(timedelta(hours=1).total_seconds())
    assert await approvals.approved("repair", "d") is None
    assert (await approvals.get("a")).state is ApprovalState.EXPIRED


async def test_the_undo_of_a_repair_waits_as_the_repair_does(client: Client, shop: Shop, buried: list[str]) -> None:
    ann, bob = await client(Role.OPERATOR), await client(Role.OPERATOR)
    letters = [letter_id("orders", id) for id in buried]
    proposals = [{"letter": id, "version": 0, "body": "e30=", "headers": []} for id in letters]
    repair = {"script": "mend.py", "id": "mended", "proposals": proposals}
    for path, said in (("/api/repairs", repair), ("/api/repairs/mended/undo", {})):
        waits = await ann.post(path, json=said)
        assert (waits.status_code, waits.json()["approval"]["total"]) == (202, len(buried)), waits.text
        before = [await shop.app.store.letters.get(id) for id in letters]
        approved = await bob.post(f"/api/approvals/{waits.json()['approval']['id']}/approve")
        assert approved.json()["state"] == "approved", approved.text
        assert [await shop.app.store.letters.get(id) for id in letters] == before
        done = await ann.post(path, json=said)
        assert done.status_code == 200, done.text
    assert done.json()["restored"] == len(buried)


async def test_an_approval_that_reaches_beyond_a_scope_is_not_there(
    client: Client, tokens: Tokens, shop: Shop, buried: list[str]
) -> None:
    await shop.app.store.letters.record([make_letter(make_message(source="vault", tenant="vaultcorp"))])
    ann, scope = await client(Role.OPERATOR), Scope(sources=("orders",))
    waiting = await _archive_all(ann)
    within = (await ann.post("/api/letters/archive", json={"query": {"sources": ["orders"]}})).json()["approval"]
    bob = await client((await tokens.create("bob", Role.OPERATOR, scope=scope))[1])
    listed = await bob.get("/api/approvals")
    assert ([each["id"] for each in listed.json()], "vault" in listed.text) == ([within["id"]], False)
    newer = await _archive_all(ann)
    alone = await bob.get("/api/approvals?limit=1")
    assert [each["id"] for each in alone.json()] == [within["id"]] != [newer["id"]], "one of others hides theirs"
    for verb in ("", "/approve", "/refuse", "/withdraw"):
        answers = []
        for id in (waiting["id"], "never-was"):
            path, said = f"/api/approvals/{id}{verb}", {"reason": "no"} if verb == "/refuse" else None
            answer = await (bob.post(path, json=said) if verb else bob.get(path))
            answers.append((answer.status_code, answer.text.replace(id, "ID")))
        assert answers[0] == answers[1], verb
        assert answers[0][0] == 404
    assert (await bob.get("/api/approvals/never-was")).json()["hint"] == "`redrive approvals` lists what does"
    assert (await bob.post(f"/api/approvals/{within['id']}/approve")).json()["state"] == "done"


async def test_one_yes_is_for_one_time_whoever_comes_at_once(shop: Shop) -> None:
    ann, bob = _somebody("ann"), _somebody("bob")
    services = [Service(shop.app) for _ in range(6)]

    async def asked(service: Service) -> Approval | None:
        return await service.four_eyes.check_written("replay", 50, "d" * 64, ann, reason="", what="50 streams")

    with pytest.raises(NeedsApproval) as waits:
        await asked(services[0])
    await services[0].four_eyes.approve(waits.value.approval.id, actor=bob)
    found = await asyncio.gather(*map(asked, services), return_exceptions=True)
    assert [type(answer) for answer in found].count(Approval) == 1, found
    assert {type(answer) for answer in found} == {Approval, NeedsApproval}


def _somebody(name: str) -> Actor:
    return Actor(id=f"tok-{name}", name=name, role=Role.OPERATOR, via=Via.TOKEN)


async def test_nothing_is_done_in_the_name_of_a_token_that_was_revoked(
    client: Client, tokens: Tokens, buried: list[str]
) -> None:
    gone, text = await tokens.create("ann", Role.OPERATOR)
    ann, bob = await client(text), await client(Role.OPERATOR)
    waiting = await _archive_all(ann)
    await tokens.revoke(gone.id)
    answer = await bob.post(f"/api/approvals/{waiting['id']}/approve")
    assert (answer.status_code, "was revoked since" in answer.text) == (403, True), answer.text
    assert (await bob.get("/api/stats")).json()["open"] == len(buried)
    no = await bob.post(f"/api/approvals/{waiting['id']}/refuse", json={"reason": "she has left"})
    assert no.json()["state"] == "refused"


@pytest.mark.parametrize("name", ["ann (cli)", "Ann", " ann\t(cli)", "\uff41nn"])  # the last begins with a wide a
async def test_somebody_on_the_store_and_their_own_token_are_one(shop: Shop, name: str) -> None:
    service, beside = Service(shop.app), Actor(id="", name=name, role=Role.ADMIN, via=Via.STORE)
    with pytest.raises(NeedsApproval) as waits:
        await service.four_eyes.check_written("repair", 9, "d", _somebody("ann"), reason="", what="nine letters")
    with pytest.raises(NotAllowed, match="may be the same person"):
        await service.four_eyes.approve(waits.value.approval.id, actor=beside)


async def test_a_replay_that_was_cancelled_while_it_waited_is_not_said_to_run(
    client: Client, buried: list[str]
) -> None:
    ann, bob = await client(Role.OPERATOR), await client(Role.OPERATOR)
    waiting = (await ann.post("/api/replays", json={"query": {}, "all": True, "id": "mine"})).json()["approval"]
    assert (await ann.post("/api/replays/mine/cancel")).status_code == 200
    done = (await bob.post(f"/api/approvals/{waiting['id']}/approve")).json()
    assert done["result"] == "replay mine was cancelled meanwhile: nothing was sent"
