"""Dead-letter queues of RabbitMQ into a store, and back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pika
import pytest

from redrive import Policy, Redrive, immediate
from redrive.clock import SystemClock
from redrive.forensics.query import Query
from redrive.model import LETTER_HEADER, Reason
from redrive.service import Service
from redrive.stores.base import EntryStatus
from redrive.telemetry.events import MessageBuried
from redrive.testing.builders import make_message
from redrive.testing.waiting import until
from redrive.transports.base import SendStatus
from redrive.transports.rabbitmq.deaths import DEATH_HEADERS
from redrive.transports.rabbitmq.transport import open_transport
from tests.actors import acting
from tests.cli.world import Shell
from tests.servers import web
from tests.servers.rabbitmq import GUEST, RabbitMQ
from tests.trouble.helpers import Told, letters, make_app, working


@pytest.fixture
def url(rabbitmq_server: RabbitMQ) -> Iterator[str]:
    name = f"collect-{uuid4().hex[:12]}"
    place = f"{rabbitmq_server.management_url}/api/vhosts/{name}"
    web.call("PUT", place, credentials=GUEST)
    yield f"{rabbitmq_server.url.rstrip('/')}/{name}"
    web.call("DELETE", place, credentials=GUEST)


def collected(place: Path, url: str, *more: str) -> int:
    store = f"sqlite:///{place / 'letters.db'}"
    done = Shell(place).process("--store", store, "collect", url, *more, "--json")
    count: int = json.loads(done.stdout)["collected"]
    return count


async def test_what_rabbitmq_has_dead_lettered_says_where_it_was_and_goes_back_there(url: str, tmp_path: Path) -> None:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel: Any = connection.channel()
        channel.queue_declare("their.dead", durable=True)
        to_dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "their.dead"}
        channel.queue_declare("orders", durable=True, arguments=to_dead)
        channel.queue_declare("slow", durable=True, arguments={**to_dead, "x-message-ttl": 1})
        properties = pika.BasicProperties(message_id="o-1", headers={"trace": "1"}, delivery_mode=2)
        channel.basic_publish("", "orders", b"\xff rejected", properties)
        channel.basic_publish("", "slow", b"expired")
        channel.basic_publish("", "their.dead", b"just there")
        method, _, _ = channel.basic_get("orders")
        channel.basic_reject(method.delivery_tag, requeue=False)
        while channel.queue_declare("their.dead", passive=True).method.message_count < 3:
            connection.process_data_events(0.01)
    assert collected(tmp_path, f"{url}/their.dead") == 3
    assert collected(tmp_path, f"{url}/their.dead") == 0
    async with make_app(tmp_path, transport=f"{url}?declare=no", store=f"sqlite:///{tmp_path / 'letters.db'}") as app:
        found = {letter.message.body: letter for letter in await letters(app)}
        rejected = found[b"\xff rejected"]
        assert (rejected.message.source, rejected.message.id) == ("orders", "o-1")
        assert rejected.message.header("trace") == b"1"
        assert rejected.last.type == "rabbitmq.Rejected"
        assert (found[b"expired"].message.source, found[b"expired"].reason) == ("slow", Reason.EXPIRED)
        assert found[b"just there"].last.type == "rabbitmq.Unknown"
        app.declare("orders")
        service = Service(app)
        await service.run_replay((await service.replay(Query(sources=("orders",)), actor=acting("test"))).id)
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        method, back, body = connection.channel().basic_get("orders", auto_ack=True)
        assert (body, back.message_id, back.headers["trace"]) == (b"\xff rejected", "o-1", "1")


async def test_what_redrive_has_parked_comes_with_its_story(url: str, tmp_path: Path) -> None:
    app: Redrive = make_app(tmp_path, transport=f"{url}?bury=dlq")
    told = Told(app)

    @app.handler("q.orders", policy=Policy(attempts=2, backoff=immediate()))
    async def handle(body: int) -> None:
        raise ConnectionError("no")

    async with app:
        await app.send("q.orders", 7, id="m-7", tenant="acme", headers={"trace": "1"})
        async with working(app):
            await until(lambda: bool(told.of(MessageBuried)), what="it is parked")
    (buried,) = told.of(MessageBuried)
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:  # as a worker that dies before its ack does
        channel: Any = connection.channel()
        _, properties, body = channel.basic_get("q.orders.dlq")
        channel.basic_publish("dlq.q.orders", "parking", body, properties)
    collected(tmp_path, f"{url}/q.orders.dlq")
    async with make_app(tmp_path, transport="memory://", store=f"sqlite:///{tmp_path / 'letters.db'}") as other:
        (letter,) = await letters(other)
    assert (letter.id, letter.message.body, letter.message.tenant) == (buried.letter, b"7", "acme")
    assert letter.message.header("trace") == b"1"
    assert [failure.attempt for failure in letter.failures] == [1, 2]
    assert (letter.last, letter.reason, letter.group) == (buried.failure, buried.reason, buried.group)


# -- parked by a plain consumer, as the document of the files has it --------------------------------------------------


def park_as_the_document_does(url: str, number: int) -> None:
    """A plain consumer in its own topology: it rejects three times, then publishes to the DLQ with x-death and acks."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel: Any = connection.channel()
        channel.exchange_declare("domain.events", "topic", durable=True)
        for exchange in ("retry.q.thumbnail", "dlq.q.thumbnail"):
            channel.exchange_declare(exchange, "direct", durable=True)
        retry = {"x-dead-letter-exchange": "retry.q.thumbnail", "x-dead-letter-routing-key": "retry"}
        back = {"x-message-ttl": 5, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q.thumbnail"}
        channel.queue_declare("q.thumbnail", durable=True, arguments=retry)
        channel.queue_declare("q.thumbnail.retry", durable=True, arguments=back)
        channel.queue_declare("q.thumbnail.dlq", durable=True)
        channel.queue_bind("q.thumbnail", "domain.events", "files.validated.*")
        channel.queue_bind("q.thumbnail.retry", "retry.q.thumbnail", "retry")
        channel.queue_bind("q.thumbnail.dlq", "dlq.q.thumbnail", "parking")
        channel.confirm_delivery()
        for n in range(number):
            channel.basic_publish("domain.events", "files.validated.pdf", b"%d" % n, _plain(f"m-{n}"))
        parked = 0
        while parked < number:
            method, properties, body = channel.basic_get("q.thumbnail")
            if method is None:
                connection.process_data_events(0.005)
            elif _rejections(properties) < 3:
                channel.basic_reject(method.delivery_tag, requeue=False)
            else:
                channel.basic_publish("dlq.q.thumbnail", "parking", body, properties)
                channel.basic_ack(method.delivery_tag)
                parked += 1


def _plain(id: str) -> pika.BasicProperties:
    return pika.BasicProperties(message_id=id, delivery_mode=2, headers={"n": 7})


def _rejections(properties: pika.BasicProperties) -> int:
    deaths = (properties.headers or {}).get("x-death", [])
    return next((int(one["count"]) for one in deaths if one["reason"] == "rejected"), 0)


def broker_has(server: RabbitMQ, url: str) -> set[str]:
    vhost = url.rpartition("/")[2]
    found = [web.call("GET", f"{server.management_url}/api/{kind}/{vhost}", credentials=GUEST) for kind in KINDS]
    return {f"{kind} {one['name']}" for kind, some in zip(KINDS, found, strict=True) for one in json.loads(some)}


KINDS = ("queues", "exchanges")


@pytest.mark.parametrize("peeked", [False, True], ids=["untouched", "peeked at before"])
async def test_what_a_plain_consumer_has_parked_goes_back_to_its_queue_and_nothing_is_declared(
    rabbitmq_server: RabbitMQ, url: str, tmp_path: Path, peeked: bool
) -> None:
    park_as_the_document_does(url, 3)
    if peeked:
        with pika.BlockingConnection(pika.URLParameters(url)) as connection:
            channel: Any = connection.channel()
            for _ in range(3):
                channel.basic_get("q.thumbnail.dlq")
    before = broker_has(rabbitmq_server, url)
    assert collected(tmp_path, f"{url}/q.thumbnail.dlq") == 3
    store = f"sqlite:///{tmp_path / 'letters.db'}"
    async with make_app(tmp_path, transport=url, store=store) as app:  # which would declare what it handles
        found = await letters(app)
        assert {letter.message.source for letter in found} == {"q.thumbnail"}
        assert {letter.message.origin for letter in found} == {"domain.events/files.validated.pdf"}
        assert {(letter.last.type, letter.last.attempt) for letter in found} == {("rabbitmq.Rejected", 3)}
        service = Service(app)
        replay = await service.replay(Query(sources=("q.thumbnail",)), actor=acting("test"))
        await service.run_replay(replay.id)
        assert await app.store.ledger.tally(replay.id) == {EntryStatus.SENT: 3}
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        back = [connection.channel().basic_get("q.thumbnail", auto_ack=True) for _ in range(3)]
    assert {body for _, _, body in back} == {b"0", b"1", b"2"}
    assert all("x-death" not in properties.headers and properties.headers["n"] == 7 for _, properties, _ in back)
    assert broker_has(rabbitmq_server, url) == before


async def test_a_letter_whose_queue_is_gone_waits_and_no_queue_is_made(
    rabbitmq_server: RabbitMQ, url: str, tmp_path: Path
) -> None:
    async with make_app(tmp_path, transport=url) as app:
        message = make_message(source="gone", headers=((LETTER_HEADER, b"x"),))
        [answer] = await app.transport().send([message])
        assert (answer.status, "is not on the broker" in answer.why) == (SendStatus.BUSY, True)
    assert not any("gone" in name for name in broker_has(rabbitmq_server, url))


async def test_a_collector_that_dies_leaves_the_messages_as_they_were(url: str, tmp_path: Path) -> None:
    park_as_the_document_does(url, 2)
    ignoring = f"{url}?declare=no&redeliveries=ignore"
    for _ in range(2):  # the second time both were delivered before
        transport = open_transport(ignoring, clock=SystemClock(), lease=timedelta(seconds=30))
        taken = [one for _ in range(2) for one in await transport.receive("q.thumbnail.dlq", 1)]
        assert [one.message.body for one in taken] == [b"0", b"1"], "in the order in which they lie there"
        await transport.aclose()
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        _, properties, _ = connection.channel().basic_get("q.thumbnail.dlq")
    assert _rejections(properties) == 3
    assert set(properties.headers) - set(DEATH_HEADERS) == {"n"}, "nothing of ours was added"
