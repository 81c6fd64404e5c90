"""Tasks are letters: the CLI and the console see them, and a replay of one is run by the app that can."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from opensearchpy import AsyncOpenSearch

from redrive.app import Redrive
from redrive.cli import main
from redrive.config.settings import Settings
from redrive.errors import UsageError
from redrive.forensics.query import Query
from redrive.model import State
from redrive.service import Service
from redrive.stores.base import EntryStatus
from redrive.systems.workflow import DeadLetterQueue, RetryPolicy
from redrive.testing.clock import ManualClock
from redrive.transports.letters import KIND, LettersTransport
from tests.actors import acting
from tests.servers.opensearch import OpenSearch
from tests.systems.workflow.helpers import Worker, enqueued, failing, status_of


def _settings(store: str, transport: str) -> Settings:
    return Settings(store=store, transports={"default": "memory://", "workflow": transport})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "workflow.db"


@pytest.fixture
def settings(path: Path) -> Settings:
    return _settings(f"sqlite:///{path}", f"workflow+sqlite:///{path}")


async def _exhausted(dlq: DeadLetterQueue, *names: str) -> None:
    for name in names:
        await enqueued(dlq, name, max_retries=1)
    await dlq.run_retry_cycle(failing("the model server is away"))


def test_the_commands_show_tasks(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio

    async def make() -> None:
        async with DeadLetterQueue(store=path) as dlq:
            await _exhausted(dlq, "wf_1", "wf_2")

    asyncio.run(make())

    def redrive(*words: str) -> Any:
        answer = CliRunner().invoke(main, ["--store", f"sqlite:///{path}", *words, "--json"])
        assert answer.exit_code == 0, answer.output
        return json.loads(answer.stdout)

    [group] = redrive("groups")["groups"]
    assert (group["count"], group["message"], group["sources"]) == (2, "the model server is away", ["workflow"])
    assert [one["message_id"] for one in redrive("letters", "--source", "workflow")["letters"]] == ["wf_2", "wf_1"]
    shown = redrive("show", "wf_1")
    assert json.loads(shown["body"])["task"]["name"] == "wf_1"
    assert [one["message"] for one in shown["failures"]] == ["Connection timeout", "the model server is away"]


async def test_a_replay_is_run_by_the_app_and_its_ledger_says_how_it_ended(path: Path, settings: Settings) -> None:
    async with DeadLetterQueue(store=path) as dlq, Redrive(settings=settings) as app:
        await _exhausted(dlq, "good", "bad")
        service = Service(app)
        replay = await service.replay(Query(sources=("workflow",)), actor=acting("ann"))
        await service.run_replay(replay.id)
        assert [one.queued.ready for one in (await service.stats()).sources if one.queued] == [2]
        worker = Worker(lambda task: task["name"] == "good")
        assert (await dlq.run_retry_cycle(worker)).started == 2
        report = await service.replay_report(replay.id)
        assert report.entries == {EntryStatus.RESOLVED: 1, EntryStatus.FAILED: 1}
        assert [await status_of(dlq, name) for name in ("good", "bad")] == ["resolved", "exhausted"]
        assert await app.store.documents.list(KIND) == []
        await dlq.run_retry_cycle(worker)
        assert len(worker.seen) == 2


async def test_a_replayed_task_of_a_dead_app_is_run_by_another(path: Path, settings: Settings) -> None:
    clock = ManualClock()
    async with (
        DeadLetterQueue(store=path, clock=clock, retry_timeout="5m") as dead,
        DeadLetterQueue(store=path, clock=clock, retry_timeout="5m") as alive,
        Redrive(settings=settings, clock=clock) as app,
    ):
        await _exhausted(dead, "a")
        await Service(app).retry(["a"], actor=acting("ann"))
        received = LettersTransport(dead.store, clock=clock, lease=timedelta(minutes=6))
        assert len(await received.take("workflow", 5)) == 1
        worker = Worker()
        await alive.run_retry_cycle(worker)
        assert worker.seen == []
        await clock.advance(400)
        await alive.run_retry_cycle(worker)
        assert worker.seen == ["a"]
        assert await status_of(alive, "a") == "resolved"


async def test_what_was_archived_meanwhile_is_not_run(path: Path, settings: Settings) -> None:
    async with DeadLetterQueue(store=path) as dlq, Redrive(settings=settings) as app:
        await _exhausted(dlq, "a")
        await Service(app).retry(["a"], actor=acting("ann"))
        await dlq.archive_task("a")
        worker = Worker()
        await dlq.run_retry_cycle(worker)
        assert worker.seen == []
        assert await app.store.documents.list(KIND) == []


async def test_a_message_does_not_start_a_workflow(settings: Settings) -> None:
    async with Redrive(settings=settings) as app:
        app.declare("workflow", transport="workflow")
        with pytest.raises(UsageError, match="execute_workflow_parallel"):
            await app.send("workflow", {})


async def test_the_same_in_opensearch(opensearch_server: OpenSearch) -> None:
    url = f"workflow+opensearch://{opensearch_server.address}/workflow_replayed"
    async with (
        AsyncOpenSearch(opensearch_server.url) as client,
        DeadLetterQueue(opensearch_client=client, index="workflow_replayed") as dlq,
        Redrive(settings=_settings(url, url)) as app,
    ):
        await _exhausted(dlq, "a")
        await enqueued(dlq, "b", retry_policy=RetryPolicy.NEVER)
        service = Service(app)
        [letter] = (await service.letters(Query(states=(State.EXHAUSTED,)))).letters
        assert (letter.message_id, letter.error_message) == ("a", "the model server is away")
        report = await service.retry(["a"], actor=acting("ann"))
        assert report.entries == {EntryStatus.SENT: 1}
        await dlq.run_retry_cycle(Worker())
        assert (await service.replay_report(report.replay.id)).entries == {EntryStatus.RESOLVED: 1}
        assert [await status_of(dlq, name) for name in "ab"] == ["resolved", "pending"]
        await client.indices.delete(index="workflow_replayed*")
