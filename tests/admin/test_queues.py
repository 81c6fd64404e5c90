"""Pausing, workers and queues through the API."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from redrive.access.actors import Role
from redrive.testing.waiting import until
from redrive.worker import Worker
from tests.admin.conftest import SECRET, Client, Shop


@pytest.fixture
async def operator(client: Client) -> httpx.AsyncClient:
    return await client(Role.OPERATOR)


async def test_a_source_is_paused_and_resumed_and_both_are_in_the_audit_trail(
    operator: httpx.AsyncClient, client: Client, shop: Shop
) -> None:
    answer = await operator.post("/api/pauses", json={"source": "orders", "why": f"no {SECRET}", "seconds": 60})
    assert answer.status_code == 200
    first = answer.json()
    assert (first["is_new"], first["pause"]["source"], first["pause"]["transport"]) == (True, "orders", "default")
    assert "hunter2" not in answer.text
    second = (await operator.post("/api/pauses", json={"source": "orders", "why": "me too"})).json()
    assert second == {"is_new": False, "pause": first["pause"]}
    assert (await operator.get("/api/pauses")).json() == [first["pause"]]
    [source] = [item for item in (await operator.get("/api/stats")).json()["sources"] if item["source"] == "orders"]
    assert source["paused"]["by"] == first["pause"]["by"]
    ended = (await operator.post("/api/pauses/resume", json={"source": "orders"})).json()
    assert ended == {"ended": first["pause"]}
    assert (await operator.post("/api/pauses/resume", json={"source": "orders"})).json() == {"ended": None}
    trail = (await (await client(Role.ADMIN)).get("/api/audit")).json()
    assert {line["actor"] for line in trail} == {first["pause"]["by"]}
    assert [line["action"] for line in trail] == ["resume", "resume", "pause", "pause"], "what changed nothing, too"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"source": "order"}, "did you mean 'orders'"),
        ({"source": ""}, "source"),
        ({"source": "orders", "seconds": 0}, "seconds"),
        ({"source": "orders", "transport": "elsewhere"}, "transport 'elsewhere' is not configured"),
        ({"source": "orders", "reason": "x"}, "unknown field"),
        ({}, "source"),
    ],
)
async def test_what_cannot_be_paused_is_refused_with_a_reason(
    operator: httpx.AsyncClient, body: dict[str, Any], said: str
) -> None:
    answer = await operator.post("/api/pauses", json=body)
    assert 400 <= answer.status_code < 500
    assert said in answer.json()["error"]
    assert (await operator.get("/api/pauses")).json() == []


async def test_a_source_that_nobody_knows_is_paused_by_force_and_known_from_then_on(
    operator: httpx.AsyncClient,
) -> None:
    assert (await operator.post("/api/pauses", json={"source": "soon", "force": True})).json()["is_new"]
    assert (await operator.post("/api/pauses/resume", json={"source": "soon"})).json()["ended"]["source"] == "soon"


async def test_a_queue_is_shown_redacted_page_by_page(operator: httpx.AsyncClient, shop: Shop) -> None:
    for number in range(3):
        await shop.app.send("orders", {"id": number, "password": "hunter2"}, id=f"m{number}", key="k")
    page = (await operator.get("/api/queue", params={"source": "orders", "limit": 2})).json()
    assert (page["depth"], page["paused"]) == ({"ready": 3, "delayed": 0, "leased": 0}, None)
    assert [message["id"] for message in page["messages"]] == ["m0", "m1"]
    assert "hunter2" not in str(page)
    rest = (await operator.get("/api/queue", params={"source": "orders", "after": page["after"]})).json()
    assert [(message["id"], message["key"], message["attempt"]) for message in rest["messages"]] == [("m2", "k", 1)]
    assert rest["after"] is None
    for wrong in ({"source": "order"}, {"source": "orders", "state": "lost"}, {"source": "orders", "after": "x"}, {}):
        assert 400 <= (await operator.get("/api/queue", params=wrong)).status_code < 500


async def test_what_is_in_hand_is_shown_with_its_worker(operator: httpx.AsyncClient, shop: Shop) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def hold(order: dict[str, Any]) -> None:
        begun.set()
        await go_on.wait()

    shop.app.handler("emails")(hold)
    await shop.app.send("emails", {}, id="held")
    worker = Worker(shop.app, upkeep=False)
    running = asyncio.create_task(worker.run())
    await begun.wait()

    async def workers() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await operator.get("/api/workers")).json()
        return found

    async def is_heard() -> bool:
        return bool(await workers())

    await until(is_heard, what="the worker says that it is there")
    [seen] = await workers()
    assert (seen["worker"], seen["state"], seen["clock_apart"]) == ("w", "running", None)
    assert [source["source"] for source in seen["sources"]] == ["orders", "emails"]
    [message] = (await operator.get("/api/queue", params={"source": "emails", "state": "leased"})).json()["messages"]
    assert (message["id"], message["leased_by"], message["attempt"]) == ("held", "w", 1)
    worker.stop()
    go_on.set()
    await running
    assert await workers() == [], "one that ends cleanly is not looked for"
