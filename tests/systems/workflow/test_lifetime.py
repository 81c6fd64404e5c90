"""Lifetime statistics are those of the queue, over restarts and processes; what is resolved leaves memory."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

from redrive.stores.memory import MemoryStore
from redrive.systems.workflow import DeadLetterQueue, RetryPolicy
from redrive.systems.workflow.lifetime import Lifetimes
from redrive.testing.clock import ManualClock
from redrive.testing.waiting import until
from tests.systems.workflow.helpers import Worker, enqueued, failing

ROOT = Path(__file__).parents[3]
EXPECTED = {
    "enqueued_total": 3,
    "retry_success": 1,
    "retry_failed": 2,
    "exhausted": 1,
    "manually_retried": 1,
    "archived": 1,
}


async def _lived(dlq: DeadLetterQueue) -> None:
    """One is exhausted, one succeeds by hand, one is archived."""
    await enqueued(dlq, "a", max_retries=1)
    await enqueued(dlq, "b", max_retries=2)
    await enqueued(dlq, "c", retry_policy=RetryPolicy.NEVER)
    await dlq.run_retry_cycle(failing())
    dlq.retry_callback = Worker()
    await dlq.retry_task("b")
    await dlq.archive_task("c")


async def _lifetime(dlq: DeadLetterQueue) -> dict[str, Any]:
    found: dict[str, Any] = (await dlq.get_statistics())["lifetime_stats"]
    return found


async def test_they_survive_a_restart(tmp_path: Path) -> None:
    async with DeadLetterQueue(store=tmp_path / "w.db") as dlq:
        await _lived(dlq)
        assert await _lifetime(dlq) == EXPECTED
    async with DeadLetterQueue(store=tmp_path / "w.db") as dlq:
        assert await _lifetime(dlq) == EXPECTED
        await enqueued(dlq, "d")
        assert await _lifetime(dlq) == {**EXPECTED, "enqueued_total": 4}


async def test_they_survive_the_deletion_of_all_tasks(tmp_path: Path) -> None:
    async with DeadLetterQueue(store=tmp_path / "w.db") as dlq:
        await _lived(dlq)
        await dlq.clear_all()
        assert await _lifetime(dlq) == EXPECTED


async def test_they_are_those_of_all_processes(tmp_path: Path) -> None:
    queues = [DeadLetterQueue(store=tmp_path / "w.db") for _ in range(3)]
    await asyncio.gather(*(enqueued(queue, f"t{n}-{i}") for i, queue in enumerate(queues) for n in range(20)))
    await asyncio.gather(*(_lifetime(queue) for queue in queues))
    assert [(await _lifetime(queue))["enqueued_total"] for queue in queues] == [60, 60, 60]
    for queue in queues:
        await queue.aclose()


async def test_they_are_written_while_the_process_lives(clock: ManualClock) -> None:
    """So that a process that is killed loses no more than a second of them."""
    store = MemoryStore()
    dlq = DeadLetterQueue(store=store, clock=clock)
    await enqueued(dlq, "a")
    other = Lifetimes(store.documents, clock)
    assert (await other.read()).enqueued_total == 0

    async def are_written() -> None:
        while (await other.read()).enqueued_total != 1:  # noqa: ASYNC110
            await asyncio.sleep(0.001)

    await clock.eventually(are_written())
    await dlq.aclose()


async def test_a_document_of_another_version_is_read(clock: ManualClock) -> None:
    store = MemoryStore()
    await store.documents.put("workflow-lifetime", "all", {"enqueued_total": 7, "of_tomorrow": 1})
    async with DeadLetterQueue(store=store, clock=clock) as dlq:
        await enqueued(dlq, "a")
        assert (await _lifetime(dlq))["enqueued_total"] == 8


async def test_what_is_resolved_leaves_memory() -> None:
    async with DeadLetterQueue(retry_callback=Worker(lambda task: {"swept": "x" * 1000})) as dlq:
        for round in range(3):
            for number in range(200):
                await enqueued(dlq, f"{round}-{number}")
            await dlq.run_retry_cycle()
            assert await dlq.store.letters.tallies() == []
        await enqueued(dlq, "by hand")
        assert (await dlq.retry_task("by hand"))["success"]
        assert await dlq.get_task("by hand") is None
        assert (await _lifetime(dlq))["retry_success"] == 601


async def test_what_waits_for_a_task_that_left_memory_is_retried() -> None:
    async with DeadLetterQueue() as dlq:
        await enqueued(dlq, "a")
        await enqueued(dlq, "b", after="a")
        worker = Worker()
        await dlq.run_retry_cycle(worker)
        await dlq.run_retry_cycle(worker)
        assert worker.seen == ["a", "b"]


_KILLED = """
import asyncio, sys
from redrive.systems.workflow import DeadLetterQueue

async def main(path):
    dlq = DeadLetterQueue(store=path)
    for number in range(5):
        await dlq.enqueue(str(number), {}, [], "timeout")
    print("enqueued", flush=True)
    await asyncio.Event().wait()

asyncio.run(main(sys.argv[1]))
"""


async def test_they_survive_a_process_that_is_killed(tmp_path: Path) -> None:
    path = str(tmp_path / "w.db")
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _KILLED, path, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    assert await child.stdout.readline() == b"enqueued\n"
    async with DeadLetterQueue(store=path) as dlq:

        async def are_written() -> bool:
            return bool((await _lifetime(dlq))["enqueued_total"] == 5)

        await until(are_written)
        child.send_signal(signal.SIGKILL)
        await child.wait()
    async with DeadLetterQueue(store=path) as dlq:
        assert (await _lifetime(dlq))["enqueued_total"] == 5
