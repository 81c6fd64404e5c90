"""Whatever route changes something, the trail has it before it is done, and what became of it after that.

The routes are those of the API itself: a new one that writes has to be named here, and asked.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from litestar import Litestar

from redrive.access.actors import Role, Scope
from redrive.access.approvals import Approval, Approvals
from redrive.access.tokens import Tokens
from redrive.access.trail import Line, Phase
from redrive.admin.access import handlers_of
from redrive.alerts.incidents import Incidents, Timing
from redrive.alerts.model import Alert, Severity
from redrive.forensics.query import Query
from redrive.forensics.transfer import line_of
from redrive.model import Letter
from redrive.service import Service
from redrive.testing.builders import make_failure, make_letter, make_message
from tests.actors import acting
from tests.admin.asking import asking
from tests.admin.conftest import Shop

CHANGE_NOTHING = {"/api/count", "/api/replays/plan", "/api/letters/{id}/preview", "/api/audit/verify"}
OF_THE_BROWSER = {"/logout"}  # a line of its own, in test_sessions.py
NEVER, EDITED, GONE = "letter-1", "letter-2", "letter-3"
WRITES: dict[str, tuple[str, Any]] = {
    "POST /api/letters/retry": ("replay", {"ids": [NEVER]}),
    "POST /api/letters/archive": ("archive", {"ids": [NEVER]}),
    "POST /api/letters/unarchive": ("unarchive", {"ids": [NEVER]}),
    "POST /api/letters/purge": ("purge", {"ids": [GONE]}),
    "POST /api/letters/{id}/edit": ("edit", {"version": 1, "body": "{}"}),
    "POST /api/letters/{id}/undo": ("undo", {"version": 2}),
    "POST /api/letters/{id}/unmask": ("unmask", {"reason": "ticket 1"}),
    "POST /api/export": ("export", {}),
    "POST /api/import": ("import", None),
    "POST /api/repairs": ("repair", {"script": "mend.py", "id": "mended", "proposals": []}),
    "POST /api/repairs/{id}/undo": ("repair", {}),
    "POST /api/groups/{id}/fix": ("fix", {"version": "1.0"}),
    "POST /api/groups/{id}/unfix": ("unfix", {}),
    "POST /api/groups/{id}/mute": ("mute", {"seconds": 60, "why": "x"}),
    "POST /api/groups/{id}/unmute": ("unmute", {}),
    "POST /api/groups/{id}/notes": ("note-group", {"text": "x"}),
    "POST /api/groups/{id}/assign": ("assign", {"to": "ann"}),
    "POST /api/replays": ("replay", {"query": {"ids": ["nothing"]}}),
    "POST /api/replays/of-letters": ("replay", {"ids": [EDITED]}),
    "POST /api/replays/{id}/pause": ("pause-replay", {}),
    "POST /api/replays/{id}/pace": ("pace-replay", {"rate": 1}),
    "POST /api/replays/{id}/resume": ("resume-replay", {}),
    "POST /api/replays/{id}/cancel": ("cancel", {}),
    "POST /api/approvals/{id}/approve": ("approve", {}),
    "POST /api/approvals/{id}/refuse": ("refuse", {"reason": "x"}),
    "POST /api/approvals/{id}/withdraw": ("withdraw", {}),
    "POST /api/incidents/{id}/acknowledge": ("acknowledge", {}),
    "POST /api/incidents/{id}/notes": ("note", {"text": "x"}),
    "POST /api/incidents/{id}/resolve": ("resolve", {}),
    "POST /api/pauses": ("pause", {"source": "orders"}),
    "POST /api/pauses/resume": ("resume", {"source": "orders"}),
    "POST /api/tokens": ("token create", {"name": "x", "role": "viewer"}),
    "POST /api/tokens/{id}/rotate": ("token rotate", {}),
    "DELETE /api/tokens/{id}": ("token revoke", None),
}


@pytest.fixture
async def ids(shop: Shop, tokens: Tokens) -> dict[str, str]:
    """Something of each kind that may be acted on."""
    app, service = shop.app, Service(shop.app)
    letters = [_letter(id) for id in (NEVER, EDITED, GONE)]
    await app.store.letters.record(letters)
    await service.edits.edit(letters[1], actor=acting("ann"), body=b'{"n":2}')
    replay = await service.replay(Query(ids=(letters[0].id,)), actor=acting("ann"))
    now = app.clock.now()
    asked = Approval(
        id="asked", action="archive", by=acting("ann"), at=now, expires_at=now + timedelta(days=1), total=0
    )
    await Approvals(app.store.documents, app.clock).ask(asked)
    alert = Alert(key="k", name="Growing", severity=Severity.WARNING, summary="it grows", starts_at=now)
    timing = Timing(timedelta(hours=1), timedelta(hours=1))
    incident = await Incidents(app.store.documents, app.clock, app.events).report(alert, timing)
    return {
        "letters": letters[1].id,
        "groups": letters[0].group,
        "replays": replay.id,
        "approvals": "asked",
        "incidents": incident.id,
        "repairs": "mended",
        "tokens": (await tokens.create("somebody", Role.VIEWER))[0].id,
    }


def _letter(id: str) -> Letter:
    return make_letter(make_message(id=id, source="orders", body=b'{"n":1}'), make_failure())


def test_every_route_that_writes_is_asked(api: Litestar) -> None:
    routes = {f"{method} {path}" for method, path, _ in handlers_of(api) if method not in ("GET", "HEAD")}
    assert routes - {f"POST {path}" for path in CHANGE_NOTHING | OF_THE_BROWSER} == {*WRITES}


async def test_every_act_is_written_before_it_is_done(
    api: Litestar, shop: Shop, tokens: Tokens, ids: dict[str, str]
) -> None:
    trail = Service(shop.app).trail
    async with asking(api, (await tokens.create("boss", Role.ADMIN, unmask=True))[1]) as http:
        for route, (action, body) in WRITES.items():
            method, path = route.split()
            if path == "/api/repairs":
                letter = {"letter": ids["letters"], "version": 3, "body": "eyJuIjo0fQ==", "headers": []}
                body = {**body, "proposals": [letter]}
            more: dict[str, Any] = {"content": line_of(_letter("new"))} if path == "/api/import" else {"json": body}
            known = {line.seq async for line in trail.lines()}
            answer = await http.request(method, path.replace("{id}", ids.get(path.split("/")[2], "")), **more)
            lines = [line async for line in trail.lines(ascending=True) if line.seq not in known]
            assert _is_whole(action, lines), (route, answer.status_code, answer.text, lines)


def _is_whole(action: str, lines: list[Line]) -> bool:
    """Whether an act of that name began, and a later line says what became of it."""
    began = [line.seq for line in lines if (line.action, line.outcome) == (action, Phase.BEGAN)]
    ended = [line.of for line in lines if line.action == action and line.outcome is not Phase.BEGAN]
    return bool(began) and sorted(began) == sorted(seq for seq in ended if seq is not None)


async def test_a_question_of_the_whole_by_somebody_of_a_part_is_written_down(
    api: Litestar, shop: Shop, tokens: Tokens
) -> None:
    made, text = await tokens.create("eve", Role.ADMIN, scope=Scope(sources=("mail.*",)))
    async with asking(api, text) as http:
        assert (await http.get("/api/settings")).status_code == 403
    (line,) = [line async for line in Service(shop.app).trail.lines() if line.id == made.id]
    assert (line.outcome, line.detail) == (Phase.REFUSED, "GET /api/settings is of the whole installation")


async def test_a_request_that_takes_another_role_is_written_down(api: Litestar, shop: Shop, tokens: Tokens) -> None:
    made, text = await tokens.create("eve", Role.VIEWER)
    async with asking(api, text) as http:
        for method, path in (("POST", "/api/letters/archive"), ("GET", "/api/audit"), ("DELETE", "/api/tokens/x")):
            assert (await http.request(method, path)).status_code == 403
    lines = [line async for line in Service(shop.app).trail.lines(ascending=True) if line.id == made.id]
    assert [(line.action, line.outcome, line.detail) for line in lines] == [
        ("request", Phase.REFUSED, "POST /api/letters/archive needs the role operator"),
        ("request", Phase.REFUSED, "GET /api/audit needs the role admin"),
        ("request", Phase.REFUSED, "DELETE /api/tokens/{id} needs the role admin"),
    ]
