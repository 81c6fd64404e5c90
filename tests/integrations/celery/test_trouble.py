"""Stores that are away, brokers that restart, workers that are killed: nothing is lost, and the worker goes on."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from redrive.errors import ConfigError, TransportUnavailable
from redrive.forensics.query import Query
from redrive.integrations.celery.transport import CeleryTransport
from redrive.integrations.spool import Spool
from redrive.registry import open_store
from redrive.testing.waiting import until
from redrive.transports.base import SendStatus
from tests.integrations.celery.messages import sent_back_task
from tests.integrations.celery.world import Shop, touch
from tests.servers.fixtures import StartsServer
from tests.servers.rabbitmq import RabbitMQ
from tests.servers.redis import Redis

TASKS = int(os.environ.get("REDRIVE_CELERY_TASKS", "200"))
KILLS = max(2, TASKS // 1000)


async def count(url: str) -> int:
    store = open_store(url)
    try:
        return await store.letters.count(Query())
    finally:
        await store.aclose()


async def test_with_its_store_away_a_worker_goes_on_and_the_letter_comes_when_it_is_back(
    start_server: StartsServer, redis_server: Redis, tmp_path: Path
) -> None:
    database = start_server(Redis)
    shop = Shop(tmp_path, redis_server.url, backend=redis_server.url)
    shop.settings["store"] = database.url
    shop.start("solo")
    try:
        database.kill9()
        shop.send("of_a_base")
        done = shop.send("add", 1, 2)
        await until(lambda: shop.client.AsyncResult(done).state == "SUCCESS", what="the worker goes on")
        assert Spool(shop.spool).waiting(10)
        database.start()

        async def is_there() -> bool:
            return await count(database.url) == 1

        await until(is_there, what="the letter is delivered")
        await until(lambda: not Spool(shop.spool).waiting(10), what="nothing waits")
    finally:
        shop.close()


async def test_a_transport_takes_up_again_when_its_broker_was_restarted(start_server: StartsServer) -> None:
    broker = start_server(Redis)
    transport = CeleryTransport(f"celery+{broker.url}")
    try:
        [first] = await transport.send([sent_back_task("q", "t1")])
        assert first.status is SendStatus.ACCEPTED
        broker.kill9()
        with pytest.raises(TransportUnavailable, match="Celery"):
            await transport.send([sent_back_task("q", "t2")])
        with pytest.raises(TransportUnavailable):
            await transport.check()
        broker.start()
        await transport.check()
        [again] = await transport.send([sent_back_task("q", "t2")])
        assert again.status is SendStatus.ACCEPTED
    finally:
        await transport.aclose()


async def test_a_worker_whose_rabbitmq_was_restarted_goes_on_and_so_does_the_way_back(
    start_server: StartsServer, tmp_path: Path, mended: Path
) -> None:
    broker = start_server(RabbitMQ)
    shop = Shop(tmp_path, broker.url)
    shop.start("solo")
    transport = CeleryTransport(f"celery+{broker.url}")
    try:
        before = await shop.letter(shop.send("charge", str(mended)))
        await transport.check()
        broker.kill9()
        with pytest.raises(TransportUnavailable):
            await transport.check()
        broker.start()
        after = await shop.letter(shop.send("charge", str(mended)))
        touch(mended)
        await shop.replay(before.id, after.id)
        for letter in (before, after):
            await shop.resolved(letter.message.id)
    finally:
        await transport.aclose()
        shop.close()


async def test_after_random_kills_each_task_is_done_or_a_letter_or_in_the_broker(
    rabbitmq_server: RabbitMQ, tmp_path: Path
) -> None:
    shop = Shop(tmp_path, rabbitmq_server.url)
    place, chance = tmp_path / "done", random.Random(7)
    ids = {}
    for number in range(TASKS):
        outcome = "fail" if number % 10 == 0 else "succeed"
        ids[shop.send("work", number, str(place), outcome)] = number
    workers = [shop.start(concurrency=2), shop.start(concurrency=2)]

    def done() -> set[int]:
        return {int(line) for line in place.read_text().splitlines()} if place.exists() else set()

    try:
        for kill in range(KILLS):
            enough = (TASKS * 9 // 10) * (kill + 1) // (KILLS + 2) + chance.randrange(5)
            await until(lambda enough=enough: len(done()) >= enough, timeout=600, what="some are done")  # type: ignore[misc]
            workers.pop(chance.randrange(len(workers))).kill()
            if kill < KILLS - 1:
                workers.append(shop.start(concurrency=2))
        dead = {number for number in range(TASKS) if number % 10 == 0}

        async def all_told() -> bool:
            letters = {ids[letter.message.id] for letter in await shop.letters()}
            return letters | done() >= set(range(TASKS))

        await until(all_told, timeout=600, what="each is done or a letter")
        for worker in workers:
            worker.stop()
        letters = await shop.letters()
        assert {ids[letter.message.id] for letter in letters} == dead
        assert len(letters) == len(dead)
        assert done() == set(range(TASKS)) - dead
        assert shop.waiting() == 0
    finally:
        shop.close()


def test_an_app_is_watched_once_and_only_with_a_store_that_can_be() -> None:
    from celery import Celery

    from redrive.integrations.celery import RedriveCelery

    app = Celery("twice", set_as_current=False)
    with pytest.raises(ConfigError, match="no store speaks 'postgresq'"):
        RedriveCelery(app, store="postgresq://db")
    RedriveCelery(app, store="sqlite:///letters.db")
    with pytest.raises(ConfigError, match="one is enough"):
        RedriveCelery(app, store="sqlite:///letters.db")
