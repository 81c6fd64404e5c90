"""RabbitMQ killed, cut off, full, emptied under us; messages forged, unroutable, deadly. Nothing is lost."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from functools import partial
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pytest
import pytest_asyncio
from pika import BasicProperties

from redrive import Policy, Redrive, immediate
from redrive.clock import SystemClock
from redrive.config import Settings
from redrive.doctor import Level, examine
from redrive.errors import ConfigError, TransportUnavailable
from redrive.forensics.query import Query
from redrive.model import Done, Message, Reason, Release, Retry
from redrive.telemetry.events import BackendDown, BackendUp, Event
from redrive.testing.builders import make_failure, make_message
from redrive.testing.waiting import until
from redrive.transports.base import Delivery, Settlement
from redrive.transports.rabbitmq.link import Connection
from redrive.transports.rabbitmq.options import options_of
from redrive.transports.rabbitmq.publisher import Parcel, Unroutable
from redrive.transports.rabbitmq.redrive import Parkings
from redrive.transports.rabbitmq.transport import RabbitTransport, open_transport
from redrive.transports.rabbitmq.wire import rejections
from redrive.worker import Worker
from tests.servers import web
from tests.servers.fixtures import StartsServer
from tests.servers.rabbitmq import GUEST, RabbitMQ
from tests.servers.toxiproxy import Toxiproxy

LEASE = timedelta(seconds=30)


@pytest.fixture
def vhost(rabbitmq_server: RabbitMQ) -> Any:
    name = f"trouble-{uuid4().hex[:12]}"
    place = f"{rabbitmq_server.management_url}/api/vhosts/{name}"
    web.call("PUT", place, credentials=GUEST)
    yield name
    web.call("DELETE", place, credentials=GUEST)


@pytest.fixture
def url(rabbitmq_server: RabbitMQ, vhost: str) -> str:
    return f"{rabbitmq_server.url}{vhost}?delay=200ms"


@pytest_asyncio.fixture
async def transport(url: str) -> AsyncIterator[RabbitTransport]:
    transport = open_transport(url, clock=SystemClock(), lease=LEASE)
    yield transport
    await transport.aclose()


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("amqp://", "amqp://user:password@host"),
        ("http://host", "amqp://user:password@host"),
        ("amqp://host/?dealy=1s", "did you mean 'delay'"),
        ("amqp://host/?retry=rejct", "did you mean 'reject'"),
        ("amqp://host/?retry=reject&delay=1s,2s", "one delay for all"),
        ("amqp://host/?queues=lazy", "classic or quorum"),
        ("amqp://host/?prefetch=0", "1 to 65,535"),
        ("amqp://host/?bury=grave", "store or dlq or both"),
        ("amqp://host/?declare=perhaps", "yes or no"),
        ("amqp://host/?delay=soon", "duration"),
    ],
)
def test_a_url_that_is_none(url: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        options_of(url)


async def test_nobody_there_and_a_wrong_password(rabbitmq_server: RabbitMQ) -> None:
    for url, says in (
        ("amqp://127.0.0.1:1/", "127.0.0.1:1"),
        (rabbitmq_server.url.replace("guest:guest", "guest:wrong"), "refuses this user"),
        (f"{rabbitmq_server.url}no-such-vhost", "is unavailable"),
    ):
        transport = open_transport(url, clock=SystemClock(), lease=LEASE)
        with pytest.raises(TransportUnavailable, match=says):
            await transport.check()
        await transport.aclose()


async def test_a_retry_waits_in_the_broker_for_its_time(transport: RabbitTransport) -> None:
    await transport.send([make_message(id="m-1")])
    [first] = await transport.receive("orders", 1)
    await transport.settle([Settlement(first, Retry(timedelta(milliseconds=100)), make_failure(message="once"))])
    assert (await transport.depths())["orders"].delayed == 1
    [second] = await asyncio.wait_for(transport.receive("orders", 1), 20)
    assert (second.message.id, second.message.attempt, second.redelivered) == ("m-1", 2, False)
    assert [failure.message for failure in second.failures] == ["once"]


# -- messages of other people ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "deaths",
    [
        "text",
        7,
        [],
        ["text", 3, None],
        [{"queue": "orders", "reason": "rejected"}],
        [{"queue": "orders", "reason": "rejected", "count": "9"}],
        [{"queue": "orders", "reason": "rejected", "count": -4}],
        [{"queue": "orders", "reason": "expired", "count": 9}],
        [{"queue": "another", "reason": "rejected", "count": 9}],
    ],
    ids=str,
)
async def test_a_forged_or_odd_x_death_counts_nothing(transport: RabbitTransport, deaths: Any) -> None:
    assert rejections({"x-death": deaths}, "orders") == 0
    await transport.send([make_message()])
    [mine] = await transport.receive("orders", 1)
    properties = BasicProperties(message_id="theirs", headers={"x-death": deaths})
    await transport._publisher.publish([Parcel("", "orders", properties, b"{}")])
    [theirs] = await asyncio.wait_for(transport.receive("orders", 1), 20)
    assert (theirs.message.id, theirs.message.attempt, mine.message.attempt) == ("theirs", 1, 1)


@pytest.mark.parametrize(
    "ours",
    [
        "no JSON",
        b"\xff",
        7,
        '{"at": 1000000000000000000000000000000}',
        '{"attempt": -3}',
        '{"attempt": 99999999999}',
        '{"expires": -1}',
        '{"pairs": 3}',
    ],
    ids=str,
)
async def test_a_forged_header_of_ours_says_nothing(transport: RabbitTransport, ours: Any) -> None:
    properties = BasicProperties(message_id="theirs", headers={"redrive": ours, "redrive-failures": b"\xc1"})
    theirs = await _through(transport, properties, b"{}")
    assert (theirs.message.id, theirs.message.attempt, theirs.failures) == ("theirs", 1, ())


async def test_text_that_is_none_is_carried_as_what_it_is(transport: RabbitTransport) -> None:
    bytes_in_text: Any = b"\xff-id"
    properties = BasicProperties(
        message_id=bytes_in_text, correlation_id=bytes_in_text, headers={bytes_in_text: 1, "n": {"deep": [1, None]}}
    )
    theirs = await _through(transport, properties, b"\x00")
    assert theirs.message.id == theirs.message.correlation_id == "\\xff-id"
    assert theirs.message.header("\\xff-id") == b"1"
    await transport.settle([Settlement(theirs, Retry(timedelta()), make_failure())])
    [again] = await asyncio.wait_for(transport.receive("orders", 1), 20)
    assert (again.message.id, again.message.attempt) == ("\\xff-id", 2)


async def test_headers_that_fill_a_frame_are_refused_and_break_nothing(transport: RabbitTransport) -> None:
    huge = make_message(id="huge", headers=(("x", b"y" * 130_000),))
    with pytest.raises(TransportUnavailable, match="the headers of 'huge' fill a frame"):
        await transport.send([make_message(id="before"), huge, make_message(id="after")])
    some = [*await transport.receive("orders", 1), *await asyncio.wait_for(transport.receive("orders", 1), 20)]
    assert [one.message.id for one in some] == ["before", "after"]


async def test_a_story_that_does_not_fit_beside_the_headers_is_left_out(transport: RabbitTransport) -> None:
    await transport.send([make_message(id="large", headers=(("x", b"y" * 100_000),))])
    [first] = await transport.receive("orders", 1)
    failure = make_failure(message="once", stack="s" * 40_000)
    await transport.settle([Settlement(first, Retry(timedelta()), failure)])
    [second] = await asyncio.wait_for(transport.receive("orders", 1), 20)
    assert (second.message.attempt, second.failures) == (2, ())


async def test_a_message_without_an_id_has_one_through_its_retries(transport: RabbitTransport) -> None:
    await transport.depths()
    await transport._declaring.ensure("orders")
    await transport._publisher.publish([Parcel("", "orders", BasicProperties(message_id=None), b"a")])
    [first] = await asyncio.wait_for(transport.receive("orders", 1), 20)
    await transport.settle([Settlement(first, Retry(timedelta()), make_failure())])
    [second] = await asyncio.wait_for(transport.receive("orders", 1), 20)
    assert first.message.id == second.message.id != ""


async def test_what_no_queue_takes_is_an_error(transport: RabbitTransport) -> None:
    await transport.send([make_message(id="known")])
    parcels = [Parcel("", name, BasicProperties(message_id=name), b"x") for name in ("orders", "nowhere", "orders")]
    found = await transport._publisher.outcomes(parcels)
    assert [type(one) for one in found] == [type(None), Unroutable, type(None)]
    assert "'nowhere'" in str(found[1])


async def _through(transport: RabbitTransport, properties: BasicProperties, body: bytes) -> Delivery:
    await transport._declaring.ensure("orders")
    await transport._publisher.publish([Parcel("", "orders", properties, body)])
    [delivery] = await asyncio.wait_for(transport.receive("orders", 1), 20)
    return delivery


# -- leases and copies ------------------------------------------------------------------------------------------------


async def test_a_lease_that_ends_while_its_copy_is_made_breaks_nothing(transport: RabbitTransport) -> None:
    await transport.send([make_message(id="m-1"), make_message(id="m-2")])
    [first] = await transport.receive("orders", 1)
    [second] = await transport.receive("orders", 1)
    subscription = transport._subscriptions["orders"]
    copying = asyncio.create_task(transport.settle([Settlement(first, Retry(timedelta()), make_failure())]))
    await asyncio.sleep(0)
    subscription.reject(first.token.tag, requeue=True)  # as the sweep does
    await copying
    await transport.settle([Settlement(second, Done())])
    came = [one for _ in range(2) for one in await asyncio.wait_for(transport.receive("orders", 1), 20)]
    assert [one.message.id for one in came] == ["m-1", "m-1"], "a repeat, and the channel still lives"
    assert subscription.closed is None


async def test_what_cannot_be_adopted_yet_is_adopted_later(transport: RabbitTransport, url: str) -> None:
    await transport.send([make_message(id="m-1")])
    [first] = await transport.receive("orders", 1)
    transport._subscriptions["orders"].reject(first.token.tag, requeue=True)
    transport._publisher._link.blocked = "low on memory"
    with pytest.raises(TransportUnavailable, match="low on memory"):
        await asyncio.wait_for(transport.receive("orders", 1), 20)
    transport._publisher._link.blocked = ""
    [again] = await asyncio.wait_for(transport.receive("orders", 1), 20)
    assert (again.message.attempt, again.redelivered) == (1, True)


async def test_a_worker_that_stops_in_the_stream_counts_nothing_against_what_it_did_not_begin(
    transport: RabbitTransport, url: str
) -> None:
    await transport.send([make_message(id=f"{n}") for n in range(2000)])
    other = open_transport(f"{url}&prefetch=1000", clock=SystemClock(), lease=LEASE)
    some = await other.receive("orders", 10)
    await other.settle([Settlement(one, Done()) for one in some])
    await other.aclose()
    seen: dict[str, tuple[int, bool]] = {}
    while len(seen) < 2000 - len(some):
        for one in await asyncio.wait_for(transport.receive("orders", 500), 20):
            seen[one.message.id] = (one.message.attempt, one.redelivered)
            await transport.settle([Settlement(one, Done())])
    assert set(seen.values()) == {(1, False)}


# -- declarations ------------------------------------------------------------------------------------------------------


async def test_a_queue_that_is_declared_otherwise(transport: RabbitTransport, url: str) -> None:
    await transport.send([make_message()])
    other = open_transport(url.replace("200ms", "1s"), clock=SystemClock(), lease=LEASE)
    with pytest.raises(ConfigError, match="declared otherwise"):
        await other.send([make_message()])
    await other.aclose()
    strict = open_transport(f"{url}&declare=no", clock=SystemClock(), lease=LEASE)
    await strict.send([make_message()])
    with pytest.raises(ConfigError, match="is not on the broker"):
        await strict.send([make_message(source="unmade")])
    await strict.aclose()


async def test_quorum_queues(url: str) -> None:
    transport = open_transport(f"{url}&queues=quorum", clock=SystemClock(), lease=LEASE)
    await transport.send([make_message(id=f"{n}") for n in range(50)])
    got: list[str] = []
    while len(got) < 50:
        some = await asyncio.wait_for(transport.receive("orders", 20), 20)
        again = [one for one in some if one.message.attempt == 1]
        await transport.settle([Settlement(one, Retry(timedelta()), make_failure()) for one in again])
        await transport.settle([Settlement(one, Done()) for one in some if one.message.attempt == 2])
        got += [one.message.id for one in some if one.message.attempt == 2]
    assert sorted(got, key=int) == [f"{n}" for n in range(50)]
    await transport.aclose()


# -- a worker in trouble -------------------------------------------------------------------------------------------


class Work:
    """A worker on a queue, and what it did."""

    def __init__(self, url: str, *, attempts: int = 3, seconds: float = 0.0) -> None:
        settings = Settings(lease=LEASE, batch=20, concurrency=5)
        self.app = Redrive(transport=url, store="memory://", settings=settings)
        self.done: Counter[str] = Counter()
        self.attempts: Counter[int] = Counter()
        self.events: list[Event] = []
        self.app.events.subscribe(self.events.append)
        policy = Policy(attempts=attempts, backoff=immediate())

        @self.app.handler("orders", policy=policy)
        async def handle(body: bytes, message: Message) -> None:
            await asyncio.sleep(seconds)
            if body == b"bad":
                raise ValueError("bad")
            self.done[message.id] += 1
            self.attempts[message.attempt] += 1

        self.worker = Worker(self.app, upkeep=False, grace=timedelta(seconds=10))
        self.task = asyncio.create_task(self.worker.run())

    async def until(self, done: Callable[[], bool], what: str) -> None:
        await until(done, what=what, timeout=90)

    async def end(self) -> None:
        self.worker.stop()
        await self.task
        await self.app.aclose()

    def saw(self, kind: type[Event]) -> bool:
        return any(isinstance(event, kind) for event in self.events)


async def test_the_broker_is_killed_under_load_and_comes_back(start_server: StartsServer) -> None:
    server = start_server(RabbitMQ)
    url = f"{server.url}?delay=200ms"
    sender = open_transport(url, clock=SystemClock(), lease=LEASE)
    await sender.send([make_message(id=f"a-{n}", body=b"ok") for n in range(3000)])
    await sender.send([make_message(id=f"bad-{n}", body=b"bad") for n in range(20)])
    work = Work(url, attempts=2, seconds=0.001)
    await work.until(lambda: len(work.done) > 50, "some are handled")
    server.kill9()
    await work.until(lambda: work.saw(BackendDown), "it is told")
    server.start()
    await work.until(lambda: len(work.done) == 3000, "all are handled")
    assert work.saw(BackendUp)
    assert set(work.attempts) == {1}, "what the broker calls delivered after its crash was tried by nobody"
    letters = work.app.store.letters

    async def buried() -> bool:
        return await letters.count(Query()) == 20

    await until(buried, what="all bad ones are letters", timeout=90)
    assert {one.reason for one in (await letters.search(Query())).letters} == {Reason.PERMANENT}
    await work.end()
    await sender.aclose()


async def test_a_connection_that_is_cut_in_the_middle_of_a_confirm(
    toxiproxy_server: Toxiproxy, rabbitmq_server: RabbitMQ, vhost: str, transport: RabbitTransport
) -> None:
    proxy = toxiproxy_server.proxy(rabbitmq_server.address)
    cut = open_transport(
        f"amqp://guest:guest@{proxy.address}/{vhost}?delay=200ms&confirm_timeout=2s", clock=SystemClock(), lease=LEASE
    )
    await cut.send([make_message(id="before")])
    proxy.add("limit_data", bytes=0)  # the broker takes it, and its answer reaches nobody
    with pytest.raises(TransportUnavailable):
        await cut.send([make_message(id="during")])
    proxy.remove("limit_data")
    await cut.send([make_message(id="during"), make_message(id="after")])
    names: Counter[str] = Counter()
    while not {"before", "during", "after"} <= set(names):
        names.update(one.message.id for one in await asyncio.wait_for(transport.receive("orders", 10), 20))
    assert names["during"] in (1, 2), "repeated, but not lost"
    await cut.aclose()


async def test_a_queue_that_is_deleted_under_its_consumer(
    rabbitmq_server: RabbitMQ, vhost: str, url: str, transport: RabbitTransport
) -> None:
    await transport.send([make_message(id="first", body=b"ok")])
    work = Work(url)
    await work.until(lambda: work.done["first"] == 1, "the first is handled")
    web.call("DELETE", f"{rabbitmq_server.management_url}/api/queues/{vhost}/orders", credentials=GUEST)
    await work.until(lambda: work.saw(BackendDown), "it is told")
    transport._declaring.forget("orders")
    await transport.send([make_message(id="second", body=b"ok")])
    await work.until(lambda: work.done["second"] == 1, "the second is handled")
    await work.end()


@pytest.mark.parametrize("kind", ["queues", "exchanges"])
async def test_a_dead_letter_queue_that_is_missing_keeps_the_message(
    rabbitmq_server: RabbitMQ, vhost: str, url: str, transport: RabbitTransport, kind: str
) -> None:
    await transport.send([make_message(id="bad", body=b"bad")])
    name = {"queues": "orders.dlq", "exchanges": "dlq.orders"}[kind]
    web.call("DELETE", f"{rabbitmq_server.management_url}/api/{kind}/{vhost}/{name}", credentials=GUEST)
    work = Work(f"{url}&bury=dlq&declare=no", attempts=1)
    await work.until(lambda: work.saw(BackendDown), "it is loud")
    down = next(event for event in work.events if isinstance(event, BackendDown))
    assert "could not be parked" in down.why
    transport._declaring.forget("orders")
    await transport.send([make_message(id="good", body=b"ok")])  # which makes what is missing again
    await work.until(lambda: work.done["good"] == 1, "others are handled")
    await until(lambda: _has_parked(url, "bad"), what="it is parked now", timeout=60)
    await work.end()


async def _has_parked(url: str, id: str) -> bool:
    parkings = Parkings(options_of(url), SystemClock())
    found = await parkings.peek("orders.dlq", 10)
    await parkings.aclose()
    return [one.message_id for one in found] == [id]


async def test_a_message_that_kills_its_worker_every_time_becomes_a_letter(
    transport: RabbitTransport, url: str
) -> None:
    """Twice it might have been only taken ahead; from then on it counts."""
    await transport.send([make_message(id="deadly")])
    for deaths, attempt in enumerate((1, 1, 1, 2, 3)):
        victim = open_transport(url, clock=SystemClock(), lease=LEASE)
        [delivery] = await asyncio.wait_for(victim.receive("orders", 1), 20)
        assert (delivery.message.attempt, delivery.redelivered) == (attempt, deaths > 0)
        await _die(victim)
    work = Work(url, attempts=3)
    letters = work.app.store.letters

    async def buried() -> bool:
        return await letters.count(Query()) == 1

    await until(buried, what="it is a letter", timeout=30)
    [letter] = (await letters.search(Query())).letters
    assert (letter.message.id, letter.reason) == ("deadly", Reason.CRASHED)
    assert not work.done
    await work.end()


async def _die(victim: RabbitTransport) -> None:
    """As if its process had: what was said is on its way, the sockets are shut, and nothing more is said."""
    for connection in (victim._link._connection, victim._publisher._link._connection):
        if connection is not None:
            await until(partial(_has_said_all, connection), what="all is said")
            connection._transport._sock.shutdown(socket.SHUT_RDWR)
            await until(partial(getattr, connection, "is_closed"), what="the connection is lost")


def _has_said_all(connection: Connection) -> bool:
    return not connection._unsent and not connection._transport._tx_buffers


async def test_a_memory_or_disk_alarm_stops_publishers_and_not_consumers(start_server: StartsServer) -> None:
    server = start_server(RabbitMQ)
    transport = open_transport(f"{server.url}?delay=200ms&confirm_timeout=2s", clock=SystemClock(), lease=LEASE)
    await transport.send([make_message(id="before"), make_message(id="handled")])
    server.control("set_vm_memory_high_watermark", "absolute", "1MB")
    with pytest.raises(TransportUnavailable, match="memory"):
        await transport.send([make_message(id="during")])
    with pytest.raises(TransportUnavailable, match="takes nothing from publishers"):
        await transport.check()
    management = quote(server.management_url, safe="")
    async with Redrive(transport=f"{server.url}?management={management}", store="memory://") as app:
        failures = [one for one in (await examine(app)).findings if one.level is Level.FAILURE]
    assert [one.about for one in failures] == ["transports.default"]
    assert "memory on redrive@localhost" in failures[0].text
    held = await transport.receive("orders", 2)
    await transport.settle([Settlement(one, Done()) for one in held if one.message.id == "handled"])
    await transport.depths()  # comes back after the ack: the broker has read both
    server.control("set_vm_memory_high_watermark", "0.6")

    async def takes() -> bool:
        try:
            await transport.send([make_message(id="after")])
        except TransportUnavailable:
            return False
        return True

    await until(takes, what="it takes messages again", timeout=60)
    names = {one.message.id for one in held}
    while "after" not in names:
        names |= {one.message.id for one in await asyncio.wait_for(transport.receive("orders", 50), 20)}
    assert "before" in names
    server.control("set_disk_free_limit", "1000000GB")
    with pytest.raises(TransportUnavailable, match="disk"):
        await transport.send([make_message(id="later")])
    await asyncio.wait_for(transport.aclose(), 60)  # though the broker does not hear it


async def test_a_deadly_message_takes_no_innocent_one_along(transport: RabbitTransport, url: str) -> None:
    """Each worker dies with what it has in its hands, and had taken ahead much more."""
    await transport.send([make_message(id="deadly"), *(make_message(id=f"{n}") for n in range(60))])
    for _ in range(4):
        victim = open_transport(url, clock=SystemClock(), lease=LEASE)
        while True:
            some = await asyncio.wait_for(victim.receive("orders", 10), 20)
            if any(one.message.id == "deadly" for one in some):
                break
            await victim.settle([Settlement(one, Release()) for one in some])
        await _die(victim)
    attempts: dict[str, int] = {}
    while len(attempts) < 61:
        for one in await asyncio.wait_for(transport.receive("orders", 10), 20):
            attempts[one.message.id] = one.message.attempt
            await transport.settle([Settlement(one, Done())])
    assert attempts.pop("deadly") == 3
    assert set(attempts.values()) == {1}, "who was only taken ahead has not been tried"
