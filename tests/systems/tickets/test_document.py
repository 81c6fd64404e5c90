"""The document's sequence diagram, step by step, and the forms it gives: counter, DLQ value, MongoDB document."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from redrive.testing.waiting import until
from tests.actors import acting
from tests.systems.tickets.world import World, failing

WEEK = 7 * 24 * 3600


async def test_the_sequence_diagram_step_by_step(world: World) -> None:
    """Each attempt waits for us, so that we can look at Redis, at both topics and at the offset meanwhile."""
    at: asyncio.Queue[int] = asyncio.Queue()
    go: asyncio.Queue[None] = asyncio.Queue()
    attempt = 0

    async def handle(ticket: dict[str, Any]) -> None:
        nonlocal attempt
        attempt += 1
        await at.put(attempt)
        await go.get()
        raise TimeoutError("the engine does not answer")

    world.send(1)
    publishing = asyncio.Event()
    published = asyncio.Event()
    async with world.worker(handle) as worker:
        behind = worker.transport.writer.outcomes

        async def held(parcels: Any) -> Any:
            if parcels:
                publishing.set()
                await published.wait()
            return await behind(parcels)

        worker.transport.writer.outcomes = held  # type: ignore[method-assign]
        for number, count in ((1, None), (2, 1), (3, 2)):
            assert await asyncio.wait_for(at.get(), 120) == number
            assert world.count_of(1) == count
            assert sum(world.main.committed().values()) == 0
            go.put_nowait(None)
        await asyncio.wait_for(publishing.wait(), 120)
        assert world.count_of(1) == 3
        assert 0 < world.redis.ttl(f"ticket:retry_count:{world.id(1)}") <= WEEK
        assert sum(world.main.committed().values()) == 0
        assert world.graves() == []
        published.set()
        await world.main.until_committed(1)
        assert len(world.graves()) == 1
        assert world.count_of(1) is None
    assert attempt == 3
    async with world.consumer():
        (document,) = await world.until_dead(1)
        assert document["ticket_id"] == world.id(1)
        await world.dead.until_committed(1)


async def test_a_dead_ticket_is_its_own_fields_and_why(world: World) -> None:
    body = b'{ "ticket_id": "%s",\n "task_type": "DEPLOY", "n": 1.50, "big": 123456789012345678901234567890 }\n'
    body %= world.id(1).encode()
    began = time.time() * 1000
    world.main.produce((b"the key", body), headers=[("trace", b"\xff\x00"), ("trace", b"2")])
    async with world.worker(failing):
        await world.main.until_committed(1)
    (grave,) = world.graves()
    value = json.loads(grave.value())
    said = value.pop("dlq_metadata")
    assert value == json.loads(body)
    assert grave.key() == b"the key"
    assert [pair for pair in grave.headers() if pair[0] == "trace"] == [("trace", b"\xff\x00"), ("trace", b"2")]
    assert said["original_error"] == f"the engine does not answer for {world.id(1)}"
    assert (said["error_type"], said["retry_count"]) == ("TimeoutError", 3)
    assert began <= said["last_failure_timestamp"] <= said["dlq_published_at"] <= time.time() * 1000
    assert list(said) == [
        "original_error",
        "error_type",
        "retry_count",
        "last_failure_timestamp",
        "dlq_published_at",
    ]

    assert await world.collected() == 1
    (document,) = world.documents.find()
    assert document["dlq_metadata"] == said
    assert (document["ticket_id"], document["task_type"], document["n"]) == (world.id(1), "DEPLOY", 1.5)
    assert document["big"] == "123456789012345678901234567890"
    assert began / 1000 - 1 <= document["processed_at"].replace(tzinfo=UTC).timestamp() <= datetime.now(UTC).timestamp()
    async with world.worker(failing) as worker:
        letters = (await worker.app.store.letters.search(_everything())).letters
    assert [letter.message.body for letter in letters] == [body.rstrip()]
    assert [one.attempt for one in letters[0].failures] == [1, 2, 3]
    assert "in failing" in letters[0].last.stack
    keys = {tuple(index["key"]): index.get("unique", False) for index in world.documents.list_indexes()}
    assert (
        keys.items()
        >= {
            ("ticket_id",): True,
            ("task_type",): False,
            ("dlq_metadata.dlq_published_at",): False,
            ("task_type", "dlq_metadata.error_type"): False,
        }.items()
    )


def _everything() -> Any:
    from redrive.forensics.query import Query

    return Query()


async def test_success_clears_the_counter_and_other_tickets_go_on(world: World) -> None:
    world.send("stuck", "fine")
    handled: list[str] = []
    mended = asyncio.Event()

    async def handle(ticket: dict[str, Any]) -> None:
        if ticket["ticket_id"] == world.id("stuck") and not mended.is_set():
            mended.set()
            raise ConnectionError("not yet")
        handled.append(ticket["ticket_id"])

    async with world.worker(handle):
        await until(lambda: len(handled) == 2)
        await world.main.until_committed(2)
    assert sorted(handled) == [world.id("fine"), world.id("stuck")]
    assert world.count_of("stuck") is None
    assert world.graves() == []


async def test_retries_go_on_counting_where_the_last_worker_ended(world: World) -> None:
    world.redis.set(f"ticket:retry_count:{world.id(1)}", 2)
    world.send(1)
    attempts: list[int] = []

    async def handle(ticket: dict[str, Any], message: Any) -> None:
        attempts.append(message.attempt)
        raise ValueError("no")

    async with world.worker(handle):
        await world.main.until_committed(1)
    assert attempts == [3]
    assert json.loads(world.graves()[0].value())["dlq_metadata"]["retry_count"] == 3


async def test_a_ticket_that_dies_again_after_a_republish_rejoins_its_document(world: World) -> None:
    from redrive.service import Service

    world.send(1)
    async with world.worker(failing) as worker, world.consumer():
        await world.until_dead(1)
        worker.app.declare(world.main.name)
        replay = await Service(worker.app).replay(_everything(), every=True, actor=acting("test"))
        await Service(worker.app).run_replay(replay.id)
        await until(lambda: len(world.graves()) == 2, what="it died again")
        await world.dead.until_committed(2)
        letters = (await worker.app.store.letters.search(_everything())).letters
    assert [len(letter.failures) for letter in letters] == [6]
    assert [letter.state for letter in letters] == ["exhausted"]
    (document,) = world.documents.find()
    first, second = (json.loads(one.value())["dlq_metadata"] for one in world.graves())
    assert document["dlq_metadata"]["last_failure_timestamp"] == max(
        first["last_failure_timestamp"], second["last_failure_timestamp"]
    )


@pytest.mark.parametrize("max_retries", [1, 2])
async def test_so_many_failures_are_allowed(world: World, max_retries: int) -> None:
    world.with_tickets(max_retries=max_retries)
    world.send(1)
    async with world.worker(failing):
        await world.main.until_committed(1)
    assert json.loads(world.graves()[0].value())["dlq_metadata"]["retry_count"] == max_retries
    assert world.count_of(1) is None
