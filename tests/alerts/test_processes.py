"""Real processes on one store: one incident, told once; and a process that is killed while it tells."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from redrive.service import Service
from redrive.testing.waiting import until
from tests.alerts.conftest import an_app, on_shared_stores
from tests.alerts.receiver import HANG, Receiver

Process = asyncio.subprocess.Process
Start = Callable[[float], Awaitable[Process]]


@pytest.fixture
async def start(store: str, receiver: Receiver) -> AsyncIterator[Start]:
    running: list[Process] = []

    async def start_(claim: float) -> Process:
        url = f"webhook+http://{receiver.host}/x"
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.alerts.reporting_process", store, url, str(claim)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        running.append(process)
        assert process.stdout is not None
        assert await process.stdout.readline() == b"reports\n"
        return process

    yield start_
    await asyncio.gather(*(end(process) for process in running if process.returncode is None))


async def end(process: Process) -> None:
    process.stdin.close()  # type: ignore[union-attr]
    await process.wait()


def told(receiver: Receiver) -> list[str]:
    return [one["kind"] for request in receiver.requests for one in request.json["notices"]]


@on_shared_stores
async def test_three_processes_report_the_same_and_one_of_them_tells_it(
    start: Start, store: str, receiver: Receiver
) -> None:
    await asyncio.gather(*(start(60) for _ in range(3)))
    async with an_app(store=store) as app:
        service = Service(app)

        async def count() -> int:
            return sum(one.count for one in await service.incidents.list())

        await receiver.got(1)
        before = await count()

        async def all_went_on() -> bool:
            return await count() >= before + 60

        await until(all_went_on)
        [incident] = await service.incidents.list()
    assert (incident.episode, incident.notices) == (1, 1)
    assert told(receiver) == ["opened"]


@on_shared_stores
async def test_what_a_killed_process_was_telling_is_told_by_another(
    start: Start, store: str, receiver: Receiver
) -> None:
    receiver.answers.append(HANG)
    first = await start(0.2)
    await receiver.got(1)
    first.kill()
    await first.wait()
    await start(60)
    await receiver.got(2)
    one, two = ([notice["id"] for notice in request.json["notices"]] for request in receiver.requests[:2])
    assert one == two
    async with an_app(store=store) as app:

        async def is_told() -> bool:
            [incident] = await Service(app).incidents.list()
            return incident.owed is None

        await until(is_told)
