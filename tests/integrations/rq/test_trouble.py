"""Workers that are killed, a store that is away, workers as `rq worker` makes them: nothing is lost or doubled."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from rq.registry import FailedJobRegistry, StartedJobRegistry

from redrive.model import Reason, State
from redrive.testing.waiting import until
from tests.integrations.rq import jobs
from tests.integrations.rq.conftest import Shop, kill

RQ = str(Path(sys.executable).parent / "rq")
JOBS = int(os.environ.get("REDRIVE_RQ_JOBS", "30"))


def expire(shop: Shop) -> None:
    """Let the time pass after which RQ gives up a worker that it has not heard of."""
    key = StartedJobRegistry(queue=shop.queue).key
    entries: Any = shop.redis.zrange(key, 0, -1)
    for entry in entries:
        shop.redis.zadd(key, {entry: 1})


async def test_a_job_that_dies_with_its_worker_is_a_letter_of_the_next_one(shop: Shop) -> None:
    job = shop.queue.enqueue(jobs.hang)
    async with shop.worker():
        await until(lambda: shop.redis.zcard(StartedJobRegistry(queue=shop.queue).key) == 1, what="it runs")
    expire(shop)
    async with shop.worker():
        [letter] = await shop.until_letters(1)
        assert (letter.message.id, letter.last.type) == (job.id, "rq.AbandonedJobError")
        assert letter.reason is Reason.CRASHED
        await until(lambda: FailedJobRegistry(queue=shop.queue).count == 1, what="RQ has failed it")
        await shop.run("collect", f"rq+{shop.url}/{shop.name}", "--json")
        [same] = await shop.letters()
        assert same.failures == letter.failures
        shop.mend()
        await shop.replay()
        await until(lambda: shop.is_state(State.RESOLVED), what="it is resolved")


async def test_while_the_store_is_away_the_worker_goes_on_and_letters_wait_on_disk(shop: Shop, tmp_path: Path) -> None:
    away = tmp_path / "away"
    away.touch()  # a file where the store's directory should be
    shop.queue.enqueue(jobs.charge, "o-1")
    shop.queue.enqueue(jobs.confirm, "goes on")
    async with shop.worker(STORE=f"sqlite:///{away / 'letters.db'}"):
        await until(lambda: shop.lines("confirmed") == ["goes on"], what="the worker goes on")
        assert len(list((tmp_path / "spool").glob("*.report"))) == 1, "the letter waits"
        away.unlink()
        away.mkdir()
        await until(lambda: not list((tmp_path / "spool").glob("*.report")), what="it is delivered")
    other = Shop(away, shop.url)
    [letter] = await other.letters()
    other.redis.connection_pool.disconnect()
    assert "the bank does not answer for o-1" in letter.last.message


async def test_rq_worker_on_the_command_line(shop: Shop) -> None:
    shop.queue.enqueue(jobs.charge, "o-1")
    words = (RQ, "worker", shop.name, "--url", shop.url, "--worker-class", "redrive.integrations.rq.RedriveWorker")
    environment = {"REDRIVE_STORE": shop.store, "REDRIVE_SPOOL": str(shop.place / "spool")}
    async with shop.worker(*words, **environment):
        await shop.until_letters(1)
        shop.mend()
        await shop.replay()
        await until(lambda: shop.is_state(State.RESOLVED), what="it is resolved")


async def test_as_an_exception_handler_it_hears_deaths_and_says_that_it_hears_nothing_more(shop: Shop) -> None:
    program = (
        "import os\nfrom redis import Redis\nfrom rq import SimpleWorker\n"
        "from redrive.integrations.rq import RedriveRQ\n"
        "told = RedriveRQ(store=os.environ['STORE'], spool=os.environ['SPOOL'])\n"
        "redis = Redis.from_url(os.environ['BROKER'])\n"
        "worker = SimpleWorker([os.environ['QUEUE']], connection=redis, exception_handlers=[told])\n"
        "worker.work(burst=True)\ntold.close()\n"
    )
    shop.queue.enqueue(jobs.charge, "o-1")
    async with shop.worker("-c", program) as worker:
        assert await worker.wait() == 0, shop.log()
    [letter] = await shop.until_letters(1)
    assert letter.foreign
    await shop.replay()
    assert await shop.is_state(State.SENT)


async def test_of_jobs_whose_workers_are_killed_each_is_done_a_letter_or_in_redis(shop: Shop) -> None:
    for number in range(JOBS):
        shop.queue.enqueue(jobs.work, number, job_id=str(number))
    for done in (JOBS // 5, JOBS // 2):
        async with shop.worker() as worker:
            await shop.until_lines("worked", done)
            kill(worker)
        expire(shop)
    async with shop.worker():
        await until(lambda: account(shop), what="each is done, a letter, or in Redis, and no queue is left")
    dead = {letter.message.id for letter in await shop.letters()}
    assert {str(number) for number in range(0, JOBS, 5)} <= dead | kept(shop)


async def account(shop: Shop) -> bool:
    ended = set(shop.lines("worked")) | {letter.message.id for letter in await shop.letters()} | kept(shop)
    return shop.redis.llen(f"rq:queue:{shop.name}") == 0 and ended == {str(number) for number in range(JOBS)}


def kept(shop: Shop) -> set[str]:
    """What a worker had taken from its queue when it was killed, and not begun: RQ gives it up after some minutes."""
    ids: Any = shop.redis.lrange(f"rq:queue:{shop.name}:intermediate", 0, -1)
    return {id.decode() for id in ids}


async def test_the_doctor_says_what_rq_will_forget(shop: Shop) -> None:
    shop.queue.enqueue(jobs.charge, "o-1", failure_ttl=3600, job_timeout=-1)
    async with shop.worker() as worker:
        await until(lambda: FailedJobRegistry(queue=shop.queue).count == 1, what="it has failed")
        worker.send_signal(signal.SIGTERM)
    async with shop.asked("doctor", "--json") as process:
        assert process.child.stdout is not None
        said = (await process.child.stdout.read()).decode()
    assert f"1 failed jobs lie in the registry of {shop.name}" in said
    assert f"jobs of {shop.name} have a failure_ttl of 1:00:00" in said
    assert f"jobs of {shop.name} have no timeout" in said
