"""Acts past a size wait for a second person, and what was approved is exactly what was frozen."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from litestar import Litestar
from msgspec.structs import replace

from redrive.access.actors import Role
from redrive.access.tokens import Tokens
from redrive.admin.api import create_api
from redrive.config.settings import Access
from redrive.service import Service
from tests.admin.asking import running
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


async def test_what_changed_since_is_left_alone(client: Client, shop: Shop, buried: list[str]) -> None:
    ann, bob = await client(Role.OPERATOR), await client(Role.OPERATOR)
    waiting = await _archive_all(ann)
    one = await ann.post("/api/letters/archive", json={"ids": buried[:1]})
    assert one.json() == {"archived": 1}, "one letter alone does not wait"
    answer = (await bob.post(f"/api/approvals/{waiting['id']}/approve")).json()
    left = len(buried) - 1
    assert answer["result"] == f"{left} of {len(buried)} letters; 1 skipped: archived now"


async def test_what_is_refused_or_withdrawn_is_not_done(client: Client, shop: Shop, buried: list[str]) -> None:
    ann, bob = await client(Role.OPERATOR), await client(Role.OPERATOR)
    first, second = await _archive_all(ann), await _archive_all(ann)
    assert (await bob.post(f"/api/approvals/{first['id']}/withdraw")).status_code == 403
    refused = await bob.post(f"/api/approvals/{first['id']}/refuse", json={"reason": "not on a Friday"})
    assert (refused.json()["state"], refused.json()["why"]) == ("refused", "not on a Friday")
    assert (await ann.post(f"/api/approvals/{second['id']}/withdraw")).json()["state"] == "withdrawn"
    for id in (first["id"], second["id"]):
        assert (await bob.post(f"/api/approvals/{id}/approve")).status_code == 400
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
