"""Real workers of BullMQ on Node: failed jobs are letters, a replay moves them back to wait, success resolves them."""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis as Client

from redrive.doctor.findings import Level
from redrive.integrations.bullmq.checks import examine
from redrive.model import Letter, State
from redrive.testing.waiting import until
from tests.integrations.running import Place, Program
from tests.servers.fixtures import StartsServer
from tests.servers.redis import Redis

HERE = Path(__file__).parent
COUNT = int(os.environ.get("REDRIVE_BULLMQ_JOBS", "60"))


class Shop(Place):
    """A queue, its Node worker and who adds jobs, in one directory with BullMQ's modules."""

    def __init__(self, directory: Path, modules: Path, url: str, *, prefix: str = "bull", store: str = "") -> None:
        more = "" if prefix == "bull" else f"?prefix={prefix}"
        super().__init__(directory, {"bullmq": f"bullmq+{url}{more}"}, store)
        (directory / "node_modules").symlink_to(modules)
        for name in ("worker.mjs", "add.mjs"):
            (directory / name).write_text((HERE / name).read_text())
        self.url = url
        self.queue = f"q-{directory.name}"
        self.prefix = prefix

    def said(self, **more: object) -> str:
        return json.dumps({"queue": self.queue, "prefix": self.prefix, **more})

    def worker(self, **more: object) -> AbstractAsyncContextManager[Program]:
        return self.running("node", "worker.mjs", self.said(**more), REDIS_URL=self.url)

    async def add(self, *jobs: Mapping[str, Any], **more: object) -> dict[str, int]:
        counts = await self.done("node", "add.mjs", self.said(jobs=jobs, **more), REDIS_URL=self.url)
        return {name: int(count) for name, count in json.loads(counts.splitlines()[-1]).items()}

    def watcher(self) -> AbstractAsyncContextManager[Program]:
        return self.running(sys.executable, "-m", "redrive.cli", "bullmq", "watch", self.queue)

    async def redrive(self, *words: str) -> str:
        return await self.done(sys.executable, "-m", "redrive.cli", *words)

    def mend(self) -> None:
        (self.directory / "mended").touch()


@pytest.fixture
def shop(redis_server: Redis, bullmq_node: Path, tmp_path: Path) -> Shop:
    return Shop(tmp_path, bullmq_node, redis_server.url)


def job(n: int, name: str = "pay", *, takes: int = 0, fails: bool = True, **opts: object) -> dict[str, Any]:
    return {"name": name, "data": {"n": n, "fails": fails, "takes": takes}, "opts": opts}


def by_number(letters: Sequence[Letter]) -> dict[int, Letter]:
    return {json.loads(letter.message.body)["n"]: letter for letter in letters}


async def test_a_job_that_fails_is_a_letter_at_once_and_its_replay_is_run_by_node(shop: Shop) -> None:
    await shop.add(job(1))  # before anybody watches
    async with shop.worker() as worker, shop.watcher() as watcher:
        await watcher.until("watching")
        await shop.add(
            job(2, attempts=3, backoff={"type": "fixed", "delay": 10}),
            job(3, priority=5),
            job(4, lifo=True),
            job(5, fails=False),
        )
        letters = by_number(await shop.until_letters(4))
        assert set(letters) == {1, 2, 3, 4}
        failures = letters[2].failures
        assert [failure.attempt for failure in failures] == [1, 2, 3]
        assert {(failure.type, failure.message) for failure in failures} == {("TypeError", "no card for 2")}
        assert "worker.mjs" in failures[-1].stack
        assert letters[2].message.header("bullmq-name") == b"pay"
        assert json.loads(letters[2].message.header("bullmq-opts") or b"")["attempts"] == 3

        await shop.replay(ids=(letters[1].id,))
        again = await shop.until_state(letters[1].id, State.EXHAUSTED)
        assert len(again.failures) == 2
        shop.mend()
        await shop.replay()
        for letter in letters.values():
            await shop.until_state(letter.id, State.RESOLVED)
        assert all(f"did {number}\n" in worker.said for number in letters)
    async with Client.from_url(shop.url) as client:
        assert not await client.exists(f"bull:{shop.queue}:redrive:sent"), "nothing is left of it"


async def test_what_has_failed_is_collected_in_bulk_and_stays_in_its_queue(shop: Shop) -> None:
    async with shop.worker() as worker:
        await worker.until("ready")
        await shop.add(*(job(number) for number in range(20)))
        async with Client.from_url(shop.url) as client:
            await until(lambda: _are(client, f"bull:{shop.queue}:failed", 20), what="all have failed")
        for _ in range(2):
            assert "20 letters collected" in await shop.redrive("collect", f"{shop.ways['bullmq']}/{shop.queue}")
        letters = await shop.letters()
        assert len(letters) == 20
        assert {len(letter.failures) for letter in letters} == {1}
        shop.mend()
        await shop.replay()
        await worker.until("did ", times=20)
    counts = await shop.add()
    assert (counts["failed"], counts["completed"]) == (0, 20)


async def _are(client: Any, key: str, count: int) -> bool:
    return bool(await client.zcard(key) == count)


async def test_flows_and_schedules_are_said_and_a_parent_waits_for_its_child_again(shop: Shop) -> None:
    flow = {
        "name": "parent",
        "queueName": shop.queue,
        "data": {"n": 10},
        "children": [
            {
                "name": "child",
                "queueName": shop.queue,
                "data": {"n": 11, "fails": True},
                "opts": {"failParentOnFailure": True},
            }
        ],
    }
    async with shop.worker() as worker, shop.watcher() as watcher:
        await watcher.until("watching")
        await shop.add(flow=flow, schedule={"name": "nightly", "data": {"n": 12, "fails": True}})
        letters = by_number(await shop.until_letters(3))
        parent, child, nightly = (letters[number] for number in (10, 11, 12))
        assert (child.message.header("bullmq-parent") or b"").decode().endswith(parent.message.id)
        assert parent.message.header("bullmq-children") == b"1 failed"
        assert nightly.message.header("bullmq-repeat") == b"nightly"
        shop.mend()
        await shop.replay(ids=(child.id, nightly.id))
        for letter in (child, nightly):
            await shop.until_state(letter.id, State.RESOLVED)
        await shop.replay(ids=(parent.id,))
        await shop.until_state(parent.id, State.RESOLVED)
        await worker.until("did 10")


async def test_a_job_that_is_gone_is_made_anew_and_one_whose_data_was_never_seen_is_said(shop: Shop) -> None:
    async with shop.worker() as worker, shop.watcher() as watcher:
        await watcher.until("watching")
        await shop.add(job(1, "kept"), job(2, removeOnFail=True))
        letters = await shop.until_letters(2)
        kept = next(letter for letter in letters if letter.message.body)
        gone = next(letter for letter in letters if not letter.message.body)
        assert "no card for 2 (its data was deleted with it (removeOnFail)" in gone.last.message
        async with Client.from_url(shop.url) as client:
            await client.delete(f"bull:{shop.queue}:{kept.message.id}")
            await client.zrem(f"bull:{shop.queue}:failed", kept.message.id)
        shop.mend()
        async with shop.app() as app:
            [answer] = await app.transport("bullmq").send([gone.message])
            assert (answer.status, "nothing to send back" in answer.why) == ("refused", True)
        await shop.replay(ids=(kept.id,))
        await worker.until("did 1")
        await shop.until_state(kept.id, State.RESOLVED)


async def test_a_queue_that_is_paused_keeps_what_is_sent_back_until_it_goes_on(shop: Shop) -> None:
    async with shop.worker() as worker, shop.watcher() as watcher:
        await watcher.until("watching")
        await shop.add(job(1))
        [letter] = await shop.until_letters(1)
        await shop.add(act="pause")
        shop.mend()
        await shop.replay()
        assert "did 1" not in worker.said
        await shop.replay()  # sent already: nothing is doubled
        counts = await shop.add(act="resume")
        assert counts["failed"] == 0
        await shop.until_state(letter.id, State.RESOLVED)
    assert worker.said.count("did 1\n") == 1


async def test_a_prefix_of_ones_own_and_5_mb_of_data(redis_server: Redis, bullmq_node: Path, tmp_path: Path) -> None:
    shop = Shop(tmp_path, bullmq_node, redis_server.url, prefix="{shop}")
    large = {"name": "pay", "data": {"n": 1, "fails": True, "more": "x" * 100_000}, "opts": {}}
    async with shop.worker() as worker, shop.watcher() as watcher:
        await watcher.until("watching")
        await shop.add(large)
        async with Client.from_url(redis_server.url) as client:
            grown = json.dumps({"n": 2, "fails": True, "more": "x" * 5_000_000})
            [letter] = await shop.until_letters(1)
            await client.hset(f"{{shop}}:{shop.queue}:{letter.message.id}", "data", grown)
        await shop.replay()
        letter = (await shop.until_letters(1))[0]
        shop.mend()
        await until(lambda: _is_resolved_or_again(shop, letter.id), what="it is done")
        assert "did 1" in worker.said or "did 2" in worker.said


async def _is_resolved_or_again(shop: Shop, id: str) -> bool:
    [letter] = await shop.letters(ids=(id,))
    if letter.state is State.EXHAUSTED:
        await shop.replay()
    return letter.state is State.RESOLVED


async def test_with_the_store_away_letters_wait_on_disk(
    start_server: StartsServer, redis_server: Redis, bullmq_node: Path, tmp_path: Path
) -> None:
    store = start_server(Redis)
    shop = Shop(tmp_path, bullmq_node, redis_server.url, store=f"{store.url}?checks=off")
    async with shop.worker() as worker, shop.watcher() as watcher:
        await watcher.until("watching")
        store.kill9()
        await shop.add(job(1), job(2, fails=False))
        await worker.until("did 2")
        await until(lambda: any((tmp_path / "state").rglob("*.report")), what="a letter waits")
        store.start()
        await shop.until_letters(1, states=(State.PENDING,))


async def test_after_kills_of_workers_and_watchers_each_job_is_done_or_a_letter(shop: Shop) -> None:
    await shop.add(*(job(number, takes=5, fails=number % 6 == 0) for number in range(COUNT)))
    chance = random.Random(5)
    done: set[str] = set()
    for _ in range(3):
        async with shop.worker(concurrency=2) as worker, shop.watcher() as watcher:
            wanted = len(done) + chance.randint(3, 10)
            enough = min(wanted, COUNT // 2)
            await until(partial(_is_enough, done, worker, enough), what="some are done")
            await worker.kill()
            await watcher.kill()
            done |= _did(worker)
    failing = {number for number in range(COUNT) if number % 6 == 0}
    async with shop.worker() as worker, shop.watcher():
        letters = by_number(await shop.until_letters(len(failing)))
        assert set(letters) == failing
        await until(lambda: len(done | _did(worker)) == COUNT - len(failing), what="the others are done")


def _is_enough(done: set[str], worker: Program, number: int) -> bool:
    return len(done | _did(worker)) >= number


def _did(worker: Program) -> set[str]:
    return {line for line in worker.said.splitlines() if line.startswith("did ")}


async def test_the_doctor_tells_of_queues_that_nobody_watches_and_of_jobs_that_are_deleted(
    redis_server: Redis, bullmq_node: Path, tmp_path: Path
) -> None:
    shop = Shop(tmp_path, bullmq_node, redis_server.url, prefix=f"p-{tmp_path.name}")
    async with shop.app() as app:
        [finding] = await examine(app)
        assert "no queue of BullMQ begins with" in finding.text
    await shop.add(job(1, removeOnFail=True))
    async with shop.app() as app:
        unwatched, removed = await examine(app)
        assert (unwatched.level, "nobody has ever watched" in unwatched.text) == (Level.WARNING, True)
        assert (removed.level, "(removeOnFail: true)" in removed.text) == (Level.WARNING, True)
    assert f"{shop.queue}  0 failed, 1 waiting, 0 active, not watched" in await shop.redrive("bullmq", "queues")
    assert "there is no transport 'other'" in await _refused(shop, "bullmq", "queues", "--transport", "other")


async def _refused(shop: Shop, *words: str) -> str:
    async with shop.running(sys.executable, "-m", "redrive.cli", *words) as program:
        assert await program.code() != 0
        return program.said
