"""The same kills with the queue in SQS: a worker that dies at any step loses nothing."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest

from redrive.testing.faults import Step
from tests.faults.harness import KINDS, Account, check, kill_at_random
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
