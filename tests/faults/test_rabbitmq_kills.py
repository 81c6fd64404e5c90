"""The same kills with the queue in RabbitMQ, and kills of a re-drive between its copies and their acks."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from redrive.clock import SystemClock
from redrive.testing.faults import Step
from redrive.transports.rabbitmq.options import options_of
from redrive.transports.rabbitmq.redrive import DeadMessages
from tests.faults import rabbitmq_worker
from tests.faults.harness import HELD, Account, check, kill_at
from tests.faults.rabbitmq_redrive import Moment, account_of_kills
from tests.faults.scenarios import KILLS, run_all, seed, soak
from tests.servers import web
from tests.servers.fixtures import StartsServer
from tests.servers.rabbitmq import GUEST, RabbitMQ

Results = dict[tuple[Step, int], Account | BaseException]
FIRST = {step: times[:1] for step, times in KILLS.items()} | {Step.ATTEMPTED: (7,)}
NUMBER = int(os.environ.get("REDRIVE_KILLED_MESSAGES", "3000"))
KILLED = max(3, NUMBER // 10_000)


class Hosts:
    """A virtual host for each worker that is to die."""

    def __init__(self, server: RabbitMQ) -> None:
        self._server = server
        self._names: list[str] = []

    def url(self, more: str = "") -> str:
        name = f"kills-{uuid4().hex[:12]}"
        web.call("PUT", self._place(name), credentials=GUEST)
        self._names.append(name)
        # the broker may not have read the acks of a worker that is killed, so all that it sent ahead can come again
        return f"{self._server.url}{name}?delay=50ms&prefetch={HELD}{more}"

    def remove(self) -> None:
        for name in self._names:
            web.call("DELETE", self._place(name), credentials=GUEST)

    def _place(self, name: str) -> str:
        return f"{self._server.management_url}/api/vhosts/{name}"


@pytest.fixture(scope="module")
def hosts(rabbitmq_server: RabbitMQ) -> Iterator[Hosts]:
    hosts = Hosts(rabbitmq_server)
    yield hosts
    hosts.remove()


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, hosts: Hosts) -> Results:
    """All of them are run together, because each mostly waits."""
    return asyncio.run(run_all(tmp_path_factory.mktemp("kills"), hosts.url, FIRST))


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
    tmp_path: Path, accounts: list[Account], hosts: Hosts
) -> None:
    account = await soak(tmp_path, seed(), kills=4, transport=hosts.url())
    accounts.append(account)
    check(account)


@pytest.mark.parametrize("step", [Step.BEFORE_RECORD, Step.AFTER_RECORD, Step.BEFORE_ACK, Step.AFTER_ACK])
async def test_a_worker_that_is_killed_while_it_parks_loses_nothing(
    tmp_path: Path, hosts: Hosts, accounts: list[Account], step: Step
) -> None:
    """Before the record is between the parking and the store's letter; the retries are RabbitMQ's own."""
    url = hosts.url("&bury=both&retry=reject")
    account = await kill_at(tmp_path, step, 1, url)
    accounts.append(account)
    check(account)
    parkings = DeadMessages(options_of(url), SystemClock())
    parked = {one.message_id for one in await parkings.peek("orders.dlq", 1000)}
    await parkings.aclose()
    assert account.buried <= parked, "a letter whose message is not parked"


@pytest.mark.parametrize("moment", Moment)
async def test_a_redrive_that_is_killed_loses_nothing_and_its_repeats_can_be_told(moment: Moment, hosts: Hosts) -> None:
    """Each kill may leave what is under way in both queues; the id of the re-drive is the same for both."""
    account = await account_of_kills(hosts.url(), moment, number=NUMBER, kills=3)
    assert account.left_parked == 0
    assert set(account.came) == account.sent, "lost, or from nowhere"
    assert account.kills == 3
    assert account.repeated <= 3 * account.at_risk
    assert account.told_apart, "two of one message with different ids"
    if moment is Moment.AFTER_PUBLISH:
        assert account.repeated >= 1, "no kill fell between the copy and its ack"


async def test_after_kills_of_pipeline_workers_and_of_the_broker_every_message_is_accounted_for(
    start_server: StartsServer, tmp_path: Path
) -> None:
    """They consume, retry by the broker's own clock, and park; REDRIVE_KILLED_MESSAGES says how many."""
    server = start_server(RabbitMQ)
    account = await rabbitmq_worker.account_of_kills(server, tmp_path, number=NUMBER, kills=KILLED, seed=seed())
    print(account)
    assert set(account.done) == account.fine, "lost, or parked though it works"
    assert set(account.parked) == account.hopeless, "lost, or from nowhere"
    # a kill may leave all there is of a message twice, also that of the broker: it forgets acks it has not written yet
    assert max((account.done | account.parked).values()) <= 2 ** (account.kills + 1)
