"""The same kills with the queue in Redis: a worker that dies at any step loses nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from redrive.testing.faults import Step
from tests.faults.harness import Account, check
from tests.faults.scenarios import KILLS, run_all, seed, soak
from tests.servers.redis import Redis
from tests.trouble.redis_queue import private_url

Results = dict[tuple[Step, int], Account | BaseException]
FIRST = {step: times[:1] for step, times in KILLS.items()} | {Step.ATTEMPTED: (7,)}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, redis_server: Redis) -> Results:
    """All of them are run together, because each mostly waits for a lease to end."""
    directory = tmp_path_factory.mktemp("kills")
    return asyncio.run(run_all(directory, lambda: private_url(redis_server.url), FIRST))


@pytest.mark.parametrize(("step", "nth"), [(step, nth) for step, times in FIRST.items() for nth in times])
def test_after_a_kill_every_message_is_accounted_for(
    results: Results, accounts: list[Account], step: Step, nth: int
) -> None:
    account = results[step, nth]
    if isinstance(account, BaseException):
        raise account
    accounts.append(account)
    check(account)


async def test_after_kills_at_random_times_every_message_is_accounted_for(
    tmp_path: Path, accounts: list[Account], redis_server: Redis
) -> None:
    account = await soak(tmp_path, seed(), kills=4, transport=private_url(redis_server.url))
    accounts.append(account)
    check(account)
