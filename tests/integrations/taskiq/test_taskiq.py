"""Real workers of Taskiq: what fails for good is a letter, its replay runs the same task, its success resolves it."""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import msgspec
import pytest
from redis.asyncio import Redis as Client

from redrive.doctor.findings import Level
from redrive.integrations.taskiq.checks import examine
from redrive.model import Letter, Reason, State
from redrive.testing.waiting import until
from tests.integrations.running import Place, Program, tool
from tests.servers.fixtures import StartsServer
from tests.servers.rabbitmq import RabbitMQ
from tests.servers.redis import Redis

MODULE = "tests.integrations.taskiq.app"
READY = "Listening started"
COUNT = int(os.environ.get("REDRIVE_TASKIQ_TASKS", "70"))


class Shop(Place):
    """An app, its broker and its queue."""

    def __init__(self, directory: Path, kind: str, url: str, store: str = "") -> None:
        scheme = f"taskiq+{url}"
        super().__init__(directory, {"taskiq": scheme}, store)
        self.settings = {"BROKER": kind, "BROKER_URL": url, "QUEUE": f"q-{directory.name}"}

    def worker(self, **more: str) -> AbstractAsyncContextManager[Program]:
        words = ("worker", f"{MODULE}:broker", "--workers", "1", "--ack-type", "when_saved")
        return self.running(tool("taskiq"), *words, **{**self.settings, **more})

    async def kick(self, *words: str, **more: str) -> None:
        await self.done(sys.executable, "-m", MODULE, *words, **{**self.settings, **more})

    def mend(self) -> None:
        (self.directory / "mended").touch()


@pytest.fixture(params=["stream", "list", "amqp"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Shop:
    if request.param == "amqp":
        rabbitmq: RabbitMQ = request.getfixturevalue("rabbitmq_server")
        return Shop(tmp_path, "amqp", rabbitmq.url)
    redis: Redis = request.getfixturevalue("redis_server")
    return Shop(tmp_path, str(request.param), redis.url)


@pytest.fixture
def streams(redis_server: Redis, tmp_path: Path) -> Shop:
    return Shop(tmp_path, "stream", redis_server.url)


def by_task(letters: Sequence[Letter]) -> dict[str, Letter]:
    return {(letter.message.header("taskiq-task") or b"").decode(): letter for letter in letters}


async def test_what_dies_is_a_letter_and_what_is_mended_is_resolved_by_its_replay(shop: Shop) -> None:
    async with shop.worker() as worker:
        await worker.until(READY)
        await shop.kick("all")
        letters = by_task(await shop.until_letters(5))
        assert set(letters) == {"pay", "slow", "reject", "nobody.knows", ""}
        assert [failure.attempt for failure in letters["pay"].failures] == [1, 2, 3]
        assert {failure.message for failure in letters["pay"].failures} == {"no card for 7"}
        assert "raise ValueError" in letters["pay"].last.stack
        assert letters["pay"].last.version == "1.2"
        task = msgspec.json.decode(letters["pay"].message.body)
        assert (task["args"], task["kwargs"], task["task_id"]) == ([7], {"note": "x"}, letters["pay"].message.id)
        assert "_retries" not in task["labels"], "a replay has all its retries before it"
        assert letters["slow"].last.type == "TimeoutError"
        assert "no task 'nobody.knows' is registered" in letters["nobody.knows"].last.message
        assert (letters[""].reason, letters[""].message.body) == (Reason.UNDECODABLE, b"\xff no task")

        shop.mend()
        await shop.replay()
        for name in ("pay", "slow"):
            await shop.until_state(letters[name].id, State.RESOLVED)
        assert "paid 7" in worker.said
        for name in ("reject", "nobody.knows", ""):
            again = await shop.until_state(letters[name].id, State.EXHAUSTED)
            assert len(again.failures) == 2
        assert len(await shop.letters()) == 5


async def test_a_replay_that_fails_again_has_all_its_retries_and_rejoins_its_letter(streams: Shop) -> None:
    async with streams.worker() as worker:
        await worker.until(READY)
        await streams.kick("pay")
        [letter] = await streams.until_letters(1)
        await streams.replay()
        again = await streams.until_state(letter.id, State.EXHAUSTED)
        assert [failure.attempt for failure in again.failures] == [1, 2, 3, 1, 2, 3]
        assert again.message.body == letter.message.body
        streams.mend()
        await streams.replay()
        await streams.until_state(letter.id, State.RESOLVED)


async def test_what_another_serializer_made_goes_back_as_its_bytes(streams: Shop) -> None:
    async with streams.worker(SERIALIZER="pickle") as worker:
        await worker.until(READY)
        await streams.kick("pay", SERIALIZER="pickle")
        [letter] = await streams.until_letters(1)
        assert b"redrive" not in letter.message.body
        assert letter.message.header("taskiq-args") == b"[7]"
        await streams.replay()
        again = await streams.until_state(letter.id, State.EXHAUSTED)
        assert again.message.body == letter.message.body
        streams.mend()
        await streams.replay()
        await streams.until_state(letter.id, State.RESOLVED)


async def test_arguments_of_5_mb_and_such_without_a_text_hold_up_nothing(streams: Shop) -> None:
    async with streams.worker(SERIALIZER="pickle") as worker:
        await worker.until(READY)
        await streams.kick("odd", SERIALIZER="pickle")
        await streams.kick("large", SERIALIZER="pickle")
        odd, large = sorted(await streams.until_letters(2), key=lambda letter: len(letter.message.body))
        assert b"__repr__ raised RuntimeError" in (odd.message.header("taskiq-args") or b"")
        assert len(large.message.body) > 5_000_000
        await streams.replay()
        for letter in (odd, large):
            await streams.until_state(letter.id, State.EXHAUSTED)


async def test_with_the_store_away_workers_go_on_and_letters_come_when_it_is_back(
    start_server: StartsServer, redis_server: Redis, tmp_path: Path
) -> None:
    store = start_server(Redis)
    shop = Shop(tmp_path, "stream", redis_server.url, f"{store.url}?checks=off")
    async with shop.worker() as worker:
        await worker.until(READY)
        store.kill9()
        await shop.kick("pay")
        await worker.until("Maximum retries count is reached")
        shop.mend()
        await shop.kick("pay")
        await worker.until("paid 7")
        store.start()
        await shop.until_letters(1, states=(State.PENDING,))


async def test_a_broker_that_restarts_gets_its_letters_back(start_server: StartsServer, tmp_path: Path) -> None:
    server = start_server(Redis)
    shop = Shop(tmp_path, "list", server.url)
    async with shop.worker() as worker:
        await worker.until(READY)
        await shop.kick("pay")
        [letter] = await shop.until_letters(1)
    server.kill9()
    server.start()
    shop.mend()
    await shop.replay()
    async with shop.worker():
        await shop.until_state(letter.id, State.RESOLVED)


async def test_after_kills_each_task_is_done_a_letter_or_still_in_the_stream(streams: Shop) -> None:
    await streams.kick("count", str(COUNT))
    chance = random.Random(7)
    done = streams.directory / "done"
    sevens = {f"seven {number}" for number in range(0, COUNT, 7)}

    async def are_done(number: int) -> bool:
        await _nudge(streams)
        return _files(done) >= number

    for _ in range(2):
        async with streams.worker(IDLE="300") as worker:
            wanted = min(_files(done) + chance.randint(3, 12), COUNT // 2)
            await until(lambda wanted=wanted: are_done(wanted), what="some are done")  # type: ignore[misc]
            await worker.kill()

    async def all_told() -> bool:
        await _nudge(streams)
        return _files(done) == COUNT - len(sevens) and len(await streams.letters()) == len(sevens)

    async with streams.worker(IDLE="300"):
        await until(all_told, what="each is done or a letter")
    assert {letter.last.message for letter in await streams.letters()} == sevens


async def _nudge(shop: Shop) -> None:
    """Send a task that is done already: a worker of taskiq-redis looks for what a dead one had only after it has read
    something new."""
    task = {"task_id": "nudge", "task_name": "count", "labels": {}, "args": [1], "kwargs": {}}
    async with Client.from_url(shop.settings["BROKER_URL"]) as client:
        await client.xadd(shop.settings["QUEUE"], {"data": msgspec.json.encode(task)})
    await asyncio.sleep(0.1)


def _files(directory: Path) -> int:
    return len(list(directory.iterdir())) if directory.exists() else 0


async def test_what_cannot_be_taken_back_is_said_and_stays_a_letter(streams: Shop, redis_server: Redis) -> None:
    async with streams.worker() as worker:
        await worker.until(READY)
        await streams.kick("pay")
        [letter] = await streams.until_letters(1)
    async with Client.from_url(redis_server.url) as client:
        await client.delete(streams.settings["QUEUE"])
        async with streams.app() as app:
            [answer] = await app.transport("taskiq").send([letter.message])
            assert answer.status == "busy"
            assert "no worker has made its stream" in answer.why
            await client.set(streams.settings["QUEUE"], "text")
            [answer] = await app.transport("taskiq").send([letter.message])
            assert answer.status == "refused"
            assert "is a string in this Redis" in answer.why


async def test_the_doctor_tells_what_a_list_loses_and_that_a_way_back_is_missing(
    redis_server: Redis, tmp_path: Path
) -> None:
    shop = Shop(tmp_path, "list", redis_server.url)
    async with shop.worker() as worker:
        await worker.until(READY)
        await shop.kick("pay")
        await shop.until_letters(1)
    async with shop.app() as app:
        [finding] = await examine(app)
        assert (finding.level, "ListQueueBroker" in finding.text) == (Level.WARNING, True)
    shop.ways = {}
    async with shop.app() as app:
        [finding] = await examine(app)
        assert (finding.level, finding.about) == (Level.FAILURE, "transports.taskiq")
    shop.ways = {"taskiq": "taskiq+redis://127.0.0.1:1"}
    async with shop.app() as app:
        assert [finding.level for finding in await examine(app)] == [Level.FAILURE]
