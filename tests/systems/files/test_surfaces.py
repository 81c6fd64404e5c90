"""File processing as people and programs meet it: its worker, its log, its routes, its commands."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from msgspec.structs import replace

from redrive import Redrive
from redrive.access.actors import Role
from redrive.access.approvals import NeedsApproval
from redrive.access.tokens import Tokens
from redrive.admin.api import create_api
from redrive.config.settings import Access, Settings
from redrive.errors import ConfigError
from redrive.model import Message
from redrive.service import Service
from redrive.systems.files import DLQ_QUEUES, DeadLetterQueues, FilesWorker
from redrive.systems.files import routes as files
from redrive.systems.files.logs import FilesLog
from redrive.systems.files.settings import FilesSettings
from redrive.testing.builders import make_failure, make_letter, make_message
from redrive.testing.waiting import until
from redrive.transports.rabbitmq.dead_letter_queues import parcel_of
from redrive.worker import Worker
from tests.actors import acting
from tests.admin.asking import asking, running
from tests.systems.files.conftest import Broker


@pytest.fixture
def settings(broker: Broker, tmp_path: Path) -> Settings:
    url = f"sqlite:///{tmp_path / 'redrive.db'}"
    own = FilesSettings(
        url=broker.url.partition("?")[0],
        management=broker.server.management_url.replace("://", "://guest:guest@"),
        delay=timedelta(milliseconds=200),
    )
    return Settings(store=url, transports={"default": url}, sections=(own,))


async def run_until(work: FilesWorker, done: Callable[[], Any]) -> None:
    worker = Worker(work.app, upkeep=False)
    task = asyncio.create_task(worker.run())
    try:
        await until(done, what="done", timeout=60)
    finally:
        worker.stop()
        await task


# -- the worker -------------------------------------------------------------------------------------------------------


async def test_the_log_has_the_fields_of_the_contract(broker: Broker, settings: Settings) -> None:
    def fails(body: bytes) -> None:
        raise ConnectionError("no converter, password=hunter2")

    work, out = FilesWorker({"q.thumbnail": fails}, settings), io.StringIO()
    work.log_to(FilesLog(["q.thumbnail"], 4, stream=out))
    await broker.publish("files.validated.pdf", b"{}", message_id="m-1", correlation_id="c-1", type="file.validated")
    await run_until(work, lambda: "parked" in out.getvalue())
    await work.app.aclose()
    lines = [json.loads(one) for one in out.getvalue().splitlines()]
    said = [(one["message"], one["attempt"]) for one in lines]
    retried = [(text, n) for n in (1, 2, 3) for text in ("message processing failed", "message sent to retry")]
    assert said == [*retried, ("message processing failed", 4), ("message parked in DLQ", 4)]
    for one in lines:
        assert (one["correlationId"], one["queue"], one["routingKey"], one["messageType"], one["maxAttempts"]) == (
            "c-1",
            "q.thumbnail",
            "files.validated.pdf",
            "file.validated",
            4,
        )
        assert "hunter2" not in one["error"]
    assert await broker.count("q.thumbnail.dlq") == 1


async def test_a_message_that_was_redriven_twice_is_handled_once(broker: Broker, settings: Settings) -> None:
    seen: list[Message] = []

    async def handle(body: bytes, message: Message) -> None:
        seen.append(message)

    work = FilesWorker({"q.audit": handle}, settings)
    again = {"x-redriven-id": "r-1", "x-redriven-count": 1}
    for _ in range(2):
        await broker.publish("retry", b"1", exchange="retry.q.audit", message_id="m-1", headers=again)
    await broker.publish("retry", b"1", exchange="retry.q.audit", message_id="m-1", headers={"x-redriven-id": "r-2"})
    await run_until(work, lambda: _done(broker, seen, 2))
    assert len(seen) == 2
    work.app.clock = _InEightDays()  # type: ignore[assignment]
    assert await work.repeats.sweep() == 2
    await work.app.aclose()


async def test_a_message_that_was_parked_twice_is_redriven_as_one(broker: Broker, settings: Settings) -> None:
    """A worker that died after parking it, and before the ack, left it to be parked again."""
    once, other = (parcel_of(make_letter(make_message(id=id, source="q.audit"), make_failure())) for id in ("1", "2"))
    await broker.publisher.publish([once, once, other])
    seen: list[Message] = []

    async def handle(body: bytes, message: Message) -> None:
        seen.append(message)

    work = FilesWorker({"q.audit": handle}, settings)
    parked = DeadLetterQueues.of(work.app)
    assert (await parked.redrive("q.audit.dlq", 10, actor=acting("ann"))).sent == 3
    await parked.aclose()
    await run_until(work, lambda: _done(broker, seen, 2))
    assert sorted(one.id for one in seen) == ["1", "2"]
    await work.app.aclose()


class _InEightDays:
    def now(self) -> Any:
        from redrive.clock import SystemClock

        return SystemClock().now() + timedelta(days=8)


async def _done(broker: Broker, seen: list[Message], number: int) -> bool:
    waiting = [await broker.count(queue) for queue in ("q.audit.retry", "q.audit")]
    return len(seen) >= number and not any(waiting)


@pytest.mark.parametrize(
    ("handlers", "says"), [({}, "no handler"), ({"q.thumbnial": print}, "did you mean 'q.thumbnail'")]
)
def test_handlers_that_are_none(handlers: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        FilesWorker(handlers, Settings(sections=(FilesSettings(url="amqp://localhost"),)))


def test_files_without_a_broker() -> None:
    with pytest.raises(ConfigError, match="REDRIVE_FILES_URL"):
        FilesWorker({"q.audit": print}, Settings())


# -- the routes -------------------------------------------------------------------------------------------------------


class Api:
    """The admin API with the routes of the files, asked with any role."""

    def __init__(self, app: Redrive) -> None:
        self.tokens = Tokens(app.store.documents, app.clock)
        self.api = create_api(Service(app), tokens=self.tokens, routers=[files.router])

    async def ask(self, role: Role | None, method: str, path: str, body: Any = None) -> httpx.Response:
        text = (await self.tokens.create(f"as {role}", role))[1] if role else None
        async with asking(self.api, text) as client:
            return await client.request(method, path, json=body)


@pytest_asyncio.fixture
async def api(settings: Settings) -> AsyncIterator[Api]:
    async with Redrive(settings=settings) as app:
        made = Api(app)
        async with running(made.api):
            yield made


ROUTES = [
    ("GET", "/admin/dlq/queues", None),
    ("GET", "/admin/dlq/queues/q.audit.dlq/messages?limit=20", None),
    ("GET", "/admin/dlq/queues/q.audit.dlq/re-drive", None),
    ("POST", "/admin/dlq/queues/q.audit.dlq/re-drive", {"limit": 10}),
]


@pytest.mark.parametrize(("method", "path", "body"), ROUTES)
async def test_only_an_admin_may(api: Api, method: str, path: str, body: Any) -> None:
    assert (await api.ask(None, method, path, body)).status_code == 401
    assert (await api.ask(Role.VIEWER, method, path, body)).status_code == 403
    assert (await api.ask(Role.OPERATOR, method, path, body)).status_code == 403
    assert (await api.ask(Role.ADMIN, method, path, body)).status_code == 200


@pytest.mark.parametrize("queue", ["q.audit", "q.thumbnial.dlq", "amq.gen", "q.audit.retry"])
async def test_a_queue_that_is_not_on_the_list(api: Api, queue: str) -> None:
    for method, path, body in ROUTES[1:]:
        answer = await api.ask(Role.ADMIN, method, path.replace("q.audit.dlq", queue), body)
        assert answer.status_code == 404, answer.text
        assert "not on the list" in answer.json()["error"]


async def test_parked_messages_are_listed_shown_and_redriven(api: Api, broker: Broker) -> None:
    for number in range(3):
        await broker.publish(
            "parking", b'{"n": %d, "password": "hunter2"}' % number, exchange="dlq.q.audit", message_id=f"m-{number}"
        )
    await broker.publish("parking", b"\xff\x00", exchange="dlq.q.audit", message_id="m-3", headers={"deep": {"n": 1}})
    queues = (await api.ask(Role.ADMIN, "GET", "/admin/dlq/queues")).json()
    assert {one["queue"]: one["messages"] for one in queues} == dict.fromkeys(DLQ_QUEUES, 0) | {"q.audit.dlq": 4}
    path = "/admin/dlq/queues/q.audit.dlq"
    shown = (await api.ask(Role.ADMIN, "GET", f"{path}/messages?limit=20")).json()
    assert [one["message_id"] for one in shown] == ["m-0", "m-1", "m-2", "m-3"]
    assert "hunter2" not in json.dumps(shown)
    assert (shown[3]["encoding"], shown[3]["body"]) == ("binary", "binary, 2 bytes: ff 00")
    assert shown[3]["headers"]["deep"] == {"n": 1}
    plan = (await api.ask(Role.ADMIN, "GET", f"{path}/re-drive?limit=3")).json()
    assert (plan["found"], plan["wanted"], plan["source"], plan["at_most_twice"]) == (4, 3, "q.audit", 500)
    assert "share one store drop the repeats" in plan["note"]
    done = (await api.ask(Role.ADMIN, "POST", f"{path}/re-drive", {"limit": 3})).json()
    assert (done["found"], done["sent"]) == (4, 3)
    left = (await api.ask(Role.ADMIN, "GET", f"{path}/messages")).json()
    assert [one["message_id"] for one in left] == ["m-3"]
    trail = (await api.ask(Role.ADMIN, "GET", "/api/audit/lines")).text
    lines = [line for line in map(json.loads, trail.splitlines()) if line["action"] == "files.re-drive"]
    assert [(line["outcome"], line["detail"]) for line in lines] == [
        ("began", "q.audit.dlq"),
        ("done", "3 of 4 from q.audit.dlq"),
    ]


async def test_many_parked_messages_go_back_when_a_second_person_says_so(settings: Settings, broker: Broker) -> None:
    for number in range(3):
        await broker.publish("parking", b"%d" % number, exchange="dlq.q.audit", message_id=f"m-{number}")
    async with Redrive(settings=replace(settings, access=Access(approve_over=1))) as app:
        dead, service = DeadLetterQueues.of(app), Service(app)
        with pytest.raises(NeedsApproval) as waits:
            await dead.redrive("q.audit.dlq", 2, actor=acting("ann"))
        assert await broker.count("q.audit.dlq") == 3
        await service.four_eyes.approve(waits.value.approval.id, actor=acting("bob"))
        with pytest.raises(NeedsApproval):
            await dead.redrive("q.audit.dlq", 3, actor=acting("ann"))
        assert (await dead.redrive("q.audit.dlq", 2, actor=acting("ann"))).sent == 2
        assert (await dead.redrive("q.audit.dlq", 1, actor=acting("ann"))).sent == 1, "one alone does not wait"
        await dead.aclose()


@pytest.mark.parametrize("body", [{"limit": 0}, {"limit": "x"}, {"limti": 3}, []])
async def test_a_body_that_is_none(api: Api, body: Any) -> None:
    answer = await api.ask(Role.ADMIN, "POST", "/admin/dlq/queues/q.audit.dlq/re-drive", body)
    assert answer.status_code == 422


# -- the commands -----------------------------------------------------------------------------------------------------


@pytest.fixture
def environment(settings: Settings, tmp_path: Path) -> dict[str, str]:
    own = settings.of(FilesSettings)
    assert own.url is not None
    assert own.management is not None
    return {
        **os.environ,
        "REDRIVE_STORE": settings.store,
        "REDRIVE_TRANSPORTS_DEFAULT": settings.store,
        "REDRIVE_FILES_URL": own.url,
        "REDRIVE_FILES_MANAGEMENT": own.management,
        "REDRIVE_FILES_DELAY": "200ms",
        "PYTHONPATH": str(tmp_path),
    }


async def run(environment: dict[str, str], *words: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "redrive", "files", *words),
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode or 0, out.decode(), err.decode()


async def test_the_topology_by_command(environment: dict[str, str], broker: Broker) -> None:
    code, out, _ = await run(environment, "definitions")
    assert code == 0
    printed = json.loads(out)
    assert printed["vhosts"] == [{"name": broker.vhost}]
    assert len(printed["queues"]) == 21
    assert (await run(environment, "diff"))[:2] == (0, "the broker has just what it should\n")
    assert json.loads((await run(environment, "import", "--json"))[1]) == {"made": []}
    channel = await broker.link.channel()
    await channel.call(channel.raw.queue_delete, "q.audit.dlq")
    await channel.close()
    code, out, _ = await run(environment, "diff", "--json")
    assert (code, json.loads(out)["missing"]) == (
        1,
        ["queue q.audit.dlq", "binding dlq.q.audit --parking--> q.audit.dlq"],
    )
    assert "made queue q.audit.dlq" in (await run(environment, "import"))[1]
    code, _, err = await run(environment | {"REDRIVE_FILES_DELAY": "1s"}, "import")
    assert code != 0
    assert "x-message-ttl is 200, wanted 1000" in err


async def test_parked_messages_by_command(environment: dict[str, str], broker: Broker) -> None:
    for number in range(3):
        await broker.publish("parking", b"%d" % number, exchange="dlq.q.audit", message_id=f"m-{number}")
    code, out, _ = await run(environment, "dlq", "list", "--json")
    assert {one["queue"]: one["messages"] for one in json.loads(out)["queues"]}["q.audit.dlq"] == 3
    assert "m-1" in (await run(environment, "dlq", "peek", "q.audit.dlq"))[1]
    code, _, err = await run(environment, "dlq", "re-drive", "q.audit.dlq")
    assert code == 2, "nobody can answer"
    assert "--yes" in err
    assert "at most 500 messages in both queues" in err
    assert "share one store drop the repeats" in err
    code, out, _ = await run(environment, "dlq", "re-drive", "q.audit.dlq", "--yes", "--limit", "2", "--json")
    assert (code, json.loads(out)["sent"]) == (0, 2)
    assert await broker.count("q.audit.dlq") == 1
    code, _, err = await run(environment, "dlq", "peek", "q.nobody.dlq")
    assert code == 2
    assert "not on the list" in err


HANDLERS = """
import pathlib
def note(body: bytes) -> None:
    with pathlib.Path(__file__).with_name("seen").open("ab") as file:
        file.write(body)
handlers = {"q.audit": note, "q.projection": note}
"""


async def test_how_far_a_redrive_is_is_shown_to_people_and_not_to_programs(
    environment: dict[str, str], broker: Broker
) -> None:
    letters = [make_letter(make_message(id=f"m-{n}", source="q.audit"), make_failure()) for n in range(1200)]
    await broker.publisher.publish([parcel_of(letter) for letter in letters])
    words = ("dlq", "re-drive", "q.audit.dlq", "--yes", "--limit")
    assert (await run(environment, *words, "1"))[2] == "", "nobody looks at a file"
    assert await _seen(environment, *words, "1", "--json") == ""
    shown = await _seen(environment, *words, "1198")
    assert shown.endswith("\r1,198 of 1,198\n")
    assert shown.count("of 1,198") > 2, "it says so more than once"


async def _seen(environment: dict[str, str], *words: str) -> str:
    """What somebody sees of standard error, at a terminal."""
    terminal, theirs = os.openpty()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "redrive", "files", *words), env=environment, stdout=subprocess.DEVNULL, stderr=theirs
    )
    os.close(theirs)
    seen = b""
    with suppress(OSError):  # as Linux says that nobody has the other end any more
        while some := await asyncio.to_thread(os.read, terminal, 4096):
            seen += some
    os.close(terminal)
    assert await process.wait() == 0
    return seen.decode().replace("\r\n", "\n")


async def test_a_worker_by_command(environment: dict[str, str], broker: Broker, tmp_path: Path) -> None:
    (tmp_path / "work_handlers.py").write_text(HANDLERS)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "redrive", "files", "worker", "work_handlers:handlers"), env=environment
    )
    try:
        await broker.publish("anything", b"x")
        seen = tmp_path / "seen"
        await until(lambda: seen.exists() and seen.stat().st_size == 2, what="both handled", timeout=60)
    finally:
        process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(process.wait(), 120) == 0
    assert await broker.count("q.audit") == await broker.count("q.projection") == 0
