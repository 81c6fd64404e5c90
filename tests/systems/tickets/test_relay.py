"""`republish --from-topic`: Kafka transactions from the DLQ topic to the topic of tickets."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from redrive.errors import TransportUnavailable, UsageError
from redrive.forensics.query import Query
from redrive.model import State
from redrive.systems.tickets import Relay
from redrive.systems.tickets.settings import TicketSettings
from redrive.systems.tickets.worker import kafka_options
from redrive.testing.waiting import until
from tests.systems.tickets.conftest import MakesWorld
from tests.systems.tickets.world import World, failing

ROOT = Path(__file__).parents[3]
KILLED = """
import asyncio, json, os, signal, sys
from redrive.systems.tickets import Relay
from redrive.transports.kafka.options import options_of
from msgspec.structs import replace

class Producer:
    "The real one, until it is to commit for the second time: then everything it was given is on the topics."
    def __init__(self, real):
        self.real, self.commits = real, 0
    def __getattr__(self, name):
        return getattr(self.real, name)
    def commit_transaction(self, *how):
        self.commits += 1
        if self.commits == 2:
            self.real.flush(30)
            os.kill(os.getpid(), signal.SIGKILL)
        self.real.commit_transaction(*how)

class Killed(Relay):
    producer = None
    def _send(self, consumer, producer, letters, raws):
        self.producer = self.producer or Producer(producer)
        super()._send(consumer, self.producer, letters, raws)

kafka, dead, main, group = json.loads(sys.argv[1])
options = replace(options_of(kafka), group=group)
asyncio.run(Killed(options, dead, main, group=group).run(at_once=10))
"""


def relay(world: World) -> Relay:
    own = world.settings.of(TicketSettings)
    group = f"{own.group}-republish"
    return Relay(kafka_options(own, group), own.dlq_topic, own.topic, group=group)


def ids(records: list[Any]) -> Counter[str]:
    return Counter(json.loads(one.value())["ticket_id"] for one in records)


def dead_ticket(world: World, number: int, **fields: Any) -> tuple[bytes, bytes]:
    metadata = {"error_type": "ValueError", "retry_count": 3}
    return world.id(number).encode(), world.ticket(number, dlq_metadata=metadata, **fields)


async def test_killed_in_the_middle_nothing_is_lost_and_nothing_is_doubled(world: World) -> None:
    world.dead.produce(*[dead_ticket(world, number) for number in range(45)])
    own = world.settings.of(TicketSettings)
    said = [own.kafka, own.dlq_topic, own.topic, f"{own.group}-republish"]
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", KILLED, json.dumps(said), cwd=ROOT)
    assert await asyncio.wait_for(process.wait(), 60) == -signal.SIGKILL, "see stderr: it should have died of the kill"
    first = len(world.main.records())  # those that are committed
    done = await relay(world).run(at_once=10)
    assert 0 < first <= 10, "the first transaction was committed, the second was not"
    assert done.sent == 45 - first
    handled: Counter[str] = Counter()

    async def handle(ticket: dict[str, Any]) -> None:
        assert "dlq_metadata" not in ticket
        handled[ticket["ticket_id"]] += 1

    async with world.worker(handle):
        await until(lambda: handled.total() >= 45, what="all are handled")
    assert handled == Counter(world.id(number) for number in range(45))
    assert (await relay(world).run()).sent == 0


async def test_a_ticket_goes_back_with_its_key_its_bytes_and_its_headers_and_its_success_resolves_it(
    world: World,
) -> None:
    world.main.produce((b"the key", world.ticket(1)), headers=[("trace", b"\xff"), ("trace", b"2")])
    async with world.worker(failing):
        await world.main.until_committed(1)
    assert await world.collected() == 1
    assert (await relay(world).run()).sent == 1
    async with world.worker(_fine) as worker:

        async def is_resolved() -> bool:
            return await worker.app.store.letters.count(Query(states=(State.RESOLVED,))) == 1

        await until(is_resolved)
    first, back = sorted(world.main.records(), key=lambda one: one.offset())
    assert (back.key(), back.value(), back.partition()) == (first.key(), first.value(), first.partition())
    assert [pair for pair in back.headers() if pair[0] != "redrive-letter"] == first.headers()


async def _fine(ticket: dict[str, Any]) -> None:
    return None


async def test_so_many_at_most_and_then_on_from_there(world: World) -> None:
    world.dead.produce(*[dead_ticket(world, number) for number in range(7)])
    assert (await relay(world).run(limit=3)).sent == 3
    assert (await relay(world).run()).sent == 4
    assert (await relay(world).run()).sent == 0


async def test_what_was_too_large_for_the_topic_is_said_and_not_sent(make_world: MakesWorld) -> None:
    world = make_world(most=100_000)
    world.send(1, payload="x" * 300_000)
    async with world.worker(failing):
        await world.main.until_committed(1)
    done = await relay(world).run()
    assert (done.sent, done.stubs) == (0, 1)


async def test_batches_that_are_too_large_for_the_topic_go_one_by_one_and_a_ticket_that_is_too_large_is_named(
    make_world: MakesWorld,
) -> None:
    world = make_world(most_main=20_000)
    own = {"payload": "x" * 5_000}
    world.dead.produce(*[dead_ticket(world, number, **own) for number in range(50)])
    assert (await relay(world).run(at_once=20)).sent == 50
    world.dead.produce(dead_ticket(world, 50, **own), dead_ticket(world, 51, payload="x" * 30_000))
    with pytest.raises(UsageError, match=r"refuses a message of 30,\d+ bytes: raise its `max\.message\.bytes`"):
        await relay(world).run()
    assert ids(world.main.records()) == Counter(world.id(number) for number in range(50)), (
        "all of a transaction, or none"
    )


async def test_a_dlq_topic_that_is_missing_is_named(make_world: MakesWorld) -> None:
    world = make_world(make_dead=False)
    with pytest.raises(TransportUnavailable, match=f"there is no topic '{world.dead.name}'"):
        await relay(world).run()
