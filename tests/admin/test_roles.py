"""Every route with every role. A route that names none cannot even be served."""

import re

import pytest
from litestar import Litestar, Router, get

from redrive.access.actors import Role
from redrive.admin.access import handlers_of
from redrive.admin.api import create_api
from redrive.errors import ConfigError
from redrive.service import Service
from tests.admin.conftest import Client, Shop

# the whole table, so that a change of a role is seen in a review
ROLES = {
    "GET /": None,
    "GET /console": None,
    "GET /console/{path}": None,
    "GET /assets/{tree}/{path}": None,
    "GET /healthz": None,
    "GET /readyz": None,
    "GET /openapi.json": None,
    "GET /docs": None,
    "GET /docs/openapi.json": None,
    "GET /docs/{path}": None,
    "GET /api/login": None,
    "GET /login": None,
    "GET /login/callback": None,
    "POST /logout": None,
    "GET /metrics": Role.VIEWER,
    "GET /api/letters": Role.VIEWER,
    "GET /api/letters/{id}": Role.VIEWER,
    "GET /api/letters/{id}/message": Role.VIEWER,
    "GET /api/groups": Role.VIEWER,
    "GET /api/groups/{id}": Role.VIEWER,
    "GET /api/muted-groups": Role.VIEWER,
    "GET /api/letters/{id}/lineage": Role.VIEWER,
    "GET /api/settings": Role.ADMIN,
    "GET /api/groups/{id}/differs": Role.VIEWER,
    "POST /api/groups/{id}/assign": Role.OPERATOR,
    "POST /api/groups/{id}/notes": Role.OPERATOR,
    "GET /api/groups/{id}/notes": Role.VIEWER,
    "POST /api/groups/{id}/fix": Role.OPERATOR,
    "POST /api/groups/{id}/unfix": Role.OPERATOR,
    "POST /api/groups/{id}/mute": Role.OPERATOR,
    "POST /api/groups/{id}/unmute": Role.OPERATOR,
    "GET /api/events": Role.VIEWER,
    "GET /api/series": Role.VIEWER,
    "GET /api/overview": Role.VIEWER,
    "GET /api/stats": Role.VIEWER,
    "GET /api/fairness": Role.VIEWER,
    "GET /api/systems": Role.VIEWER,
    "GET /api/sources": Role.VIEWER,
    "GET /api/pauses": Role.VIEWER,
    "GET /api/held-keys": Role.VIEWER,
    "GET /api/workers": Role.VIEWER,
    "GET /api/queue": Role.VIEWER,
    "POST /api/pauses": Role.OPERATOR,
    "POST /api/pauses/resume": Role.OPERATOR,
    "GET /api/me": Role.VIEWER,
    "GET /api/incidents": Role.VIEWER,
    "GET /api/incidents/{id}": Role.VIEWER,
    "GET /api/replays": Role.VIEWER,
    "GET /api/replays/{id}": Role.VIEWER,
    "GET /api/replays/{id}/entries": Role.VIEWER,
    "POST /api/replays/plan": Role.VIEWER,
    "POST /api/letters/retry": Role.OPERATOR,
    "POST /api/letters/archive": Role.OPERATOR,
    "POST /api/letters/unarchive": Role.OPERATOR,
    "POST /api/letters/{id}/edit": Role.OPERATOR,
    "POST /api/letters/{id}/undo": Role.OPERATOR,
    "POST /api/incidents/{id}/acknowledge": Role.OPERATOR,
    "POST /api/incidents/{id}/resolve": Role.OPERATOR,
    "POST /api/incidents/{id}/notes": Role.OPERATOR,
    "POST /api/replays": Role.OPERATOR,
    "POST /api/replays/{id}/cancel": Role.OPERATOR,
    "POST /api/replays/{id}/pace": Role.OPERATOR,
    "POST /api/replays/{id}/pause": Role.OPERATOR,
    "POST /api/replays/{id}/resume": Role.OPERATOR,
    "GET /api/audit": Role.ADMIN,
    "GET /api/audit/verify": Role.ADMIN,
    "POST /api/letters/{id}/unmask": Role.VIEWER,
    "GET /api/tokens": Role.ADMIN,
    "POST /api/tokens": Role.ADMIN,
    "POST /api/tokens/{id}/rotate": Role.ADMIN,
    "DELETE /api/tokens/{id}": Role.ADMIN,
    "GET /api/approvals": Role.OPERATOR,
    "GET /api/approvals/{id}": Role.OPERATOR,
    "POST /api/approvals/{id}/approve": Role.OPERATOR,
    "POST /api/approvals/{id}/refuse": Role.OPERATOR,
    "POST /api/approvals/{id}/withdraw": Role.OPERATOR,
    "GET /api/doctor": Role.ADMIN,
    "POST /api/count": Role.VIEWER,
    "POST /api/letters/{id}/preview": Role.OPERATOR,
    "POST /api/letters/purge": Role.ADMIN,
    "POST /api/replays/of-letters": Role.OPERATOR,
    "POST /api/export": Role.ADMIN,
    "POST /api/import": Role.ADMIN,
    "GET /api/audit/lines": Role.ADMIN,
    "GET /api/audit/checkpoint": Role.ADMIN,
    "POST /api/audit/verify": Role.ADMIN,
    "GET /api/repairs": Role.VIEWER,
    "GET /api/repairs/{id}": Role.VIEWER,
    "POST /api/repairs": Role.OPERATOR,
    "POST /api/repairs/{id}/undo": Role.OPERATOR,
}


def test_every_route_names_the_role_it_needs(api: Litestar) -> None:
    assert {f"{method} {path}": handler.opt["role"] for method, path, handler in handlers_of(api)} == ROLES


@pytest.mark.parametrize("asked", ROLES)
async def test_each_role_gets_in_where_it_may_and_nowhere_else(client: Client, asked: str) -> None:
    method, path = asked.split()
    path = re.sub(r"{\w+}", "nothing", path) + ("?seconds=0" if path == "/api/events" else "")
    needed = ROLES[asked]
    for role in (None, "rdr_unknownids_" + "x" * 43, *Role):
        answer = await (await client(role)).request(method, path)
        if needed is None or (isinstance(role, Role) and role.allows(needed)):
            assert answer.status_code not in (401, 403), (role, answer.text)
        elif isinstance(role, Role):
            assert answer.status_code == 403
            assert f'error="insufficient_scope", scope="{needed}"' in answer.headers["www-authenticate"]
            assert needed in answer.json()["error"]
        else:
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"].startswith('Bearer realm="redrive"')
            assert answer.json()["hint"]


async def test_another_scheme_is_no_token(client: Client) -> None:
    answer = await (await client(None)).get("/api/stats", headers={"Authorization": "Basic cmRyOngK"})
    assert answer.status_code == 401


async def test_a_router_of_ones_own_is_served_with_its_role(shop: Shop) -> None:
    @get("/queues", role=Role.ADMIN)
    async def queues() -> list[str]:
        return []

    api = create_api(Service(shop.app), routers=[Router("/admin/dlq", route_handlers=[queues])])
    assert ("GET", "/admin/dlq/queues") in {(method, path) for method, path, _ in handlers_of(api)}


async def test_a_router_with_an_open_route_is_refused(shop: Shop) -> None:
    @get("/open")
    async def leaks() -> str:
        return "everything"

    outer = Router("/x", route_handlers=[Router("/", route_handlers=[leaks])])
    with pytest.raises(ConfigError, match=r"open names no role"):
        create_api(Service(shop.app), routers=[outer])
