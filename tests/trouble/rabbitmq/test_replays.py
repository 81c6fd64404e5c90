"""Replays onto a real RabbitMQ of which one queue takes nothing: the others get each message once, and it ends."""

from __future__ import annotations

from urllib.parse import quote

from redrive.clock import SystemClock
from redrive.flow.replay import Replays, ReplayState
from redrive.forensics.query import Query
from redrive.model import State
from redrive.stores.base import EntryStatus
from redrive.stores.memory import MemoryStore
from redrive.telemetry.events import Events
from redrive.testing.builders import make_letter, make_message
from redrive.testing.clock import ManualClock
from redrive.transports.rabbitmq.declaring import Declaring
from redrive.transports.rabbitmq.link import Link
from redrive.transports.rabbitmq.options import options_of
from redrive.transports.rabbitmq.transport import RabbitTransport, open_transport
from tests.servers import web
from tests.servers.fixtures import StartsServer
from tests.servers.rabbitmq import GUEST, RabbitMQ
from tests.trouble.rabbitmq.work import LEASE


def limit_queue(server: RabbitMQ, vhost: str, queue: str) -> None:
    """That queue holds one message, and refuses the next."""
    definition = {"max-length": 1, "overflow": "reject-publish"}
    policy = {"pattern": f"^{queue}$", "definition": definition, "apply-to": "queues"}
    web.call("PUT", _policy(server, vhost, queue), policy, credentials=GUEST)


def unlimit_queue(server: RabbitMQ, vhost: str, queue: str) -> None:
    """Undoes `limit_queue`."""
    web.call("DELETE", _policy(server, vhost, queue), credentials=GUEST)


async def made(url: str, queue: str) -> None:
    """Make that queue, as its worker does: a replay makes none."""
    options = options_of(url)
    link = Link(options)
    await Declaring(link, options).ensure(queue)
    await link.aclose()


def _policy(server: RabbitMQ, vhost: str, queue: str) -> str:
    return f"{server.management_url}/api/policies/{quote(vhost, safe='')}/limit-{queue}"


async def test_one_letters_queue_refuses_it_and_its_neighbours_are_sent_once(
    rabbitmq_server: RabbitMQ, vhost: str, url: str, transport: RabbitTransport
) -> None:
    limit_queue(rabbitmq_server, vhost, "full")
    await transport.send([make_message(source="full", id="fills it")])
    await made(url, "work")
    store, clock = MemoryStore(), ManualClock()
    refused = make_letter(make_message(source="full"))
    others = [make_letter(make_message(source="work")) for _ in range(3)]
    await store.letters.record([others[0], refused, *others[1:]])
    replays = Replays(store, {"default": transport}, Events(), clock)
    replay = await replays.start(Query(), actor="ann")
    for _ in range(50):
        ended = await replays.run(replay.id, runner="upkeep")
        assert (await transport.depths())["work"].total == 3
        if ended.state is not ReplayState.RUNNING:
            break
        await clock.advance(60)
    assert ended.state is ReplayState.SENT
    assert await store.ledger.tally(replay.id) == {EntryStatus.SENT: 3, EntryStatus.SKIPPED: 1}
    [skipped], _ = await store.ledger.entries(replay.id, status=EntryStatus.SKIPPED)
    assert skipped.letter == refused.id
    assert "limit" in skipped.note
    now = await store.letters.get(refused.id)
    assert now is not None
    assert (now.state, now.owner, now.resends) == (State.PENDING, None, 0)


async def test_a_message_that_is_too_large_for_the_broker_is_refused_and_its_neighbours_are_not_sent_for_ever(
    start_server: StartsServer,
) -> None:
    """The broker closes the channel for it, so of what was published beside it nobody knows, once."""
    server = start_server(RabbitMQ)
    server.control("eval", "application:set_env(rabbit, max_message_size, 100000).")
    server.control("eval", "persistent_term:put(max_message_size, 100000).")
    await made(f"{server.url}?delay=200ms", "orders")
    transport = open_transport(f"{server.url}?delay=200ms", clock=SystemClock(), lease=LEASE)
    store, clock = MemoryStore(), ManualClock()
    large = make_letter(make_message(body=b"x" * 200_000))
    await store.letters.record([large, *(make_letter(make_message()) for _ in range(3))])
    replays = Replays(store, {"default": transport}, Events(), clock)
    replay = await replays.start(Query(), actor="ann")
    for _ in range(3):
        ended = await replays.run(replay.id, runner="upkeep")
        await clock.advance(60)
    assert ended.state is ReplayState.SENT
    [skipped], _ = await store.ledger.entries(replay.id, status=EntryStatus.SKIPPED)
    assert (skipped.letter, "max size" in skipped.note) == (large.id, True)
    assert 3 <= (await transport.depths())["orders"].total <= 6
    await transport.aclose()
