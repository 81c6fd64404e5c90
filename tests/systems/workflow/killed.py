"""An app that dies in the middle of a retry: `python -m tests.systems.workflow.killed FILE`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from redrive.systems.workflow import DeadLetterQueue, RetryPolicy


async def main(path: Path) -> None:
    async def callback(task: dict[str, Any], repos: list[str]) -> bool:
        if task["name"] == "t7":
            os.kill(os.getpid(), signal.SIGKILL)
        return bool(task["name"] != "t3")

    dlq = DeadLetterQueue(store=path, retry_callback=callback, parallel=1)
    for number in range(20):
        await dlq.enqueue(f"t{number}", {"name": f"t{number}"}, [], "timeout", retry_policy=RetryPolicy.IMMEDIATE)
    await dlq.run_retry_cycle()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
