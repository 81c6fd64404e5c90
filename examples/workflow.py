"""Workflows over repositories: what fails is kept with its reason, and retried until it works.

python workflow.py          runs a sweep that fails in one place, and retries it
redrive --store sqlite:///workflow.db groups --closed        why it had failed
"""

import asyncio
from typing import Any

from redrive.systems.workflow import WorkflowApp, WorkflowSettings
from redrive.telemetry.events import Event, LetterResolved

down = {"/repos/shop"}  # where the model server does not answer at first


async def sweep(task: dict[str, Any], repo: str) -> str:
    if repo in down:
        raise ConnectionError(f"the model server did not answer for {repo}")
    return f"{task['type']} of {repo} done"


async def main() -> None:
    settings = WorkflowSettings(dlq_default_retry_policy="immediate")
    async with WorkflowApp(settings, adapters={"llamaindex": sweep}, store="workflow.db") as app:
        result = await app.execute_workflow_parallel(
            task={"type": "code_sweep"}, adapter_name="llamaindex", repos=["/repos/api", "/repos/shop"]
        )
        print(f"{result['status']}: kept as {result['dlq_task_id']}")
        for task in await app.dlq.list_tasks():
            print(f"{task.error_category}: {task.error}, left to do: {', '.join(task.repos)}")

        down.clear()  # somebody mends it
        resolved = asyncio.Event()

        def watch(event: Event) -> None:
            if isinstance(event, LetterResolved):
                resolved.set()

        app.observability.subscribe(watch)
        await app.start_dlq_processor()
        await resolved.wait()
        await app.stop_dlq_processor()
        stats = await app.dlq.get_statistics()
        print(f"retried: {stats['lifetime_stats']['retry_success']} succeeded, {stats['queue_size']} open")


if __name__ == "__main__":
    asyncio.run(main())
