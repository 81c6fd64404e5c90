"""What strangers write: every field that they reach, filled with what runs, hides or turns text round."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta

from redrive import Redrive
from redrive.access.actors import Role
from redrive.access.tokens import Tokens
from redrive.alerts.incidents import Incidents, Timing
from redrive.alerts.model import Alert, Severity
from redrive.forensics.query import Query
from redrive.model import Category, Failure, Letter
from redrive.service import Service
from redrive.stores.base import Group
from redrive.testing.builders import make_failure, make_letter, make_message
from tests.actors import acting

SEEN = "\"'`><img src=x onerror='window.owned=1'><script>window.owned=1</script></textarea></title><b>bold</b>{{7*7}}🦄"
"""Markup that would run, or be bold."""
NASTY = f"{SEEN}\u202etxt.exe\u2066\u200b\ufeff\u0007\u001b[2J\u0085"
"""The same with marks that hide, turn text round or drive a terminal."""
HIDDEN = "\u202e\u2066\u200b\ufeff\u0007\u001b\u0085"
ANN = acting(NASTY)


def letters(app: Redrive) -> Sequence[Letter]:
    """Three of one group and one of another: JSON, text that is no UTF-8, and bytes."""
    bodies = [json.dumps({NASTY: [NASTY, {NASTY: NASTY}]}).encode(), SEEN.encode() + b"\xff\xfe\x80", bytes(range(256))]
    return [_letter(app, f"{number}{NASTY}", body) for number, body in enumerate(bodies)]


def _letter(app: Redrive, id: str, body: bytes) -> Letter:
    now = app.clock.now()
    message = make_message(
        id=id,
        source=NASTY,
        body=body,
        key=NASTY.encode(),
        tenant=NASTY,
        correlation_id=NASTY,
        origin=NASTY,
        enqueued_at=now - timedelta(minutes=2),
        headers=((NASTY, NASTY.encode()), ("javascript:alert(1)", b"\xff\xfe<b>"), ("traceparent", NASTY.encode())),
    )
    return make_letter(message, _failure(app, 1), _failure(app, 2), at=now)


def _failure(app: Redrive, attempt: int) -> Failure:
    stack = f'Traceback\n  File "{NASTY}", line 1, in {NASTY}\n    {NASTY}\n{NASTY}: {NASTY}'
    told = {"type": NASTY, "message": NASTY, "stack": stack, "code": NASTY, "worker": NASTY, "version": NASTY}
    category = Category.PERMANENT
    return make_failure(**told, at=app.clock.now(), attempt=attempt, category=category, frames=(f"{NASTY}:{NASTY}",))


async def write_everywhere(app: Redrive) -> tuple[Group, str, str]:
    """Letters, and all that people and programs write beside them. Returns the group, a replay and an incident."""
    service = Service(app)
    await app.store.letters.record(letters(app))
    (group,) = await app.store.letters.groups(Query(sources=(NASTY,)))
    await service.mute(group.id, timedelta(hours=1), actor=ANN, why=NASTY)
    await service.assign(group.id, SEEN, actor=ANN)
    await service.note_group(group.id, NASTY, actor=ANN)
    await service.pause("orders", actor=ANN, why=NASTY)
    replay = await service.replay(Query(sources=(NASTY,)), actor=ANN, reason=NASTY)
    await service.pause_replay(replay.id, actor=ANN, why=NASTY)
    await Tokens(app.store.documents, app.clock).create(NASTY, Role.VIEWER)
    await app.send("emails", b"{}", id=NASTY)
    return group, replay.id, await _incident(app, group)


async def _incident(app: Redrive, group: Group) -> str:
    incidents = Incidents(app.store.documents, app.clock, app.events)
    told = {"key": NASTY, "name": NASTY, "summary": NASTY, "source": NASTY, "details": {NASTY: NASTY}}
    alert = Alert(**told, severity=Severity.CRITICAL, starts_at=app.clock.now(), group=group.id, links={NASTY: NASTY})  # type: ignore[arg-type]
    made = await incidents.report(alert, Timing(repeat=timedelta(hours=1), lapse=timedelta(hours=1)))
    service = Service(app)
    await service.annotate(made.id, NASTY, actor=ANN)
    await service.acknowledge(made.id, actor=ANN)
    return made.id
