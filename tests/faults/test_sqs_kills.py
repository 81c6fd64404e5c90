"""The same kills with the queue in SQS: a worker that dies at any step loses nothing."""

from __future__ import annotations

import asyncio
import os
import random
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from redrive.clock import SystemClock
from redrive.testing.builders import make_message
from redrive.testing.faults import Step
from redrive.testing.waiting import until
from redrive.transports.base import ACCEPTED
from redrive.transports.sqs import open_transport
from tests.faults import fifo_worker
from tests.faults.harness import KINDS, ROOT, Account, check, kill_at_random
from tests.faults.scenarios import KILLS, SOAK, run_all, seed
from tests.servers.elasticmq import ElasticMQ
from tests.trouble.sqs import private_url

Results = dict[tuple[Step, int], Account | BaseException]
FEW = {Step.ATTEMPTED: (7,), Step.AFTER_RECORD: (1,), Step.BEFORE_ACK: (1,), Step.AFTER_SEND: (1,)}
EVERY = {step: times[:1] for step, times in KILLS.items()} | {Step.ATTEMPTED: (7,)}
ALL = os.environ.get("REDRIVE_SQS_KILLS") == "all"
CHOSEN, MANY = (EVERY, SOAK) if ALL else (FEW, KINDS)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, elasticmq_server: ElasticMQ) -> Results:
    """All of them are run together, because each mostly waits for a lease to end."""
    directory = tmp_path_factory.mktemp("kills")
    return asyncio.run(run_all(directory, lambda: private_url(elasticmq_server), CHOSEN))


@pytest.mark.parametrize(("step", "nth"), [(step, nth) for step, times in CHOSEN.items() for nth in times])
def test_after_a_kill_every_message_is_accounted_for(
    results: Results, accounts: list[Account], step: Step, nth: int
) -> None:
    account = results[step, nth]
    if isinstance(account, BaseException):
        raise account
    accounts.append(account)
    check(account)


async def test_after_kills_at_random_times_every_message_is_accounted_for(
    tmp_path: Path, accounts: list[Account], elasticmq_server: ElasticMQ
) -> None:
    pauses = [random.Random(seed()).uniform(0.02, 0.6) for _ in range(2)]
    account = await kill_at_random(tmp_path, pauses, MANY, private_url(elasticmq_server))
    accounts.append(account)
    check(account)


async def test_after_kills_each_group_of_a_fifo_queue_is_whole_and_in_order(
    tmp_path: Path, elasticmq_server: ElasticMQ
) -> None:
    """What was in hand may be done again; what is behind it in its group never before it."""
    url, file = private_url(elasticmq_server, "&fifo=yes"), tmp_path / "handled"
    transport = open_transport(url, clock=SystemClock(), lease=fifo_worker.LEASE)
    groups, each = [f"g{number}" for number in range(6)], 15
    sent = [
        make_message(id=f"{group}-{number}", key=group.encode(), body=b"%d" % number)
        for number in range(each)
        for group in groups
    ]
    assert set(await transport.send(sent)) == {ACCEPTED}
    chance = random.Random(seed())
    for killed_at in sorted(chance.sample(range(5, 60), 3)):
        async with fifo_process(url, file):  # killed when so many are handled
            await until(partial(has_handled, file, killed_at), what=f"{killed_at} are handled")
    async with fifo_process(url, file):
        await until(lambda: len(set(handled(file))) == len(sent), what="all are handled")
    for group in groups:
        first_times = list(dict.fromkeys(number for name, number in handled(file) if name == group))
        assert first_times == sorted(first_times) == list(range(each))
    await transport.aclose()


def handled(file: Path) -> list[tuple[str, int]]:
    """Group and number of each, as they were handled."""
    lines = file.read_text().splitlines() if file.exists() else []
    return [(group, int(number)) for group, number in map(str.split, lines)]


def has_handled(file: Path, least: int) -> bool:
    return len(handled(file)) >= least


@asynccontextmanager
async def fifo_process(url: str, file: Path) -> AsyncIterator[None]:
    """A worker, until it is killed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.faults.fifo_worker", url, str(file), cwd=ROOT
    )
    try:
        yield
    finally:
        process.kill()
        await process.wait()
