"""A worker killed at any step loses nothing, and repeats only what was under way."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from redrive.testing.faults import Step
from tests.faults.harness import Account, check
from tests.faults.scenarios import KILLS, run_all, seed, soak

Results = dict[tuple[Step, int], Account | BaseException]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """All of them are run together, because each mostly waits for a lease to end."""
    return asyncio.run(run_all(tmp_path_factory.mktemp("kills")))


@pytest.mark.parametrize(("step", "nth"), [(step, nth) for step, times in KILLS.items() for nth in times])
def test_after_a_kill_every_message_is_accounted_for(
    results: Results, accounts: list[Account], step: Step, nth: int
) -> None:
    account = results[step, nth]
    if isinstance(account, BaseException):
        raise account
    accounts.append(account)
    check(account)


async def test_after_kills_at_random_times_every_message_is_accounted_for(
    tmp_path: Path, accounts: list[Account]
) -> None:
    account = await soak(tmp_path, seed())
    accounts.append(account)
    check(account)
