"""A secret that was in an error, a stack, a cause, a note, a header, a body, a tenant or an id is seen at no outlet."""

from __future__ import annotations

import asyncio
import io
import logging
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from click.testing import CliRunner
from litestar import Litestar
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from redrive import Policy, Redrive, immediate
from redrive.access.actors import Role
from redrive.access.approvals import NeedsApproval
from redrive.access.tokens import Tokens
from redrive.admin.api import create_api
from redrive.alerts import Alert, Alerts, Severity
from redrive.cli import main
from redrive.config.settings import Access, Settings
from redrive.errors import UnknownLetter
from redrive.forensics.query import Query
from redrive.model import Letter
from redrive.repair.spool import Proposal, Spool
from redrive.service import Service
from redrive.telemetry.events import Event, MessageBuried
from redrive.telemetry.logs import log_events, setup_logs
from redrive.telemetry.tracing import trace
from redrive.worker import Worker
from tests.actors import acting
from tests.admin.asking import asking, running
from tests.alerts.conftest import Remembering

SECRET = "S3cr3t" + "HunterXq9Zw7"
TOKEN = "ghp_" + "a1B2c3D4" * 5
LOCAL = "a-variable-of-a-frame"
NEEDLES = (SECRET, TOKEN, LOCAL)
ID, TENANT = f"order-{TOKEN}", f"acme.{TOKEN}"

# every GET route is asked; what stands in its path is one of these, and a route that needs another one fails the test
NO_TEXT_OF_MESSAGES = {
    "/",
    "/console",
    "/console/{path:path}",
    "/assets/{tree:str}/{path:path}",
    "/docs",
    "/docs/openapi.json",
    "/docs/{path:str}",
    "/openapi.json",
    "/login",
    "/login/callback",
}
SEEING = {
    "letters": ((), ("--json",), ("--text", "order"), ("--tenant", TENANT, "--json")),
    "show": (("LETTER",), ("LETTER", "--json")),
    "groups": ((), ("--json",)),
    "note": (("GROUP",), ("GROUP", "--json")),
    "differs": (("GROUP",), ("GROUP", "--json")),
    "stats": ((), ("--json",), ("--since", "24h"), ("--since", "24h", "--json")),
    "queue": (("orders",), ("orders", "--json"), ("waiting",), ("waiting", "--json")),
    "held": ((), ("--json",)),
    "workers": ((), ("--json",)),
    "replays": ((), ("--json",)),
    "replays show": (("REPLAY",), ("REPLAY", "--json")),
    "approvals": ((), ("--json",)),
    "incidents list": ((), ("--json",)),
    "incidents show": (("INCIDENT",), ("INCIDENT", "--json")),
    "replay": (("--source", "orders", "--dry-run"),),
    "audit": ((), ("--json",)),
    "audit export": (("-",),),
    "audit verify": ((),),
    "doctor": ((), ("--json",)),
    "config": ((), ("--json",)),
    "token list": ((), ("--json",)),
}
ACTING_OR_RAW = frozenset(
    (
        *(
            "init",
            "run",
            "up",
            "demo",
            "send",
            "debug",
            "archive",
            "fix",
            "mute",
            "unmute",
            "pause",
            "resume",
            "unarchive",
            "edit",
            "repair",
            "purge",
            "export",
        ),
        *(
            "import",
            "collect",
            "retry",
            "replays.cancel",
            "replays.pace",
            "replays.pause",
            "replays.resume",
            "approvals.approve",
        ),
        *(
            "approvals.refuse",
            "approvals.withdraw",
            "incidents.ack",
            "incidents.note",
            "incidents.resolve",
            "audit.checkpoint",
        ),
        *(
            "audit.prune",
            "token.create",
            "token.revoke",
            "token.rotate",
            "keys.rotate",
            "alerts.rules",
            "alerts.test",
            "alert-rules",
        ),
        *(
            "dashboard",
            "completion",
            "login",
            "logout",
            "whoami",
            "assign",
        ),
    )
)
"""They act on a selection, write what was asked to be raw, or have nothing of a message to say."""
OF_SYSTEMS = ("bullmq", "email", "files", "pipeline", "tickets", "workflow")


def charge(order: dict[str, Any]) -> None:
    held = f"{LOCAL} {order}"
    try:
        raise ValueError(f"refused with token={SECRET}")
    except ValueError as cause:
        error = RuntimeError(f"password: {SECRET}")
        error.add_note(f"the api_key={SECRET} was used")
        assert held
        raise error from cause


def _alert(app: Redrive) -> Alert:
    """One that somebody else reports, with what he has."""
    details, at = {"error": f"token={SECRET}"}, app.clock.now()
    summary = f"no login, password: {SECRET}"
    return Alert(name="Own", key="k", severity=Severity.ERROR, summary=summary, starts_at=at, details=details)


class Dead:
    """An app in which that was handled, and everything that was written meanwhile."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.shown: dict[str, str] = {}
        self.ids: dict[str, str] = {}
        self.url = f"sqlite:///{place / 'redrive.db'}"

    def app(self) -> Redrive:
        rules = Access(approve_over=1)
        app = Redrive(settings=Settings(store=self.url, transports={"default": self.url}, worker="w", access=rules))
        app.handler("orders", policy=Policy(attempts=2, backoff=immediate()))(charge)
        app.declare("waiting")
        return app

    async def die(self) -> None:
        exporter, provider = InMemorySpanExporter(), TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        notifier, app = Remembering(), self.app()
        trace(app, provider)
        said = {"headers": {TOKEN: "1", "authorization": f"Bearer {SECRET}", "x-note": f"password={SECRET}"}}
        body = {"id": 1, "password": SECRET, "note": f"his password: {SECRET}", "ref": TOKEN}
        async with app, Alerts.of(app, notifiers=[notifier]) as alerts:
            log_events(app.events)
            alerts.report(_alert(app))
            for source, id in (("orders", ID), ("orders", "another"), ("waiting", ID)):
                await app.send(source, body, id=id, tenant=TENANT, key=TOKEN, correlation_id=TOKEN, **said)  # type: ignore[arg-type]
            await self._handled(app)
            await alerts.round()
            service = Service(app)
            letter = next(found for found in await self._letters(app) if found.message.id == ID)
            self.ids = {"LETTER": letter.id, "GROUP": letter.group}
            why = f"password: {SECRET}"
            named = Query(ids=(letter.id,), message_ids=(ID,), tenants=(TENANT,))
            replay = await service.replay(named, actor=acting("ann"), reason=why)
            await service.archive(Query(message_ids=(f"{ID}-gone",), text=why, code=TOKEN), actor=acting("ann"))
            with pytest.raises(UnknownLetter):
                await service.unmask(f"{ID}-gone", actor=acting("ann"), reason=why)
            self.ids["REPLAY"] = replay.id
            with pytest.raises(NeedsApproval) as waits:
                await service.replay(Query(sources=("orders",), tenants=(TENANT,)), actor=acting("ann"), reason=why)
            self.ids["APPROVAL"] = waits.value.approval.id
            self.ids["INCIDENT"] = (await alerts.incidents.list())[0].id
            await service.note_group(letter.group, why, actor=acting("ann"))
            await service.assign(letter.group, why, actor=acting("ann"))
            self.ids["REPAIR"] = await self._repaired(service, why)
            await service.pause("waiting", actor=acting("ann"), why=why, force=True)
            extra = {"token": SECRET, "order": {"note": f"password: {SECRET}"}}
            logging.getLogger("somebody.else").error("login with %s failed", f"password={SECRET}", extra=extra)
        self.shown["notifiers"] = msgspec.json.encode(notifier.notices).decode()
        self.shown["traces"] = "\n".join(span.to_json() for span in exporter.get_finished_spans())
        assert notifier.notices

    async def _repaired(self, service: Service, why: str) -> str:
        letter = await service.find("another")
        with Spool() as spool:
            made = Proposal(letter.id, letter.version, b"{}", letter.message.headers)
            await service.repairs.take_in([made], spool)
            return (await service.repairs.apply(spool, script="mend.py", actor=acting("ann"), reason=why)).id

    async def _letters(self, app: Redrive) -> Sequence[Letter]:
        return (await app.store.letters.search(Query())).letters

    async def _handled(self, app: Redrive) -> None:
        worker, dead = Worker(app, upkeep=False), set[str]()

        def watch(event: Event) -> None:
            if isinstance(event, MessageBuried):
                dead.add(event.message)
            if len(dead) == 2:
                worker.stop()

        end = app.events.subscribe(watch)
        async with asyncio.timeout(60):
            await worker.run()
        end()


@pytest.fixture(scope="module")
def dead(tmp_path_factory: pytest.TempPathFactory) -> Dead:
    made = Dead(tmp_path_factory.mktemp("dead"))
    logger = logging.getLogger()
    handlers, level = list(logger.handlers), logger.level
    outs = {format: io.StringIO() for format in ("console", "json")}
    try:
        for format, out in outs.items():
            made.url = f"sqlite:///{made.place / format}.db"
            setup_logs("debug", format, out)
            asyncio.run(made.die())
            made.shown[f"logs, {format}"] = out.getvalue()
    finally:
        logger.handlers[:] = handlers
        logger.setLevel(level)
    (made.place / "redrive.toml").write_text(f'store = "{made.url}"\n[transports]\ndefault = "{made.url}"\n')
    return made


def assert_nothing_is_seen(where: str, shown: str) -> None:
    assert shown.strip(), f"{where} says nothing at all"
    for needle in NEEDLES:
        assert needle not in shown, f"{where} shows {needle}: …{shown[max(shown.index(needle) - 300, 0) :][:500]}…"


@pytest.mark.parametrize("where", ["logs, console", "logs, json", "notifiers", "traces"])
def test_what_is_written_meanwhile(dead: Dead, where: str) -> None:
    assert_nothing_is_seen(where, dead.shown[where])


def test_every_route_that_shows_something(dead: Dead) -> None:
    async def ask() -> dict[str, str]:
        async with dead.app() as app:
            tokens = Tokens(app.store.documents, app.clock)
            api = create_api(Service(app), tokens=tokens)
            async with running(api):
                http = asking(api, (await tokens.create("admin", Role.ADMIN))[1])
                found = {}
                for path in _routes(api):
                    answer = await http.get(_filled(path, dead.ids), params=_WITH.get(path, {}))
                    assert answer.status_code == 200, (path, answer.text)
                    found[path] = answer.text
                plan = await http.post("/api/replays/plan", json={"query": {"sources": ["orders"]}})
                await http.aclose()
                return found | {"plan": plan.text}

    for path, text in asyncio.run(ask()).items():
        assert_nothing_is_seen(path, text)


_WITH: dict[str, dict[str, str]] = {"/api/queue": {"source": "waiting"}, "/api/events": {"seconds": "0"}}


def _routes(api: Litestar) -> list[str]:
    found = {route.path for route in api.routes if "GET" in getattr(route, "methods", ())}
    return sorted(found - NO_TEXT_OF_MESSAGES)


def _filled(path: str, ids: dict[str, str]) -> str:
    of = {"letters": "LETTER", "groups": "GROUP", "replays": "REPLAY", "incidents": "INCIDENT", "approvals": "APPROVAL"}
    of["repairs"] = "REPAIR"
    if "{" not in path:
        return path
    return re.sub(r"{id:str}", lambda _: ids[of[path.split("/")[2]]], path)


def test_every_command_is_known_to_this_test() -> None:
    known = {*SEEING, *(name.replace(".", " ") for name in ACTING_OR_RAW)}
    assert {name for name in _commands(main, ()) if not name.startswith(OF_SYSTEMS)} <= known


def _commands(command: click.Command, names: tuple[str, ...]) -> Iterator[str]:
    context = click.Context(command)
    if not isinstance(command, click.Group):
        yield " ".join(names)
        return
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from _commands(found, (*names, name))


@pytest.mark.parametrize("name", SEEING)
def test_every_command_that_shows_something(dead: Dead, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in [variable for variable in os.environ if variable.startswith("REDRIVE_")]:
        monkeypatch.delenv(variable)
    monkeypatch.chdir(dead.place)
    for words in SEEING[name]:
        filled = [dead.ids.get(word, word) for word in words]
        done = CliRunner().invoke(main, [*name.split(), *filled], prog_name="redrive")
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        assert done.exit_code in (0, 1), done.output
        shown = done.stdout + done.stderr
        if TENANT in words:  # what was asked for may be said back
            shown = shown.replace(TENANT, "")
        assert_nothing_is_seen(f"redrive {name} {' '.join(words)}", shown)
