"""The same kills with the queue in PostgreSQL: a worker that dies at any step loses nothing, nor does a server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from benchmarks.accounts.account import account

from redrive.testing.faults import Step
from tests.faults.harness import Account, check
from tests.faults.scenarios import KILLS, run_all, seed, soak
from tests.servers.postgresql import PostgreSQL

Results = dict[tuple[Step, int], Account | BaseException]
FIRST = {step: times[:1] for step, times in KILLS.items()} | {Step.ATTEMPTED: (7,)}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, postgresql_server: PostgreSQL) -> Results:
    """All of them are run together, because each mostly waits for a lease to end."""
    return asyncio.run(run_all(tmp_path_factory.mktemp("kills"), postgresql_server.new_database, FIRST))


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
    tmp_path: Path, accounts: list[Account], postgresql_server: PostgreSQL
) -> None:
    account = await soak(tmp_path, seed(), kills=4, transport=postgresql_server.new_database())
    accounts.append(account)
    check(account)


@pytest.mark.parametrize("exactly_once", [False, True], ids=["at least once", "exactly once"])
async def test_workers_and_the_server_are_killed(tmp_path: Path, exactly_once: bool) -> None:
    with PostgreSQL() as server:

        def strike() -> None:
            server.kill9()
            server.start()

        found = await account(
            "postgresql",
            server.new_database(),
            tmp_path,
            messages=1500,
            kills=3,
            batch=50,
            seed=19,
            strike=strike,
            exactly_once=exactly_once,
        )
    assert (found.lost, found.left, found.crashed, found.doubled) == (0, 0, 0, 0)
    assert (found.letters, found.server_kills) == (15, 1)
