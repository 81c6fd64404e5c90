"""Dead-letter queues of RabbitMQ into a store, and back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pika
import pytest

from redrive import Policy, Redrive, immediate
from redrive.forensics.query import Query
from redrive.model import Reason
from redrive.service import Service
from redrive.telemetry.events import MessageBuried
from redrive.testing.waiting import until
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
        await service.run_replay((await service.replay(Query(sources=("orders",)), actor="test")).id)
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
