"""The demonstration as somebody meets it who opens the console: every page has something to show."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from redrive.demo import Demo
from redrive.demo.tickets import TOPIC, TicketsLife
from redrive.forensics.query import Query
from redrive.testing.waiting import until
from tests.admin.process import redrive

SOON = 300.0
"""Seconds: on a machine that may have much else to do."""


class Console:
    """What the pages ask."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def ask(self, path: str, **parameters: Any) -> Any:
        answer = await self._http.get(f"/api/{path}", params=parameters)
        assert answer.status_code == 200, f"{path}: {answer.text}"
        return answer.json()

    async def groups(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = await self.ask("groups", spark=24, last="24h", with_muted=True)
        return found

    async def replays(self) -> dict[str, dict[str, Any]]:
        """One of each state."""
        return {replay["state"]: replay for replay in await self.ask("replays")}


@pytest.fixture
async def console(tmp_path: Path) -> AsyncIterator[Console]:
    async with redrive(tmp_path, "demo", "--port", "0", "--dir", str(tmp_path / "demo")) as demo:
        address = await demo.line(r"(http://127\.0\.0\.1:\d+/)#token=(rdr_[\w-]+)", timeout=SOON)
        headers = {"Authorization": f"Bearer {address[2]}"}
        async with httpx.AsyncClient(base_url=address[1], headers=headers, timeout=SOON) as http:
            yield Console(http)
        await demo.line(r"sent \d+, letters", timeout=SOON)
        assert await demo.end(signal.SIGINT) == 0


async def test_every_page_has_something_to_show(console: Console) -> None:
    await _has_a_past(console)
    await _groups_are_in_every_state(console)
    await _replays_run_and_pause(console)
    await _a_storm_is_held_and_told(console)
    await _a_letter_has_versions(console)
    assert [(waits["action"], waits["state"]) for waits in await console.ask("approvals")] == [("archive", "waiting")]
    assert {line["actor"].partition(" ")[0] for line in await console.ask("audit")} >= {"ann", "bob", "chris"}


async def _has_a_past(console: Console) -> None:
    overview = await console.ask("overview", last="24h")
    for outcome in ("buried", "retried", "resolved"):
        assert 0 < overview["totals"][outcome]["before"] < overview["totals"][outcome]["now"]
    assert overview["oldest"] is not None
    assert all(backend["ok"] for backend in overview["backends"])
    by_source = await console.ask("series", last="24h", by="source")
    sources = {line["name"]: line for line in by_source["lines"]}
    assert sources.keys() >= {"docs.ocr", "email:send", "execution.tickets", "q.thumbnail", "workflow"}
    assert sum(count > 0 for count in sources["email:send"]["counts"]) > 10
    by_category = await console.ask("series", last="24h", by="category")
    assert len(by_category["lines"]) >= 4


async def _groups_are_in_every_state(console: Console) -> None:
    async def are_there() -> bool:
        groups = await console.groups()
        trends, states = {group["trend"] for group in groups}, {group["state"] for group in groups}
        everything = {"new", "growing", "steady", "quiet", "regressed"}
        return everything <= trends and states >= {"open", "fixed", "muted", "regressed"}

    await until(are_there, timeout=SOON, what="groups of every trend and state")
    noted = next(group for group in await console.groups() if group["assignee"] == "ann")
    assert await console.ask(f"groups/{noted['id']}/notes")
    bug = next(group for group in await console.groups() if "orientation" in group["message"])
    [letter] = (await console.ask("letters", groups=bug["id"], limit=1))["letters"]
    assert "in turns" in (await console.ask(f"letters/{letter['id']}"))["failures"][-1]["stack"]


async def _replays_run_and_pause(console: Console) -> None:
    async def are_there() -> bool:
        return {"paused", "sent"} <= (await console.replays()).keys()

    await until(are_there, timeout=SOON, what="a replay that is paused, and one that is done")
    found = await console.replays()
    assert found["paused"]["paused"]["by"] == "guard"
    for state in ("paused", "sent"):
        assert (await console.ask(f"replays/{found[state]['id']}/entries"))["entries"]


async def _a_storm_is_held_and_told(console: Console) -> None:
    async def is_held() -> bool:
        stats = await console.ask("stats")
        return any(source["paused"] and source["paused"]["storm"] for source in stats["sources"])

    async def is_told() -> bool:
        return "SourceStorm" in {incident["alert"]["name"] for incident in await console.ask("incidents")}

    await until(is_held, timeout=SOON, what="a storm that is held")
    await until(is_told, timeout=SOON, what="an incident of it")
    workers = {worker["worker"]: worker["version"] for worker in await console.ask("workers")}
    assert workers.keys() >= {"agent-1", "engine-1", "extractor-1", "images-1", "mail-1"}


async def _a_letter_has_versions(console: Console) -> None:
    poisoned = next(group for group in await console.groups() if group["error_type"] == "ZeroDivisionError")
    letters = (await console.ask("letters", groups=poisoned["id"]))["letters"]
    lineages = [await console.ask(f"letters/{letter['id']}/lineage") for letter in letters]
    assert max(len(lineage["versions"]) for lineage in lineages) == 2


async def test_what_was_kept_goes_on_and_is_not_seeded_again(tmp_path: Path) -> None:
    async def letters() -> int:
        async with Demo(tmp_path).opened() as app, app:
            return await app.store.letters.count(Query())

    first = await letters()
    assert first > 500
    assert await letters() == first


async def test_left_open_it_does_not_fill_a_queue_that_nobody_empties(tmp_path: Path) -> None:
    stage = Demo(tmp_path).stage
    life = TicketsLife(stage)
    async with life.app as app:
        await app.send_messages([life.ticket() for _ in range(1000)])
        await stage.send(app, life.ticket())
        assert (await app.transport().depths())[TOPIC].ready == 1000
