"""Real apps of FastStream on RabbitMQ, Kafka and Redis: what a handler loses is a letter, and its replay is handled."""

from __future__ import annotations

import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from redrive.doctor.findings import Level
from redrive.integrations.faststream.checks import examine
from redrive.model import Reason, State
from tests.integrations.running import Place, Program, tool
from tests.servers.fixtures import StartsServer
from tests.servers.kafka import Kafka
from tests.servers.rabbitmq import RabbitMQ
from tests.servers.redis import Redis

MODULE = "tests.integrations.faststream.app"
SCHEMES = {"amqp": "faststream+", "aiokafka": "faststream+kafka://", "confluent": "faststream+kafka://"}


class Shop(Place):
    """An app, its broker and its queue."""

    def __init__(self, directory: Path, kind: str, url: str, store: str = "") -> None:
        super().__init__(directory, {"faststream": f"{SCHEMES.get(kind, 'faststream+')}{url}"}, store)
        self.settings = {"BROKER": kind, "BROKER_URL": url, "QUEUE": f"q-{kind}-{directory.name[-24:]}"}

    def worker(self) -> AbstractAsyncContextManager[Program]:
        return self.running(tool("faststream"), "run", f"{MODULE}:app", **self.settings)

    async def publish(self, *words: str) -> None:
        await self.done(sys.executable, "-m", MODULE, *words, **self.settings)

    def mend(self) -> None:
        (self.directory / "mended").touch()


def shop_on(kind: str, request: pytest.FixtureRequest, directory: Path) -> Shop:
    if kind == "amqp":
        rabbitmq: RabbitMQ = request.getfixturevalue("rabbitmq_server")
        return Shop(directory, kind, rabbitmq.url)
    if kind in ("aiokafka", "confluent"):
        kafka: Kafka = request.getfixturevalue("kafka_server")
        return Shop(directory, kind, kafka.bootstrap)
    redis: Redis = request.getfixturevalue("redis_server")
    return Shop(directory, kind, redis.url)


@pytest.fixture(params=["amqp", "aiokafka", "confluent", "list", "stream"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Shop:
    return shop_on(str(request.param), request, tmp_path)


async def test_what_a_handler_loses_is_a_letter_and_its_replay_is_handled(shop: Shop) -> None:
    async with shop.worker() as worker:
        await worker.until("started")
        await shop.publish("fails", "rejects", "acks", "rubbish", "well")
        await worker.until("handled 5")
        letters = {letter.message.body: letter for letter in await shop.until_letters(3)}
        failed = next(letter for body, letter in letters.items() if b"fails" in body)
        rejected = next(letter for body, letter in letters.items() if b"rejects" in body)
        rubbish = letters[b"\xff rubbish"]
        assert (failed.last.type, failed.last.message) == ("ValueError", "no card for 1")
        assert "raise ValueError" in failed.last.stack
        assert failed.message.header("shop") == b"berlin"
        assert failed.message.source == shop.settings["QUEUE"]
        assert rejected.last.type == "faststream.exceptions.RejectMessage"
        assert rubbish.reason is Reason.ATTEMPTS or rubbish.reason is Reason.UNDECODABLE

        shop.mend()
        await shop.replay()
        await shop.until_state(failed.id, State.RESOLVED)
        await shop.until_state(rejected.id, State.RESOLVED)
        again = await shop.until_state(rubbish.id, State.EXHAUSTED)
        assert len(again.failures) == 2
        assert worker.said.count("handled 1\n") == worker.said.count("handled 2\n") == 1
        assert len(await shop.letters()) == 3


async def test_what_is_given_back_to_its_queue_is_no_letter(rabbitmq_server: RabbitMQ, tmp_path: Path) -> None:
    shop = Shop(tmp_path, "amqp", rabbitmq_server.url)
    async with shop.worker() as worker:
        await worker.until("started")
        await shop.publish("nacks", "large")
        shop.mend()
        await worker.until("handled 1")
        assert not await shop.letters()


async def test_headers_and_properties_of_rabbitmq_come_back_with_their_types(
    rabbitmq_server: RabbitMQ, tmp_path: Path
) -> None:
    import aio_pika

    shop = Shop(tmp_path, "amqp", rabbitmq_server.url)
    given: dict[str, Any] = {"number": 7, "is": True, "text": "ä", "deep": {"list": [1, "two"]}}
    async with shop.worker() as worker:
        await worker.until("started")
        connection = await aio_pika.connect(rabbitmq_server.url)
        async with connection, connection.channel() as channel:
            body = b'{"number": 1, "ends": "fails"}'
            message = aio_pika.Message(body, headers=dict(given), content_type="application/json", type="order")
            await channel.default_exchange.publish(message, shop.settings["QUEUE"])
            await shop.until_letters(1)
            await worker.end()
            await shop.replay()
            queue = await channel.get_queue(shop.settings["QUEUE"])
            back = await queue.get(no_ack=True)
    assert (back.body, back.content_type, back.type) == (body, "application/json", "order")
    assert {name: value for name, value in back.headers.items() if not name.startswith("redrive-")} == given


async def test_with_the_store_away_handlers_go_on_and_letters_come_when_it_is_back(
    start_server: StartsServer, redis_server: Redis, tmp_path: Path
) -> None:
    store = start_server(Redis)
    shop = Shop(tmp_path, "list", redis_server.url, f"{store.url}?checks=off")
    async with shop.worker() as worker:
        await worker.until("started")
        store.kill9()
        await shop.publish("fails", "well")
        await worker.until("handled 2")
        store.start()
        await shop.until_letters(1, states=(State.PENDING,))
    async with shop.app() as app:
        assert [finding.level for finding in await examine(app)] == [Level.WARNING], "a list loses what is in hand"
    shop.ways = {}
    async with shop.app() as app:
        assert [finding.level for finding in await examine(app)] == [Level.FAILURE], "there is no way back"
