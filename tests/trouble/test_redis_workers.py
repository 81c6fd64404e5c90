"""Workers on a queue in Redis: slow handlers, messages that kill, and many tenants over several processes."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest

from redrive import Redrive
from redrive.config.settings import Settings
from redrive.drivers.redis import Link
from redrive.forensics.query import Query
from redrive.limits import Fair, Limits
from redrive.model import Reason
from redrive.stores.sqlite import SqliteStore
from redrive.telemetry.events import LeaseLost
from redrive.testing.builders import make_message
from redrive.testing.clock import START
from redrive.testing.waiting import until
from redrive.transports.base import Delivery, Paused, Transport
from tests.servers.redis import Redis
from tests.trouble.helpers import Told, start, working
from tests.trouble.redis_queue import finish, link_to, private_url, transport_on
from tests.trouble.redis_time import let_time_pass

LEASE = timedelta(seconds=1)


@pytest.fixture
def url(redis_server: Redis) -> str:
    return private_url(redis_server.url)


# -- a handler that takes longer than its lease --------------------------------------------------------------------


async def test_the_lease_of_a_slow_handler_is_renewed(url: str) -> None:
    app = Redrive(transport=url, store="memory://", settings=Settings(lease=LEASE))
    begun, may_end = asyncio.Event(), asyncio.Event()

    @app.handler("orders")
    async def handle(order: dict[str, int]) -> None:
        assert not begun.is_set(), "it was handled twice"
        begun.set()
        await may_end.wait()

    async with app, transport_on(url) as other, link_to(url) as link, working(app):
        await app.send("orders", {"n": 1}, id="slow")
        await begun.wait()
        first_end = await _lease_end(other.queue("orders"), link, "slow")
        waiting = asyncio.ensure_future(other.receive("orders", 1))
        await until(lambda: _has_passed(link, first_end), what="the lease would have ended")
        assert await _lease_end(other.queue("orders"), link, "slow") > first_end
        assert not waiting.done()
        may_end.set()
        await until(lambda: _is_empty(app), what="it is settled")
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def test_who_lost_its_lease_settles_nothing(url: str) -> None:
    settings = Settings(lease=timedelta(minutes=10), batch=1)
    app = Redrive(transport=url, store="memory://", settings=settings)
    told, begun, may_end = Told(app), asyncio.Event(), asyncio.Event()

    @app.handler("orders", concurrency=1)
    async def handle(order: dict[str, int]) -> None:
        begun.set()
        await may_end.wait()

    async with app, transport_on(url, lease=timedelta(minutes=10)) as other, working(app):
        await app.send("orders", {"n": 1}, id="contested")
        await begun.wait()
        await app.send("orders", {"n": 2}, id="filler")  # now its hands are full: it fetches no more
        await until(lambda: _are_leased(other, 2), what="the first worker has both")
        stealing = asyncio.ensure_future(_received(other, 2))
        await let_time_pass(url, timedelta(minutes=11))
        stolen = {delivery.message.id: delivery for delivery in await asyncio.wait_for(stealing, 60)}
        ours = stolen["contested"]
        assert (ours.message.attempt, ours.redelivered) == (2, True)
        may_end.set()
        await until(lambda: bool(told.of(LeaseLost)), what="the first worker was told")
        assert await _are_leased(other, 2), "the second worker's lease was settled by the first"
        await finish(other, list(stolen.values()))
        assert await other.depths() == {}


async def _are_leased(transport: Transport, number: int) -> bool:
    return (await transport.depths())["orders"].leased == number


async def _received(transport: Transport, number: int) -> list[Delivery]:
    """So many messages, however many receives they take."""
    found: list[Delivery] = []
    while len(found) < number:
        found += await transport.receive("orders", number)
    return found


async def _lease_end(queue: str, link: Link, id: str) -> float:
    return float(await link.command("ZSCORE", f"{queue}:leases", id))


async def _has_passed(link: Link, milliseconds: float) -> bool:
    seconds, micros = await link.command("TIME")
    return int(seconds) * 1000 + int(micros) / 1000 > milliseconds


async def _is_empty(app: Redrive) -> bool:
    return not await app.transport().depths()


# -- a message that kills its worker -------------------------------------------------------------------------------

_KILLER = """
import asyncio, os, sys
from datetime import timedelta
from redrive import Message, Policy, Redrive
from redrive.config.settings import Settings
from redrive.worker import Worker

async def main(url, store, done):
    app = Redrive(transport=url, store=store, settings=Settings(lease=timedelta(seconds=0.5), batch=5, concurrency=5))

    @app.handler("orders", policy=Policy(attempts=2))
    async def handle(order: dict, message: Message) -> None:
        if message.id == "poison":
            os._exit(9)
        with open(done, "a") as file:
            file.write(message.id + "\\n")

    async with app:
        worker = Worker(app, upkeep=False)
        running = asyncio.create_task(worker.run())
        while await app.transport().depths():
            await asyncio.sleep(0.01)
        worker.stop()
        await running

asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_message_that_kills_its_worker_is_buried_after_its_attempts(url: str, tmp_path: Path) -> None:
    store_url, done = f"sqlite:///{tmp_path / 'letters.db'}", tmp_path / "done"
    async with transport_on(url) as transport:
        messages = [make_message(id=f"{n}") for n in range(10)]
        await transport.send([*messages[:3], make_message(id="poison"), *messages[3:]])
    codes: list[int] = []
    while not codes or codes[-1]:
        process = await start(_KILLER, url, store_url, str(done))
        codes.append(await asyncio.wait_for(process.wait(), 60))
        assert len(codes) < 5, "it kills one worker after the other"
    assert codes == [9, 9, 0]
    assert set(done.read_text().split()) == {f"{n}" for n in range(10)}
    store = SqliteStore(store_url)
    [letter] = (await store.letters.search(Query())).letters
    await store.aclose()
    assert (letter.message.id, letter.reason) == ("poison", Reason.CRASHED)


# -- many tenants --------------------------------------------------------------------------------------------------

TENANTS, EACH, FLOOD, PROCESSES, BATCH = 199, 3, 1500, 3, 4
_WORKER = """
import asyncio, os, sys
from redrive import Message, Redrive
from redrive.config.settings import Settings
from redrive.worker import Worker

async def main(url, log, batch):
    app = Redrive(transport=url, store="memory://", settings=Settings(batch=int(batch), concurrency=int(batch)))
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    @app.handler("orders", fair=True)
    async def handle(order: dict, message: Message) -> None:
        os.write(file, f"{message.tenant} {os.getpid()}\\n".encode())
        await asyncio.sleep(0.001)

    async with app:
        worker = Worker(app, upkeep=False)
        running = asyncio.create_task(worker.run())
        os.write(file, b"ready 0\\n")
        while await app.transport().depths():
            await asyncio.sleep(0.02)
        worker.stop()
        await running

asyncio.run(main(*sys.argv[1:]))
"""


async def test_two_hundred_tenants_over_three_processes(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One has 1,500 messages and was first; the others have three each, and none waits for more than one round."""
    log = tmp_path / "log"
    async with transport_on(url) as transport:
        transport.limit("orders", Limits(fair=Fair()))
        await transport.send([make_message(tenant="flood")])
        await finish(transport, await transport.receive("orders", 1))
        await transport.pause(Paused("orders", by="ann", at=START))
        await transport.send([make_message(tenant="flood") for _ in range(FLOOD)])
        await transport.send([make_message(tenant=f"t{n}") for n in range(TENANTS) for _ in range(EACH)])
        workers = [await start(_WORKER, url, str(log), str(BATCH)) for _ in range(PROCESSES)]
        await until(lambda: log.exists() and log.read_text().count("ready") == PROCESSES, timeout=60, what="all wait")
        await transport.resume("orders")
        for worker in workers:
            assert await asyncio.wait_for(worker.wait(), 90) == 0
    lines = [line.split() for line in log.read_text().splitlines()[PROCESSES:]]
    assert Counter(tenant for tenant, _ in lines) == {"flood": FLOOD, **{f"t{n}": EACH for n in range(TENANTS)}}
    waits = {tenant: place for place, (tenant, _) in enumerate(lines) if tenant != "flood"}
    worst, one_round = max(waits.values()), (TENANTS + 1) * EACH
    with capsys.disabled():
        shares = Counter(pid for _, pid in lines)
        print(f"\n{TENANTS + 1} tenants, {len(shares)} processes: the worst wait was {worst} messages of {len(lines)}")
    held = PROCESSES * 2 * 2 * BATCH  # what workers hold is begun in an order of their own
    assert worst < one_round + held
