"""A replay over HTTP while it runs: paused, gone on with, made faster, slower, more or less careful."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import httpx
import pytest

from redrive.access.actors import Role
from redrive.admin.background import Background
from redrive.service import Service
from redrive.telemetry.events import MessageBuried
from redrive.testing.waiting import until
from tests.admin.conftest import SECRET, Client, Shop

SLOW = {"query": {}, "all": True, "rate": 0.001, "id": "fix-1"}  # one letter, then a quarter of an hour of rest


@pytest.fixture
async def http(shop: Shop, client: Client) -> httpx.AsyncClient:
    """An operator's client, on three letters."""
    for number in range(3):
        await shop.app.send("orders", {"id": number}, id=f"m{number}")
    await shop.until(MessageBuried, 3)
    return await client(Role.OPERATOR)


@pytest.fixture
async def running(http: httpx.AsyncClient) -> httpx.AsyncClient:
    """The same, with a slow replay of them."""
    assert (await http.post("/api/replays", json=SLOW)).status_code == 202
    return http


async def _report(http: httpx.AsyncClient) -> dict[str, Any]:
    found: dict[str, Any] = (await http.get("/api/replays/fix-1")).json()
    return found


async def _is_sent(http: httpx.AsyncClient) -> bool:
    report = await _report(http)
    return (report["replay"]["state"], report["entries"]) == ("sent", {"sent": 3})


async def test_it_is_paused_with_a_reason_and_gone_on_with_and_both_are_in_the_audit_trail(
    running: httpx.AsyncClient, client: Client
) -> None:
    answer = await running.post("/api/replays/fix-1/pause", json={"reason": "lunch"})
    assert answer.status_code == 200
    replay = answer.json()["replay"]
    assert (replay["state"], replay["paused"]["by"], replay["paused"]["why"]) == ("paused", "hand", "lunch")
    again = (await running.post("/api/replays/fix-1/pause", json={})).json()["replay"]
    assert again["paused"] == replay["paused"], "a second pause changes nothing"
    await running.post("/api/replays/fix-1/pace", json={"unlimited": True})
    resumed = await running.post("/api/replays/fix-1/resume")
    assert (resumed.status_code, resumed.json()["replay"]["paused"]) == (202, None)
    await until(lambda: _is_sent(running), what="it is at its end")
    trail = (await (await client(Role.ADMIN)).get("/api/audit")).json()
    actions = [line["action"] for line in trail if "fix-1" in str(line)]
    assert actions == ["resume-replay", "pace-replay", "pause-replay", "pause-replay", "replay"]


async def test_its_pace_changes_while_it_runs(running: httpx.AsyncClient) -> None:
    changed = (await running.post("/api/replays/fix-1/pace", json={"rate": 0.002, "guard": 20})).json()["replay"]
    assert (changed["rate"], changed["guard"]["share"]) == (0.002, 0.2)
    changed = (await running.post("/api/replays/fix-1/pace", json={"guarded": False})).json()["replay"]
    assert (changed["rate"], changed["guard"]) == (0.002, None)
    changed = (await running.post("/api/replays/fix-1/pace", json={"unlimited": True})).json()["replay"]
    assert (changed["rate"], changed["guard"]) == (None, None)
    await until(lambda: _is_sent(running), what="it is at its end, without its quarter of an hour")


WRONG: list[tuple[str, dict[str, object], int, str]] = [
    ("pace", {"rate": 0}, 422, "rate"),
    ("pace", {"rate": -1}, 422, "rate"),
    ("pace", {"rate": "fast"}, 422, "rate"),
    ("pace", {"guard": 101}, 422, "guard"),
    ("pace", {"gaurd": 10}, 422, "did you mean 'guard'"),
    ("pace", {"rate": 1, "unlimited": True}, 400, "but not both"),
    ("pace", {"guard": 5, "guarded": False}, 400, "but not both"),
    ("pace", {}, 400, "what is to change"),
    ("pause", {"why": "lunch"}, 422, "why"),
    ("pause", {"reason": 7}, 422, "reason"),
    ("pause", {"reason": "x" * 1001}, 422, "reason"),
]


async def test_what_is_wrong_is_said_and_nothing_changes(
    running: httpx.AsyncClient,
) -> None:
    for route, body, status, says in WRONG:
        answer = await running.post(f"/api/replays/fix-1/{route}", json=body)
        assert (answer.status_code, says in answer.json()["error"]) == (status, True), answer.text
    replay = (await _report(running))["replay"]
    assert (replay["state"], replay["rate"], replay["guard"]) == ("running", 0.001, None)


SENSELESS: list[tuple[dict[str, object], int, str]] = [
    ({"canary": 0}, 422, "canary"),
    ({"canary": 10**20}, 422, "canary"),
    ({"ramp": [20, 5]}, 400, "each more than the one before"),
    ({"ramp": [0, 100]}, 400, "percent of the selection"),
    ({"ramp": [101]}, 422, "ramp"),
    ({"guard": 5, "guarded": False}, 400, "guarded: false"),
    ({"deadline_seconds": 0}, 400, "deadline=0:00:00"),
    ({"deadline_seconds": 1e12}, 422, "deadline_seconds"),
]


async def test_a_guard_that_makes_no_sense_starts_nothing(
    http: httpx.AsyncClient,
) -> None:
    for order, status, says in SENSELESS:
        answer = await http.post("/api/replays", json={"query": {}, "all": True, **order})
        assert (answer.status_code, says in answer.json()["error"]) == (status, True), answer.text
    assert (await http.get("/api/replays")).json() == []


@pytest.mark.parametrize("route", ["pause", "resume", "pace"])
async def test_a_replay_that_is_not_there_is_404(http: httpx.AsyncClient, route: str) -> None:
    answer = await http.post(f"/api/replays/nothing/{route}", json={"rate": 1} if route == "pace" else {})
    assert (answer.status_code, "no replay 'nothing'" in answer.json()["error"]) == (404, True), answer.text


@pytest.mark.parametrize("route", ["pause", "resume", "pace", "cancel"])
async def test_a_viewer_may_change_none(running: httpx.AsyncClient, client: Client, route: str) -> None:
    answer = await (await client(Role.VIEWER)).post(f"/api/replays/fix-1/{route}", json={})
    assert answer.status_code == 403
    assert (await _report(running))["replay"]["state"] == "running"


@pytest.mark.parametrize("route", ["pause", "pace"])
async def test_what_has_ended_says_so(running: httpx.AsyncClient, route: str) -> None:
    await running.post("/api/replays/fix-1/cancel")
    answer = await running.post(f"/api/replays/fix-1/{route}", json={"rate": 1} if route == "pace" else {})
    assert (answer.status_code, "is cancelled: it cannot be" in answer.json()["error"]) == (400, True), answer.text


async def test_secrets_in_a_reason_are_masked(running: httpx.AsyncClient) -> None:
    answer = await running.post("/api/replays/fix-1/pause", json={"reason": f"no {SECRET}"})
    assert "hunter2" not in answer.text


class _Held:
    """Runs a replay until it is let go."""

    def __init__(self) -> None:
        self.runs = 0
        self.go = asyncio.Event()

    async def run_replay(self, id: str) -> None:
        self.runs += 1
        await self.go.wait()


async def test_what_is_resumed_while_its_run_is_ending_is_run_once_more() -> None:
    held = _Held()
    background = Background(cast(Service, held))
    background.run("fix-1")
    await until(lambda: held.runs == 1, what="it runs")
    background.run("fix-1")
    background.run("fix-1")
    held.go.set()
    await until(lambda: held.runs == 2, what="it is run again")
    await background.aclose()
    assert held.runs == 2
