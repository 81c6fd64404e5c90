"""Costly questions at once: who asks many of them waits, and nobody else does. Every route is cheap or costly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from litestar import Litestar
from msgspec.structs import replace

from redrive.access.actors import Role
from redrive.access.tokens import Tokens
from redrive.admin.access import handlers_of
from redrive.admin.api import create_api
from redrive.admin.costly import has_text, has_text_or_is_long, is_filtered, is_long
from redrive.admin.server import Uvicorn, config_of, listen
from redrive.errors import TooManyQuestions
from redrive.forensics.query import Query
from redrive.remote.http import Http
from redrive.service import Service
from redrive.systems.files import routes as files
from redrive.systems.pipeline import routes as pipeline
from redrive.testing.waiting import until
from tests.admin.asking import asking, running
from tests.admin.conftest import Client, Shop
from tests.admin.test_roles import ROLES

# what is in neither is a new route: say here whether it is costly, and in the route where it is
COSTLY: dict[str, Any] = {
    "GET /api/letters": has_text,
    "POST /api/count": True,
    "POST /api/letters/archive": True,
    "POST /api/letters/unarchive": True,
    "POST /api/letters/purge": True,
    "GET /api/audit": is_filtered,
    "GET /api/audit/lines": True,
    "GET /api/audit/verify": True,
    "POST /api/audit/verify": True,
    "GET /api/groups": has_text_or_is_long,
    "GET /api/groups/{id}/differs": True,
    "GET /api/series": is_long,
    "GET /api/overview": is_long,
    "POST /api/replays/plan": True,
    "POST /api/replays": True,
    "GET /api/replays/{id}/entries": has_text,
    "POST /api/export": True,
    "POST /api/import": True,
    "POST /api/repairs": True,
    "POST /api/repairs/{id}/undo": True,
    "GET /api/doctor": True,
}
OF_SYSTEMS = {
    "POST /admin/dlq/{node_id}/replay": True,
    "GET /api/pipeline/graph": False,
    "GET /admin/dlq/queues": False,
    "GET /admin/dlq/queues/{queue}/messages": False,
    "GET /admin/dlq/queues/{queue}/re-drive": False,
    "POST /admin/dlq/queues/{queue}/re-drive": False,
}
CHEAP = """
GET /  GET /console  GET /console/{path}  GET /assets/{tree}/{path}  GET /healthz  GET /readyz  GET /openapi.json
GET /docs  GET /docs/openapi.json  GET /docs/{path}  GET /api/login  GET /login  GET /login/callback  POST /logout
GET /metrics  GET /api/letters/{id}  GET /api/letters/{id}/message  GET /api/groups/{id}  GET /api/muted-groups
GET /api/letters/{id}/lineage  GET /api/settings  POST /api/groups/{id}/assign  POST /api/groups/{id}/notes
GET /api/groups/{id}/notes  POST /api/groups/{id}/fix  POST /api/groups/{id}/unfix  POST /api/groups/{id}/mute
POST /api/groups/{id}/unmute  GET /api/events  GET /api/stats  GET /api/fairness  GET /api/systems  GET /api/sources
GET /api/pauses  GET /api/held-keys  GET /api/workers  GET /api/queue  POST /api/pauses  POST /api/pauses/resume
GET /api/me  GET /api/incidents  GET /api/incidents/{id}  GET /api/replays  GET /api/replays/{id}
POST /api/letters/retry  POST /api/letters/{id}/edit  POST /api/letters/{id}/undo
POST /api/incidents/{id}/acknowledge  POST /api/incidents/{id}/resolve  POST /api/incidents/{id}/notes
POST /api/replays/{id}/cancel  POST /api/replays/{id}/pace  POST /api/replays/{id}/pause
POST /api/replays/{id}/resume  POST /api/letters/{id}/unmask  GET /api/tokens  POST /api/tokens
POST /api/tokens/{id}/rotate  DELETE /api/tokens/{id}  GET /api/approvals  GET /api/approvals/{id}
POST /api/approvals/{id}/approve  POST /api/approvals/{id}/refuse  POST /api/approvals/{id}/withdraw
POST /api/letters/{id}/preview  POST /api/replays/of-letters  GET /api/audit/checkpoint  GET /api/repairs
GET /api/repairs/{id}
"""


def test_every_route_is_said_to_be_cheap_or_costly(api: Litestar) -> None:
    cheap = {line.strip() for lines in CHEAP.splitlines() for line in lines.split("  ") if line.strip()}
    assert cheap.isdisjoint(COSTLY)
    found = {f"{method} {path}": handler.opt.get("costly", False) for method, path, handler in handlers_of(api)}
    assert found == dict.fromkeys(cheap, False) | COSTLY
    assert ROLES.keys() == found.keys()


async def test_so_is_every_route_of_a_system(shop: Shop) -> None:
    of_systems = create_api(Service(shop.app), routers=[pipeline.router, files.router])
    found = {f"{method} {path}": handler.opt.get("costly", False) for method, path, handler in handlers_of(of_systems)}
    assert {name: costly for name, costly in found.items() if name not in ROLES} == OF_SYSTEMS


class Gate:
    """Plans of replays wait at it, as they would for a store that has much to count."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.inside, self.most = 0, 0
        self.open = asyncio.Event()
        plan = Service.plan

        async def waiting(service: Service, *given: Any, **more: Any) -> Any:
            self.inside += 1
            self.most = max(self.most, self.inside)
            try:
                await self.open.wait()
                return await plan(service, *given, **more)
            finally:
                self.inside -= 1

        monkeypatch.setattr(Service, "plan", waiting)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(monkeypatch)


@asynccontextmanager
async def small(shop: Shop, **limits: int) -> AsyncIterator[Litestar]:
    """The API of that shop, with other limits."""
    shop.app.settings = replace(shop.app.settings, admin=replace(shop.app.settings.admin, **limits))
    async with running(api := create_api(Service(shop.app), tokens=Tokens(shop.app.store.documents, shop.app.clock))):
        yield api


PLAN = {"query": {"sources": ["orders"]}}


async def test_who_asks_fifty_at_once_is_told_to_wait_and_stalls_nobody_else(
    client: Client, gate: Gate, buried: list[str]
) -> None:
    viewer, operator = await client(Role.VIEWER), await client(Role.OPERATOR)
    asked = [asyncio.create_task(viewer.post("/api/replays/plan", json=PLAN)) for _ in range(50)]
    await until(lambda: gate.inside == 8 and sum(task.done() for task in asked) == 42, what="the others are refused")
    refused = [task.result() for task in asked if task.done()]
    assert {answer.status_code for answer in refused} == {429}
    assert {answer.headers["retry-after"] for answer in refused} == {"1"}
    said = refused[0].json()
    assert said["kind"] == "TooManyQuestions"
    assert "costly questions of yours that are being answered: 8, and that is the most" in said["error"]
    assert "try again in 1 s" in said["hint"]
    assert (await viewer.get("/api/letters?text=orders")).status_code == 429, "of another route, too"
    for cheap in ("/api/letters", "/api/groups?spark=24", "/api/overview", "/api/series?last=30d", "/api/stats"):
        assert (await viewer.get(cheap)).status_code == 200, cheap
    assert (await operator.get("/api/letters?text=orders")).status_code == 200
    gate.open.set()
    answers = await asyncio.gather(*asked)
    assert (gate.most, sum(answer.status_code == 200 for answer in answers)) == (8, 8)
    assert (await viewer.post("/api/replays/plan", json=PLAN)).status_code == 200, "there is a place again"


async def test_all_together_have_a_bound_too(shop: Shop, tokens: Tokens, gate: Gate) -> None:
    async with small(shop, costly=2) as api:
        logins = [asking(api, (await tokens.create(name, Role.VIEWER))[1]) for name in ("ann", "bob", "cleo")]
        asked = [asyncio.create_task(http.post("/api/replays/plan", json=PLAN)) for http in logins[:2]]
        await until(lambda: gate.inside == 2, what="both are being answered")
        answer = await logins[2].post("/api/replays/plan", json=PLAN)
        assert (answer.status_code, "that are being answered: 2, and" in answer.text) == (429, True)
        gate.open.set()
        assert {answer.status_code for answer in await asyncio.gather(*asked)} == {200}
        for http in logins:
            await http.aclose()


async def test_a_question_that_fails_or_whose_client_leaves_gives_its_place_back(
    shop: Shop, tokens: Tokens, gate: Gate
) -> None:
    _, token = await tokens.create("ann", Role.VIEWER)
    async with small(shop, costly_per_login=1) as api, asking(api, token) as http:
        for _ in range(3):
            assert (await http.post("/api/replays/plan", content=b"{")).status_code == 400
        left = asyncio.create_task(http.post("/api/replays/plan", json=PLAN))
        await until(lambda: gate.inside == 1, what="it is being answered")
        left.cancel()
        await until(lambda: gate.inside == 0, what="it has ended")
        assert (await http.get("/api/letters?text=orders")).status_code == 200


@pytest.mark.parametrize(
    ("asked", "is_costly"),
    [
        ("/api/series?last=31d", True),
        ("/api/series?last=30d", False),
        ("/api/series?last=soon", False),
        ("/api/series?since=2026-01-01T00:00:00Z&until=2026-02-01T00:00:00Z", True),
        ("/api/series?since=2026-01-01T00:00:00Z&until=2026-01-02T00:00:00Z", False),
        ("/api/series?since=2001-01-01T00:00:00Z", True),
        ("/api/series?since=2001-01-01T00:00:00", False),
        ("/api/overview?last=90d", True),
        ("/api/groups?last=90d", True),
        ("/api/groups?text=x", True),
        ("/api/letters?text=", False),
    ],
)
async def test_what_a_question_asks_for_says_whether_it_is_costly(
    shop: Shop, tokens: Tokens, gate: Gate, asked: str, is_costly: bool
) -> None:
    _, token = await tokens.create("ann", Role.VIEWER)
    async with small(shop, costly_per_login=1) as api, asking(api, token) as http:
        first = asyncio.create_task(http.post("/api/replays/plan", json=PLAN))
        await until(lambda: gate.inside == 1, what="the only place is taken")
        assert ((await http.get(asked)).status_code == 429) is is_costly
        gate.open.set()
        assert (await first).status_code == 200


async def test_the_command_line_waits_for_a_place_and_says_it_where_there_is_none(
    shop: Shop, tokens: Tokens, gate: Gate, waits: Waits
) -> None:
    shop.app.settings = replace(shop.app.settings, admin=replace(shop.app.settings.admin, costly_per_login=1))
    server = Uvicorn(config_of(create_api(Service(shop.app), tokens=tokens), shop.app.settings.admin))
    socket = listen("127.0.0.1", 0)
    serving = asyncio.create_task(server.serve([socket]))
    http = Http(f"http://127.0.0.1:{socket.getsockname()[1]}", (await tokens.create("ann", Role.VIEWER))[1])
    try:
        first = asyncio.create_task(http.post(Any, "/api/replays/plan", PLAN))
        await until(lambda: gate.inside == 1, what="the only place is taken")
        with pytest.raises(TooManyQuestions, match="of yours that are being answered: 1, and that is the most at once"):
            await http.post(Any, "/api/count", Query())
        assert waits.said == [1.0] * 10
        waits.until = first
        gate.open.set()
        assert await http.post(Any, "/api/count", Query()) == {"count": 0}
    finally:
        await http.aclose()
        server.should_exit = True
        await serving
        socket.close()


class Waits:
    """What the command line waits for, without the time."""

    def __init__(self) -> None:
        self.said: list[float] = []
        self.until: asyncio.Task[Any] | None = None

    async def sleep(self, seconds: float) -> None:
        self.said.append(seconds)
        if self.until is not None:
            await self.until


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Waits:
    made = Waits()
    monkeypatch.setattr("redrive.remote.http.sleep", made.sleep)
    return made
