"""kill -9 in the middle of a retry: every task is accounted for, and what ran is retried when its lease ends."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime
from pathlib import Path

from redrive.systems.workflow import DeadLetterQueue
from redrive.testing.clock import ManualClock
from tests.systems.workflow.helpers import Worker


async def test_an_app_that_is_killed_loses_no_task(tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    words = [sys.executable, "-m", "tests.systems.workflow.killed", str(path)]
    child = await asyncio.create_subprocess_exec(*words, cwd=Path(__file__).parents[3])
    assert await child.wait() == -9
    clock = ManualClock(datetime.now(UTC))
    async with DeadLetterQueue(store=path, clock=clock) as dlq:
        done = {task.task_id for task in await dlq.list_tasks("resolved")}
        left = {task.task_id: task.status.value for task in await dlq.list_tasks()}
        assert done | left.keys() == {f"t{number}" for number in range(20)}
        assert done == {"t0", "t1", "t2", "t4", "t5", "t6"}
        assert left["t7"] == "retrying"
        worker = Worker()
        await dlq.run_retry_cycle(worker)
        assert "t7" not in worker.seen
        await clock.advance(7 * 60)
        await dlq.run_retry_cycle(worker)
        assert sorted(worker.seen) == sorted(left)
        assert await dlq.list_tasks() == []
