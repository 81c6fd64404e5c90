"""A worker killed at any step, its letters in PostgreSQL; and the server killed with it: nothing is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from redrive.testing.faults import Step
from tests.faults.harness import KINDS, Account, check, count, fill, run_worker
from tests.faults.scenarios import run_all, seed, soak
from tests.faults.worker_process import Orders
from tests.servers.fixtures import StartsServer
from tests.servers.postgresql import PostgreSQL

Results = dict[tuple[Step, int], Account | BaseException]
KILLS: dict[Step, tuple[int, ...]] = {step: (1,) for step in Step if step not in (Step.RECEIVED, Step.ATTEMPTED)}
"""What has to do with letters; the others are the queue's (test_kills.py)."""
SERVER_KILLS = (Step.BEFORE_RECORD, Step.AFTER_RECORD, Step.BEFORE_CONFIRM, Step.AFTER_RESOLVE)


@pytest.fixture(scope="module")
def results(postgresql_server: PostgreSQL, tmp_path_factory: pytest.TempPathFactory) -> Results:
    """All of them are run together, because each mostly waits for a lease to end."""
    directory = tmp_path_factory.mktemp("kills")
    return asyncio.run(run_all(directory, kills=KILLS, store=postgresql_server.new_database))


@pytest.mark.parametrize("step", KILLS)
def test_after_a_kill_every_message_is_accounted_for(results: Results, accounts: list[Account], step: Step) -> None:
    account = results[step, 1]
    if isinstance(account, BaseException):
        raise account
    accounts.append(account)
    check(account)


async def test_after_kills_at_random_times_every_message_is_accounted_for(
    tmp_path: Path, postgresql_url: str, accounts: list[Account]
) -> None:
    account = await soak(tmp_path, seed(), kills=4, store=postgresql_url)
    accounts.append(account)
    check(account)


@pytest.mark.parametrize("step", SERVER_KILLS)
async def test_worker_and_server_are_killed_at_once(
    start_server: StartsServer, tmp_path: Path, accounts: list[Account], step: Step
) -> None:
    server = start_server(PostgreSQL)
    orders = Orders(str(tmp_path), store=server.url)
    sent = await fill(orders, KINDS)
    assert await run_worker(replace(orders, step=step)) < 0
    server.kill9()
    server.start()
    assert await run_worker(orders) == 0
    account = await count(orders, sent, step=step, nth=1, kills=1)
    accounts.append(account)
    check(account)
