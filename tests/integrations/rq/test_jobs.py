"""What RQ fails becomes a letter, and its replay is run by RQ."""

from __future__ import annotations

import json
import pickle

from rq import Callback, Retry
from rq.job import Job, JobStatus
from rq.registry import FailedJobRegistry

from redrive.model import Category, Reason, State, letter_id
from redrive.stores.base import EntryStatus
from redrive.testing.waiting import until
from tests.integrations.rq import jobs
from tests.integrations.rq.conftest import Shop


async def test_a_job_whose_retries_are_over_is_a_letter_and_its_replay_resolves_it(shop: Shop) -> None:
    job = shop.queue.enqueue(jobs.charge, "o-1", retry=Retry(max=2))
    after = shop.queue.enqueue(jobs.confirm, "o-1", depends_on=job)
    async with shop.worker():
        [letter] = await shop.until_letters(1)
        assert (letter.message.id, letter.message.source) == (job.id, shop.name)
        assert [failure.attempt for failure in letter.failures] == [1, 2, 3]
        assert {failure.type for failure in letter.failures} == {"ConnectionError"}
        assert "the bank does not answer for o-1" in letter.last.stack
        assert (letter.reason, letter.state, letter.category) == (Reason.ATTEMPTS, State.PENDING, Category.NETWORK)
        assert letter.message.body == job.data, "as RQ's serializer made it"
        assert b"charge('o-1')" in (letter.message.header("rq-description") or b"")
        first = await shop.replay()
        [again] = await shop.until_letters(1, failures=4)
        assert (again.id, again.state) == (letter.id, State.EXHAUSTED)
        assert await shop.entries(first.replay.id) == {EntryStatus.FAILED: 1}
        shop.mend()
        await shop.run("replay", "--all", "--yes")
        await until(lambda: shop.is_state(State.RESOLVED), what="it is resolved")
        await until(lambda: shop.lines("confirmed") == ["o-1"], what="what depends on it has run")
        assert shop.lines("done") == ["o-1"]
        await until(lambda: shop.job(job.id).get_status() == JobStatus.FINISHED, what="RQ knows that it is done")
        assert shop.job(job.id).return_value() == "o-1 paid"
        assert shop.job(after.id).id == after.id


async def test_callbacks_of_a_job_go_on_after_its_replay(shop: Shop) -> None:
    told = {"on_success": Callback(jobs.on_success), "on_failure": Callback(jobs.on_failure)}
    shop.queue.enqueue(jobs.charge, "o-1", **told)
    async with shop.worker():
        await shop.until_letters(1)
        await shop.replay()
        await shop.until_letters(1, failures=2)
        shop.mend()
        await shop.replay()
        await until(lambda: shop.is_state(State.RESOLVED), what="it is resolved")
        await shop.until_lines("told", 3)
    assert shop.lines("told") == ["o-1 failed: ConnectionError"] * 2 + ["o-1 succeeded: o-1 paid"]


async def test_every_kind_of_death_is_a_letter(shop: Shop) -> None:
    killed = shop.queue.enqueue(jobs.kill_myself)
    late = shop.queue.enqueue(jobs.hang, job_timeout=1)
    back = shop.queue.enqueue(jobs.hand_back)
    gone = shop.queue.enqueue("tests.integrations.rq.jobs.nothing_of_that_name")
    large = shop.queue.enqueue(jobs.show, jobs.NoRepr())
    async with shop.worker():
        letters = {letter.message.id: letter for letter in await shop.until_letters(5)}
        shop.mend()
        await shop.replay()
        await until(lambda: shop.has({State.RESOLVED: 4, State.EXHAUSTED: 1}), what=f"all have ended; {shop.log()}")
    assert (letters[killed.id].last.type, letters[killed.id].reason) == ("rq.WorkHorseKilled", Reason.CRASHED)
    assert "signal 9" in letters[killed.id].last.message
    assert letters[late.id].last.type.endswith("JobTimeoutException")
    assert "returned a Retry" in letters[back.id].last.message
    assert "nothing_of_that_name" in letters[gone.id].last.message
    assert len(letters[large.id].message.body) > 5_000_000
    [dead] = [letter for letter in await shop.letters() if letter.state is State.EXHAUSTED]
    assert dead.message.id == gone.id


async def test_what_both_tell_of_is_one_letter_with_one_failure(shop: Shop) -> None:
    told = [shop.queue.enqueue(jobs.charge, f"o-{number}") for number in range(3)]
    killed = shop.queue.enqueue(jobs.kill_myself)
    async with shop.worker():
        before = await shop.until_letters(4)
        registry = FailedJobRegistry(queue=shop.queue)
        await until(lambda: registry.count == 4, what="RQ has failed them, too")
    found = json.loads(await shop.run("collect", f"rq+{shop.url}/{shop.name}", "--json"))
    assert (found["collected"], found["not_allowed"]) == (4, {})
    after = await shop.letters()
    assert {letter.id: letter.failures for letter in after} == {letter.id: letter.failures for letter in before}
    assert registry.count == 0
    assert shop.job(told[0].id).get_status() == JobStatus.FAILED, "the job itself stays"
    assert {letter.message.id for letter in after} == {killed.id, *(job.id for job in told)}


async def test_a_job_that_redis_has_lost_is_made_anew_by_its_replay(shop: Shop) -> None:
    job = shop.queue.enqueue(jobs.charge, "o-2", failure_ttl=500, meta={"tenant": "acme"})
    async with shop.worker():
        await shop.until_letters(1)
        await until(lambda: shop.job(job.id).get_status() == JobStatus.FAILED, what="RQ has failed it")
        shop.redis.delete(f"rq:job:{job.id}")
        shop.mend()
        await shop.replay()
        await until(lambda: shop.is_state(State.RESOLVED), what="it is resolved")
    assert shop.lines("done") == ["o-2"]
    assert shop.job(job.id).meta == {"tenant": "acme"}


class Bomb:
    """Whoever unpickles it has run code of a stranger's."""

    def __reduce__(self) -> tuple[object, ...]:
        return exec, ("raise SystemExit('it was unpickled')",)


async def test_failed_jobs_are_collected_and_never_unpickled(shop: Shop) -> None:
    job = Job.create(jobs.charge, ("o-3",), origin=shop.name, connection=shop.redis)
    job.data = pickle.dumps(("tests.integrations.rq.jobs.charge", None, (Bomb(),), {}))
    job.save()
    shop.redis.hset(job.key, "meta", pickle.dumps(Bomb()))
    FailedJobRegistry(queue=shop.queue).add(job, exc_string="Traceback (most recent call last):\nValueError: no\n")
    assert json.loads(await shop.run("collect", f"rq+{shop.url}/{shop.name}", "--json"))["collected"] == 1
    [letter] = await shop.letters()
    assert (letter.last.type, letter.last.message, letter.foreign) == (
        "rq.Unknown",
        "RQ keeps no traceback of it",
        True,
    )
    assert b"it was unpickled" in letter.message.body
    await shop.replay()
    assert await shop.is_state(State.SENT), "nobody says what becomes of it"
    assert shop.redis.hget(job.key, "status") == b"queued"
    assert shop.redis.lrange(f"rq:queue:{shop.name}", 0, -1) == [job.id.encode()]


async def test_a_job_that_somebody_requeues_by_hand_dies_as_its_letter_and_resolves_it(shop: Shop) -> None:
    job = shop.queue.enqueue(jobs.charge, "o-4")
    failed = FailedJobRegistry(queue=shop.queue)
    async with shop.worker():
        for deaths in (1, 2):
            await shop.until_letters(1, failures=deaths)
            await until(lambda: failed.count == 1, what="RQ has failed it")
            if deaths == 2:
                shop.mend()
            shop.job(job.id).requeue()
        await until(lambda: shop.is_state(State.RESOLVED), what="its letter is resolved")
    [letter] = await shop.letters()
    assert (letter.id, len(letter.failures)) == (letter_id(shop.name, job.id), 2)


async def test_a_job_that_is_not_dead_any_more_is_not_doubled(shop: Shop) -> None:
    done, waiting, canceled = (shop.queue.enqueue(jobs.charge, f"o-{number}") for number in range(3))
    async with shop.worker():
        await shop.until_letters(3)
        await until(lambda: FailedJobRegistry(queue=shop.queue).count == 3, what="RQ has failed them")
    shop.redis.hset(done.key, "status", "finished")
    shop.job(waiting.id).requeue()
    shop.redis.hset(canceled.key, "status", "canceled")
    report = await shop.replay()
    assert report.entries == {EntryStatus.SKIPPED: 2, EntryStatus.SENT: 1}
    assert shop.redis.lrange(f"rq:queue:{shop.name}", 0, -1) == [waiting.id.encode()]
