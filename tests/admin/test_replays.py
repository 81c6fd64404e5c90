"""Replays over HTTP: planned, frozen, sent in the background, followed, stopped."""

import asyncio
from collections.abc import Awaitable, Callable

import httpx
import pytest
from msgspec.structs import replace

from redrive.access.actors import Role
from redrive.model import State
from redrive.stores.base import EntryStatus
from redrive.telemetry.events import Event, LetterResolved, MessageBuried, ReplayMoved
from redrive.testing.builders import make_letter, make_message
from tests.admin.conftest import Client, Shop


@pytest.fixture
async def http(shop: Shop, client: Client) -> httpx.AsyncClient:
    """An operator's client, on three letters."""
    for number in range(3):
        await shop.app.send("orders", {"id": number}, id=f"m{number}")
    await shop.until(MessageBuried, 3)
    return await client(Role.OPERATOR)


@pytest.fixture
def sent(shop: Shop) -> Callable[[], Awaitable[None]]:
    """Wait until a replay has sent everything."""
    done = asyncio.Event()

    def watch(event: Event) -> None:
        if isinstance(event, ReplayMoved) and event.state == "sent":
            done.set()

    shop.app.events.subscribe(watch)

    async def wait() -> None:
        async with asyncio.timeout(20):
            await done.wait()

    return wait


async def test_a_plan_counts_and_changes_nothing(http: httpx.AsyncClient) -> None:
    answer = await http.post("/api/replays/plan", json={"query": {"sources": ["orders"]}})
    plan = answer.json()
    assert (plan["total"], plan["sources"], plan["left_out"]) == (3, {"orders": 3}, 0)
    assert "hunter2" not in answer.text
    assert (await http.get("/api/stats")).json()["states"] == {"pending": 3}
    assert (await http.get("/api/replays")).json() == []


async def test_a_replay_is_frozen_at_once_and_sent_in_the_background(
    http: httpx.AsyncClient, shop: Shop, sent: Callable[[], Awaitable[None]]
) -> None:
    order = {"query": {"states": ["pending"]}, "reason": "mended", "rate": 1000.0, "id": "fix-1"}
    answer = await http.post("/api/replays", json=order)
    assert answer.status_code == 202
    replay = answer.json()
    assert (replay["id"], replay["total"], replay["reason"]) == ("fix-1", 3, "mended")
    await sent()
    shop.broken = False
    await shop.until(LetterResolved, 3)
    report = (await http.get("/api/replays/fix-1")).json()
    assert report["replay"]["state"] == "sent"
    assert report["entries"] == {"resolved": 3}


async def test_asking_twice_with_one_id_is_asking_once(
    http: httpx.AsyncClient, shop: Shop, sent: Callable[[], Awaitable[None]]
) -> None:
    order = {"query": {"message_ids": ["m0"]}, "id": "fix-1"}
    first = (await http.post("/api/replays", json=order)).json()
    await sent()
    second = (await http.post("/api/replays", json=order)).json()
    assert (first["id"], second["state"]) == ("fix-1", "sent")
    assert len((await http.get("/api/replays")).json()) == 1
    assert (await shop.app.transport().depths())["orders"].total == 1


async def test_the_ledger_is_paged(http: httpx.AsyncClient, sent: Callable[[], Awaitable[None]]) -> None:
    id = (await http.post("/api/replays", json={"query": {}, "all": True})).json()["id"]
    await sent()
    first = (await http.get(f"/api/replays/{id}/entries", params={"limit": 2})).json()
    rest = (await http.get(f"/api/replays/{id}/entries", params={"limit": 2, "after": first["after"]})).json()
    assert [len(first["entries"]), len(rest["entries"])] == [2, 1]
    only = (await http.get(f"/api/replays/{id}/entries", params={"status": "failed"})).json()
    assert only == {"entries": [], "after": None}


async def test_a_cancelled_replay_sends_no_more(http: httpx.AsyncClient) -> None:
    id = (await http.post("/api/replays", json={"query": {}, "all": True, "rate": 0.001})).json()["id"]
    report = (await http.post(f"/api/replays/{id}/cancel")).json()
    assert report["replay"]["state"] == "cancelled"
    assert report["entries"].get("sent", 0) <= 1


@pytest.mark.parametrize(
    ("order", "status", "says"),
    [
        ({"query": {}, "rate": 0}, 422, "rate"),
        ({"query": {}, "all": True, "id": "no spaces"}, 400, "no id for a replay"),
        ({"query": {"stats": ["pending"]}}, 422, "did you mean 'states'"),
        ({"query": {"states": ["dead"]}}, 422, "query.states[0]"),
        ({"query": {"since": "2026-01-01T00:00:00"}}, 422, "no time zone"),
        ({"query": {"sources": ["order"]}}, 422, "did you mean 'orders'"),
        ({"quary": {}}, 422, "did you mean 'query'"),
        ({}, 422, "query"),
    ],
)
async def test_what_is_wrong_with_an_order_is_said(
    http: httpx.AsyncClient, order: dict[str, object], status: int, says: str
) -> None:
    answer = await http.post("/api/replays", json=order)
    assert (answer.status_code, says in answer.json()["error"]) == (status, True), answer.text


async def test_lines_of_the_ledger_are_found_by_a_text_in_pages(client: Client, shop: Shop) -> None:
    letters = [make_letter(make_message(source="orders", id=f"m{number}")) for number in range(9)]
    await shop.app.store.letters.record(letters)
    await shop.app.store.letters.move([letters[8].id], expect=list(State), to=State.ARCHIVED, now=shop.app.clock.now())
    operator = await client(Role.OPERATOR)
    order = {"query": {"sources": ["orders"]}, "id": "r", "rate": 0.001, "guarded": False}
    assert (await operator.post("/api/replays", json=order)).status_code == 202
    lines, _ = await shop.app.store.ledger.entries("r")
    told = [
        replace(line, status=EntryStatus.FAILED, note=f"The gateway is away, password=hunter2, try {number}")
        for number, line in enumerate(lines)
        if number % 2
    ]
    await shop.app.store.ledger.mark(told)

    async def found(text: str, **more: str) -> list[str]:
        ids, after = list[str](), None
        while True:
            wanted = {"text": text, "limit": "3", **more} | ({"after": after} if after else {})
            page = (await operator.get("/api/replays/r/entries", params=wanted)).json()
            assert len(page["entries"]) <= 3
            ids += [entry["letter"] for entry in page["entries"]]
            if (after := page["after"]) is None:
                return ids

    assert await found("GATEWAY is away") == [line.letter for line in told]
    assert await found("gateway", status="failed") == [line.letter for line in told]
    assert await found("gateway", status="resolved") == []
    assert await found(lines[0].letter) == [lines[0].letter]
    assert await found("hunter2") == [], "what is masked cannot be searched"
