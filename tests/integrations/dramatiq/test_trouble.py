"""A store that is away, workers that are killed, bytes that nobody can read: nothing is lost or doubled."""

from __future__ import annotations

import json
import os
from pathlib import Path

import dramatiq
import pika
import pytest
import redis

from redrive.model import Reason, State
from redrive.testing.waiting import until
from tests.integrations.dramatiq.conftest import BROKERS, Shop
from tests.servers.rabbitmq import RabbitMQ
from tests.servers.redis import Redis

both = pytest.mark.parametrize("broker_url", BROKERS, indirect=True)
on_redis = pytest.mark.parametrize("broker_url", ["redis"], indirect=True)
on_rabbitmq = pytest.mark.parametrize("broker_url", ["rabbitmq"], indirect=True)
MESSAGES = int(os.environ.get("REDRIVE_DRAMATIQ_MESSAGES", "150"))


@on_redis
async def test_while_the_store_is_away_the_worker_goes_on_and_letters_wait_on_disk(shop: Shop, tmp_path: Path) -> None:
    away = tmp_path / "away"
    shop.store = shop.environment["STORE"] = f"sqlite:///{away / 'letters.db'}"
    (tmp_path / "away").touch()  # a file where the store's directory should be
    shop.send("refuse", "o-1")
    shop.send("confirm", "goes on")
    async with shop.worker():
        spool = tmp_path / "spool"
        await until(lambda: shop.lines("confirmed") == ["goes on"], what="the worker goes on")
        await until(lambda: len(list(spool.glob("*.report"))) == 1, what="the letter waits")
        away.unlink()
        away.mkdir()
        await until(lambda: not list(spool.glob("*.report")), what="it is delivered")
    store = Shop(away, shop.broker, shop.queue)
    [letter] = await store.letters()
    assert letter.last.message == "o-1 is no order"


@on_rabbitmq
async def test_of_messages_whose_workers_are_killed_each_is_done_or_a_letter(shop: Shop) -> None:
    with shop.producer() as broker:
        for number in range(MESSAGES):
            broker.enqueue(dramatiq.Message(shop.queue, "work", (number,), {}, {}, message_id=str(number)))
    for done in (MESSAGES // 5, MESSAGES // 2):
        async with shop.worker() as worker:
            await shop.until_lines("worked", done)
            await worker.kill()
    async with shop.worker():
        await until(lambda: account(shop), what="each is done, or a letter")
    assert shop.left() == 0
    dead = {int(letter.message.id) for letter in await shop.letters()}
    assert dead == set(range(0, MESSAGES, 5))
    assert not dead & {int(line) for line in shop.lines("worked")}


async def account(shop: Shop) -> bool:
    ended = set(shop.lines("worked")) | {letter.message.id for letter in await shop.letters()}
    return ended == {str(number) for number in range(MESSAGES)}


@on_redis
async def test_under_gevent_letters_are_delivered_by_a_process_of_their_own(shop: Shop) -> None:
    shop.send("charge", "o-1")
    async with shop.worker(command="dramatiq-gevent"):
        letter = await shop.letter()
        assert [failure.attempt for failure in letter.failures] == [1, 2, 3]
        shop.mend()
        await shop.replay()
        await until(lambda: shop.is_state(State.RESOLVED), what="it is resolved")


@both
async def test_what_lies_in_a_dead_letter_queue_is_adopted_whoever_put_it_there(
    shop: Shop, request: pytest.FixtureRequest
) -> None:
    """As of workers without our middleware: what a message tells of its attempts is in the letter."""
    told = {
        "retries": 1,
        "traceback": 'Traceback:\n  File "a.py", line 1, in f\nValueError: no',
        "requeue_timestamp": 9,
    }
    message: dramatiq.Message[None] = dramatiq.Message(shop.queue, "charge", ("o-9",), {}, told, message_id="m-9")
    with shop.producer() as broker:
        broker.declare_queue(shop.queue)
    if shop.broker.startswith("redis"):
        server: Redis = request.getfixturevalue("redis_server")
        with redis.Redis.from_url(server.url) as client:
            kept = message.copy(options={"redis_message_id": "r-9"}).encode()
            for id, body in (("r-9", kept), ("r-10", b"\xff no message")):
                client.zadd(f"dramatiq:{shop.queue}.XQ", {id: 1_700_000_000_000})
                client.hset(f"dramatiq:{shop.queue}.XQ.msgs", id, body)
    else:
        rabbit: RabbitMQ = request.getfixturevalue("rabbitmq_server")
        with pika.BlockingConnection(pika.URLParameters(rabbit.url)) as connection:
            for body in (message.encode(), b"\xff no message"):
                connection.channel().basic_publish("", f"{shop.queue}.XQ", body)
    plain = f"{shop.broker.rstrip('/')}/%2F" if shop.broker.startswith("amqp") else shop.transport
    found = json.loads(await shop.run("collect", f"{plain}/{shop.queue}.XQ", "--json"))
    assert found["collected"] == 2
    letters = {letter.reason: letter for letter in await shop.letters()}
    assert letters[Reason.UNDECODABLE].message.body == b"\xff no message"
    adopted = letters[Reason.ATTEMPTS]
    assert (adopted.message.id, adopted.message.source, adopted.transport) == ("m-9", shop.queue, "dramatiq")
    assert [(failure.type, failure.attempt) for failure in adopted.failures] == [
        ("ValueError", 1),
        ("collected.Dead", 2),
    ]
    assert json.loads(adopted.message.body)["options"] == {}
    shop.mend()
    async with shop.worker():
        await shop.replay()
        await until(lambda: shop.lines("done") == ["o-9"], what="it has run")
        await until(lambda: shop.resolved("m-9"), what="a worker with our middleware tells that it succeeded")


@both
async def test_the_doctor_says_what_dramatiq_will_throw_away(shop: Shop) -> None:
    shop.send("refuse", "o-1")
    async with shop.worker():
        await shop.letter()
        await until(lambda: shop.dead() == 1, what="Dramatiq has it among the dead")
    async with shop.redrive("doctor", "--json") as process:
        assert process.child.stdout is not None
        said = (await process.child.stdout.read()).decode()
    assert f"{shop.queue}.XQ" in said or "management" in said
    assert "7 days" in said or "management" in said
