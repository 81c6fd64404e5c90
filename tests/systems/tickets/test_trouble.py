"""Tickets in bad days: servers that are away, topics that refuse, tickets that are none, workers that are killed."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from redrive.forensics.query import Query
from redrive.model import Reason
from redrive.systems.tickets.metrics import measured
from redrive.systems.tickets.settings import TicketSettings
from redrive.telemetry.events import BackendDown
from redrive.testing.waiting import until
from tests.servers.fixtures import StartsServer
from tests.servers.mongodb import MongoDB
from tests.servers.redis import Redis
from tests.systems.tickets.conftest import MakesWorld
from tests.systems.tickets.world import World, failing
from tests.trouble.helpers import Told

ROOT = Path(__file__).parents[3]


async def test_redis_away_nothing_is_handled_committed_or_buried_and_it_says_so(
    make_world: MakesWorld, start_server: StartsServer
) -> None:
    redis = start_server(Redis)
    world = make_world(redis=redis)
    world.send(1)
    first, again = asyncio.Event(), asyncio.Event()

    async def handle(ticket: dict[str, Any]) -> None:
        first.set()
        await again.wait()
        raise ConnectionError("no")

    async with world.worker(handle) as worker:
        told = Told(worker.app)
        await asyncio.wait_for(first.wait(), 120)
        redis.kill9()
        world.send(2)
        again.set()
        await until(lambda: len(told.of(BackendDown)) >= 2, what="it says that Redis is away")
        assert sum(world.main.committed().values()) == 0
        assert world.graves() == []
        redis.start()
        await world.main.until_committed(2)
    assert {json.loads(one.value())["ticket_id"] for one in world.graves()} == {world.id(1), world.id(2)}
    assert {json.loads(one.value())["dlq_metadata"]["retry_count"] for one in world.graves()} == {3}


@pytest.mark.parametrize("counters", ["redis", "sqlite", "memory"])
async def test_a_worker_says_at_its_start_and_once_if_attempts_would_not_survive_it(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture, counters: str
) -> None:
    if counters != "redis":
        world.with_tickets(redis=f"sqlite:///{tmp_path}/counts.db" if counters == "sqlite" else "memory://")
    world.send(1)
    async with world.worker(failing):
        await world.main.until_committed(1)
    assert len(world.graves()) == 1
    said = [one.message for one in caplog.records if "a restart forgets them" in one.message]
    assert len(said) == (1 if counters == "memory" else 0)


async def test_mongodb_away_the_dlq_consumer_commits_nothing_and_catches_up(
    make_world: MakesWorld, start_server: StartsServer
) -> None:
    mongodb = start_server(MongoDB)
    world = make_world(mongodb=mongodb)
    soon = f"{world.settings.of(TicketSettings).mongodb}?timeoutMS=3000"  # it is known to be away
    world.send(*range(5))
    async with world.worker(failing):
        await world.main.until_committed(5)
    mongodb.kill9()
    async with world.with_tickets(mongodb=soon).consumer() as consumer:
        told = Told(consumer.app)
        await until(lambda: len(told.of(BackendDown)) >= 2, what="it says that MongoDB is away")
        assert sum(world.dead.committed().values()) == 0
        mongodb.start()
        await world.until_dead(5)
        await world.dead.until_committed(5)


async def test_a_dlq_topic_that_is_missing_holds_its_tickets_and_takes_them_when_it_is_there(
    make_world: MakesWorld,
) -> None:
    world = make_world(make_dead=False)
    world.send(1)
    async with world.worker(failing) as worker:
        metrics = measured(worker)
        told = Told(worker.app)
        missing = f"there is no topic '{world.dead.name}'"
        await until(lambda: any(missing in one.why for one in told.of(BackendDown)), what="it says so")
        assert b"worker_agent_dlq_publish_errors_total{" in metrics.render(None)
        assert sum(world.main.committed().values()) == 0
        world.dead.make(world.dead.name)
        await world.main.until_committed(1)
    assert len(world.graves()) == 1


async def test_a_ticket_too_large_for_the_dlq_is_in_the_store_with_a_stub_on_the_topic(make_world: MakesWorld) -> None:
    world = make_world(most=100_000)
    world.send(1, payload="x" * 300_000)
    world.send(2)
    async with world.worker(failing) as worker:
        await world.main.until_committed(2)
        assert await world.collected() == 1  # the stub is no second letter
        found = (await worker.app.store.letters.search(Query(message_ids=(world.id(1),)))).letters
    assert [letter.message.body for letter in found] == [world.ticket(1, payload="x" * 300_000)]
    assert len(world.graves()) == 2
    assert {one["ticket_id"] for one in world.documents.find()} == {world.id(1), world.id(2)}


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (b'{"task_type": "BUILD"}', "NoTicket"),
        (b'{"ticket_id": ""}', "NoTicket"),
        (b"[1, 2]", "NoTicket"),
        (b"\xff not JSON", "DecodeError"),
        (None, "DecodeError"),
    ],
)
async def test_what_is_no_ticket_is_kept_whole_and_buried_at_once(
    world: World, value: bytes | None, error: str
) -> None:
    world.main.produce((b"key", value), headers=[("trace", b"1")])
    handled: list[Any] = []

    async def handle(ticket: dict[str, Any] | list[int]) -> None:
        handled.append(ticket)

    async with world.worker(handle) as worker:
        await world.main.until_committed(1)
        assert await world.collected() == 1
        (letter,) = (await worker.app.store.letters.search(Query())).letters
    (grave,) = world.graves()
    assert handled == []
    assert grave.key() == b"key"
    assert grave.value() == value or json.loads(grave.value())["dlq_metadata"]["error_type"] == error
    assert letter.reason is Reason.UNDECODABLE
    assert letter.message.body == (value or b"")
    assert letter.message.header("trace") == b"1"
    (document,) = world.documents.find()
    assert document["dlq_metadata"]["error_type"] == error
    assert document["ticket_id"] == f"{world.main.name}[{letter.message.origin.partition('[')[2]}"


async def test_a_ticket_of_two_megabytes_is_handled(world: World) -> None:
    world.send(1, payload="x" * (2 << 20))
    done: list[int] = []

    async def handle(ticket: dict[str, Any]) -> None:
        done.append(len(ticket["payload"]))

    async with world.worker(handle):
        await world.main.until_committed(1)
    assert done == [2 << 20]


async def test_a_ticket_id_twice_in_the_dlq_is_one_document(world: World) -> None:
    said = {
        "original_error": "no",
        "error_type": "ValueError",
        "retry_count": 3,
        "last_failure_timestamp": 1_700_000_000_000,
    }
    values = [world.ticket(1, n=n, dlq_metadata={**said, "dlq_published_at": 1_700_000_000_000 + n}) for n in range(2)]
    later = world.ticket(1, n=2, dlq_metadata={**said, "last_failure_timestamp": 1_800_000_000_000})
    world.dead.produce(*[(b"k", value) for value in (*values, later)])
    assert await world.collected() == 3
    (document,) = world.documents.find()
    assert document["dlq_metadata"]["dlq_published_at"] == 1_800_000_000_000
    assert document["dlq_metadata"]["retry_count"] == 3


async def test_a_ticket_that_kills_its_worker_is_buried_and_the_others_are_handled(
    world: World, tmp_path: Path
) -> None:
    own = world.settings.of(TicketSettings)
    static = f"{own.kafka}&consumer.group.instance.id=worker"  # the next one waits for no session
    world.with_tickets(max_retries=1, kafka=static)
    world.send("poison", *range(20))
    done = tmp_path / "done"
    codes = [await _worker(world, done) for _ in range(3)]
    assert codes == [-9, -9, 0]
    handled = {line.split()[0] for line in done.read_text().splitlines()}
    assert handled == {world.id(number) for number in range(20)}
    (grave,) = world.graves()
    assert json.loads(grave.value())["ticket_id"] == world.id("poison")
    assert world.count_of("poison") is None


async def test_mongodb_away_after_a_crash_holds_up_nothing_that_never_needed_it(world: World, tmp_path: Path) -> None:
    own = world.settings.of(TicketSettings)
    world.with_tickets(
        max_retries=1, kafka=f"{own.kafka}&consumer.group.instance.id=worker", mongodb="mongodb://127.0.0.1:9/nobody"
    )
    world.send(*range(20), "poison", *range(20, 40))
    done = tmp_path / "done"
    assert [await _worker(world, done) for _ in range(3)] == [-9, -9, 0]
    handled = {line.split()[0] for line in done.read_text().splitlines()}
    assert handled == {world.id(number) for number in range(40)}
    assert [json.loads(grave.value())["ticket_id"] for grave in world.graves()] == [world.id("poison")]


async def test_a_worker_killed_at_any_step_of_a_burial_loses_nothing(make_world: MakesWorld, tmp_path: Path) -> None:
    steps = ("counted", "publishing", "published", "cleared")
    await asyncio.gather(*(_killed_at(step, make_world(), tmp_path / step) for step in steps))


async def _killed_at(step: str, world: World, done: Path) -> None:
    world.send("never")
    assert await _worker(world, done, step) == -9
    assert sum(world.main.committed().values()) == 0
    assert await _worker(world, done) == 0
    assert await world.collected() == len(world.graves())
    assert len(world.graves()) == (2 if step in ("published", "cleared") else 1), step
    (document,) = world.documents.find()
    assert document["ticket_id"] == world.id("never")
    assert world.count_of("never") is None
    assert sum(world.main.committed().values()) == 1


async def _worker(world: World, done: Path, step: str = "") -> int:
    """A process that works until everything is committed, or dies."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.systems.tickets.worker_process",
        json.dumps({"tickets": world.said, "done": str(done), "step": step}),
        cwd=ROOT,
    )
    try:
        return await asyncio.wait_for(process.wait(), 90)
    finally:
        if process.returncode is None:
            process.kill()
