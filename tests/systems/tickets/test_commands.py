"""`redrive tickets` as an operator uses it, on real servers."""

from __future__ import annotations

import asyncio
import json
import signal
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from redrive.config.load import read
from redrive.config.settings import Settings
from redrive.errors import ConfigError
from redrive.systems.tickets import with_values
from redrive.systems.tickets.settings import TicketSettings
from redrive.systems.tickets.store import store_url
from redrive.systems.tickets.topics import wanted
from redrive.testing.waiting import until
from tests.admin.process import redrive
from tests.cli.world import Shell
from tests.systems.tickets.world import World, failing

HANDLER = """
def handle(ticket: dict) -> None:
    if ticket.get("task_type") == "BUILD":
        raise TimeoutError("the engine does not answer")
"""


@pytest.fixture
def shell(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.chdir(tmp_path)
    own = world.settings.of(TicketSettings)
    lines = [
        f"{name} = {json.dumps(getattr(own, name))}" for name in ("kafka", "redis", "mongodb", "topic", "dlq_topic")
    ]
    lines += [f'group = "{own.group}"', "replicas = 1", "partitions = 3"]
    (tmp_path / "redrive.toml").write_text("lease = '6s'\n[tickets]\n" + "\n".join(lines) + "\n")
    (tmp_path / "shop.py").write_text(HANDLER)
    return Shell(tmp_path)


def dead(world: World, number: int, **changes: Any) -> tuple[bytes, bytes]:
    said = {"original_error": "slow", "error_type": "TimeoutError", "retry_count": 3}
    said |= {"last_failure_timestamp": 1_700_000_000_000 + number, "dlq_published_at": 1_700_000_000_000 + number}
    fields = {name: value for name, value in changes.items() if name not in said}
    said |= {name: value for name, value in changes.items() if name in said}
    return world.id(number).encode(), world.ticket(number, **fields, dlq_metadata=said)


def test_topics_are_said_broker_or_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REDRIVE_TICKETS_KAFKA", "kafka://127.0.0.1:1")
    main, dlq = Shell(tmp_path).json("tickets", "topics", "--dry-run")["wanted"]
    assert main == {
        "name": "execution.tickets",
        "partitions": 6,
        "replicas": 3,
        "config": {"retention.ms": "604800000"},
    }
    assert dlq == {
        "name": "execution.tickets.dlq",
        "partitions": 3,
        "replicas": 3,
        "config": {"retention.ms": "2592000000", "compression.type": "snappy", "max.message.bytes": "2097152"},
    }
    assert read().settings.of(TicketSettings).group == "worker-agents"


async def test_the_worker_and_the_dlq_consumer_as_processes(world: World, shell: Shell) -> None:
    world.send(1, 2)
    world.send(3, task_type="DEPLOY")
    async with redrive(shell.place, "tickets", "worker", "shop:handle", "--metrics-port", "0") as worker:
        address = (await worker.line(r"metrics +(http://\S+)"))[1]
        await world.main.until_committed(3)
        text = await asyncio.to_thread(lambda: urllib.request.urlopen(address).read().decode())
        assert await worker.end(signal.SIGTERM) == 0
        assert '"dlq_publish"' in await worker.errors()
    assert 'worker_agent_dlq_messages_total{reason="max_retries_exceeded",task_type="BUILD"} 2.0' in text
    async with redrive(shell.place, "tickets", "dlq-consumer", "--metrics-port", "0") as consumer:
        address = (await consumer.line(r"metrics +(http://\S+)"))[1]
        await world.until_dead(2)
        await world.dead.until_committed(2)
        text = await asyncio.to_thread(lambda: urllib.request.urlopen(address).read().decode())
        assert f'source="{world.main.name}"' in text
        assert await consumer.end(signal.SIGTERM) == 0
        errors = await consumer.errors()
    assert '"dlq_consumer_started"' in errors
    assert f'"{world.name}-dlq"' in errors


def test_the_workers_metrics_are_on_port_8000(tmp_path: Path) -> None:
    assert "default: 8000" in Shell(tmp_path)("tickets", "worker", "--help").stdout


def test_query_newest_first_count_republish_and_purge(world: World, shell: Shell) -> None:
    world.dead.produce(*[dead(world, number) for number in range(3)])
    world.dead.produce(dead(world, 3, error_type="ValueError"), dead(world, 4, task_type="DEPLOY"))
    _commands(world, shell)
    (back,) = world.main.records()
    assert (back.key(), json.loads(back.value())) == (world.id(1).encode(), json.loads(world.ticket(1)))
    assert [name for name, _ in back.headers() if not name.startswith("redrive-")] == []


def _commands(world: World, shell: Shell) -> None:
    assert "5 letters stored" in shell("tickets", "dlq-consumer", "--once").stderr
    listed = shell.json("tickets", "query", "--limit", "2")
    assert [one["ticket_id"] for one in listed] == [world.id(4), world.id(3)]
    assert listed[0]["dlq_metadata"]["dlq_published_at"] == 1_700_000_000_004
    assert world.id(4) in shell("tickets", "query", "--task-type", "DEPLOY").stdout
    assert shell.json("tickets", "query", "--by", "error-type") == {"TimeoutError": 4, "ValueError": 1}
    assert shell.json("tickets", "query", "--by", "task-type") == {"BUILD": 4, "DEPLOY": 1}
    assert "no dead ticket matches" in shell("tickets", "query", "--ticket", "nobody", code=1).stderr
    assert "which tickets?" in shell("tickets", "republish", "--yes", code=2).stderr
    assert shell.json("tickets", "republish", "--error-type", "TimeoutError", "--dry-run") == {"tickets": 4}
    assert "sent 1" in shell("tickets", "republish", "--ticket", world.id(1), "--yes").stderr
    assert "to choose" in shell("tickets", "republish", "--from-topic", "--ticket", "x", "--yes", code=2).stderr
    assert "nothing was deleted" in shell("tickets", "purge", "--older-than", "9000d", "--yes", code=1).stderr
    assert shell.json("tickets", "purge", "--yes") == {"deleted": 4}, "what is on its way is not purged"
    assert world.documents.count_documents({}) == 1


def test_republish_from_the_topic(world: World, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    world.dead.produce(*[dead(world, number) for number in range(3)])
    words = ("tickets", "republish", "--from-topic", "--yes")
    with monkeypatch.context() as careful:
        careful.setenv("REDRIVE_ACCESS_APPROVE_OVER", "2")
        assert "second person" in shell(*words, code=2).stderr, "nobody knows how many there are"
        assert shell.json(*words, "--limit", "2") == {"sent": 2, "stubs": 0}
    assert "1 tickets sent back" in shell(*words).stdout
    assert len(world.main.records()) == 3
    store = store_url(read().settings.of(TicketSettings))
    told = [(act["action"], act["outcome"], act["detail"]) for act in shell.json("--store", store, "audit")["audit"]]
    assert told == [("replay", "done", f"{count} tickets, straight from {world.dead.name}") for count in (1, 2)]


@pytest.mark.parametrize("missing", ["kafka", "mongodb"])
def test_a_server_that_is_away_is_named(shell: Shell, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    away = {
        "kafka": "kafka://127.0.0.1:1",
        "mongodb": "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=100&timeoutMS=200",
    }
    monkeypatch.setenv(f"REDRIVE_TICKETS_{missing.upper()}", away[missing])
    words = ("tickets", "topics") if missing == "kafka" else ("tickets", "query")
    done = shell.process(*words, code=None)
    assert done.returncode not in (0, 1)
    assert missing.encode() in done.stderr.lower()
    assert b"Traceback" not in done.stderr


def test_values_and_environment_under_the_contracts_names(tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text("kafka:\n  dlq:\n    enabled: true\n    topic: a.dlq\n    maxRetriesBeforeDLQ: 5\nother: 1\n")
    own = with_values(Settings(), file, {}).of(TicketSettings)
    assert (own.dlq_enabled, own.dlq_topic, own.max_retries) == (True, "a.dlq", 5)
    own = with_values(Settings(), file, {"KAFKA_DLQ_TOPIC": "b.dlq", "KAFKA_MAX_RETRIES_BEFORE_DLQ": "7"}).of(
        TicketSettings
    )
    assert (own.dlq_topic, own.max_retries) == ("b.dlq", 7)
    file.write_text("kafka: {dlq: {enabled: false}}")
    assert [one.name for one in wanted(with_values(Settings(), file, {}).of(TicketSettings))] == ["execution.tickets"]
    file.write_text("")
    assert with_values(Settings(), file, {}) == Settings()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kafka: {dlq: {topics: x}}", "did you mean"),
        ("kafka: {dlq: {enabled: 'yes please'}}", "true or false"),
        ("kafka: {dlq: {maxRetriesBeforeDLQ: 0}}", "kafka.dlq.maxRetriesBeforeDLQ.*from 1 to 1000"),
        ("kafka: {dlq: {topic: 3}}", "a text"),
        ("kafka: {dlq: [1]}", "not a mapping"),
        ("kafka: [", "cannot be read"),
    ],
)
def test_a_wrong_value_is_explained(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=said):
        with_values(Settings(), file, {})


@pytest.mark.parametrize("value", ["0", "-1", "many", "1.5"])
def test_a_wrong_environment_is_explained(value: str) -> None:
    with pytest.raises(ConfigError, match=r"\(KAFKA_MAX_RETRIES_BEFORE_DLQ\): it takes a whole number from 1 to 1000"):
        with_values(Settings(), None, {"KAFKA_MAX_RETRIES_BEFORE_DLQ": value})


async def test_without_a_dlq_dead_tickets_are_letters_in_mongodb(world: World) -> None:
    world.with_tickets(dlq_enabled=False)
    world.send(1)
    async with world.worker(failing):
        (document,) = await world.until_dead(1)
        await world.main.until_committed(1)
    assert document["ticket_id"] == world.id(1)
    assert world.graves() == []
    await until(lambda: world.count_of(1) is None)
