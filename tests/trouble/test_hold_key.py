"""Keys are held on real servers, over processes that are killed: nothing of a key overtakes its dead message."""

from __future__ import annotations

import asyncio
import secrets
import sys
from asyncio.subprocess import Process
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from redrive import Redrive
from redrive.config.settings import Settings
from redrive.flow.held import held_keys
from redrive.forensics.query import Query
from redrive.model import Reason, State, letter_id
from redrive.service import Service
from redrive.testing.waiting import until
from tests.actors import acting
from tests.conformance.test_kafka_transport import make_topics
from tests.servers import web
from tests.servers.kafka import Kafka
from tests.servers.postgresql import PostgreSQL
from tests.servers.rabbitmq import GUEST, RabbitMQ
from tests.servers.redis import Redis

pytestmark = pytest.mark.servers
KEYS, BEHIND = 4, 5
_WORKER = """
import asyncio, logging, os, sys
from datetime import timedelta
from redrive import Message, Permanent, Policy, Redrive
from redrive.config.settings import Settings, Upkeep
from redrive.worker import run

def main(transport, store, place, orders, concurrency):
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    settings = Settings(lease=timedelta(seconds=5), batch=10, upkeep=Upkeep(interval=timedelta(milliseconds=50)))
    app = Redrive(transport=transport, store=store, settings=settings)
    file = os.open(place + "/log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    @app.handler(orders, policy=Policy(attempts=3, on_death="hold-key"), concurrency=int(concurrency))
    async def handle(body: bytes, message: Message) -> None:
        await asyncio.sleep(0.002)
        if message.id.endswith("-1") and os.path.exists(place + "/broken"):
            raise Permanent("out of stock")
        os.write(file, f"{message.id}\\n".encode())

    run(app, grace=timedelta(seconds=5))

main(*sys.argv[1:])
"""


class Shop:
    """Worker processes of one app, and what they have done."""

    def __init__(self, transport: str, place: Path, orders: str, *, in_order: bool) -> None:
        self.transport, self.store = transport, f"sqlite:///{place / 'letters.db'}"
        self.place, self.orders, self.in_order = place, orders, in_order
        self.processes: list[Process] = []
        (place / "broken").touch()

    async def start(self) -> Process:
        words = [self.transport, self.store, str(self.place), self.orders, "4" if self.in_order else "1"]
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", _WORKER, *words)
        self.processes.append(process)
        return process

    def mend(self) -> None:
        (self.place / "broken").unlink()

    @property
    def done(self) -> dict[str, list[int]]:
        """Of each key the numbers of what succeeded, in the order in which they did, repeats left out."""
        log = self.place / "log"
        found: dict[str, list[int]] = defaultdict(list)
        for line in log.read_text().splitlines() if log.exists() else ():
            key, _, number = line.partition("-")
            if int(number) not in found[key]:
                found[key].append(int(number))
        return found

    async def end(self) -> None:
        for process in self.processes:
            if process.returncode is None:
                process.terminate()
        await asyncio.gather(*(asyncio.wait_for(process.wait(), 60) for process in self.processes))


@pytest.fixture
def sqlite(tmp_path: Path) -> Shop:
    return Shop(f"sqlite:///{tmp_path / 'queue.db'}", tmp_path, "orders", in_order=False)


@pytest.fixture
def redis(tmp_path: Path, redis_server: Redis) -> Shop:
    return Shop(f"{redis_server.url}?prefix=hold-{secrets.token_hex(4)}", tmp_path, "orders", in_order=False)


@pytest.fixture
def kafka(tmp_path: Path, kafka_server: Kafka) -> Shop:
    name = f"hold-{secrets.token_hex(4)}"
    make_topics(kafka_server, f"{name}.orders", partitions=3)
    options = f"group={name}&counters=sqlite:///{tmp_path / 'counts.db'}&session.timeout.ms=6000"
    url = f"kafka://{kafka_server.bootstrap}/?{options}"
    return Shop(url, tmp_path, f"{name}.orders", in_order=True)


@pytest.fixture
def rabbitmq(tmp_path: Path, rabbitmq_server: RabbitMQ) -> Iterator[Shop]:
    vhost = f"hold-{secrets.token_hex(4)}"
    place = f"{rabbitmq_server.management_url}/api/vhosts/{vhost}"
    web.call("PUT", place, credentials=GUEST)
    yield Shop(f"{rabbitmq_server.url.rstrip('/')}/{vhost}?delay=1s", tmp_path, "orders", in_order=False)
    web.call("DELETE", place, credentials=GUEST)


@pytest.fixture
def postgresql(tmp_path: Path, postgresql_server: PostgreSQL) -> Shop:
    database = postgresql_server.new_database()
    return Shop(database, tmp_path, "orders", in_order=True)


@pytest.fixture(params=["sqlite", "redis", "kafka", "rabbitmq", "postgresql"])
async def shop(request: pytest.FixtureRequest) -> AsyncIterator[Shop]:
    made: Shop = request.getfixturevalue(request.param)
    try:
        yield made
    finally:
        await made.end()


@asynccontextmanager
async def on(shop: Shop) -> AsyncIterator[tuple[Redrive, Service]]:
    """The same queue and store, as a server or a command sees it: without a handler."""
    settings = Settings(store=shop.store, transports={"default": shop.transport}, lease=timedelta(seconds=5))
    async with Redrive(settings=settings) as app:
        app.declare(shop.orders)
        yield app, Service(app)


async def send(app: Redrive, shop: Shop, numbers: range) -> None:
    messages = [
        app.message(shop.orders, b"", id=f"k{key}-{number}", key=f"k{key}") for number in numbers for key in range(KEYS)
    ]
    await app.send_messages(messages)


async def reasons(app: Redrive) -> Counter[Reason]:
    page = await app.store.letters.search(Query(states=(State.PENDING,)), limit=1000)
    return Counter(letter.reason for letter in page.letters)


async def let_follow(app: Redrive, service: Service, shop: Shop) -> None:
    """Mend what was broken, and send back only the first of each key: the others follow by themselves."""
    shop.mend()
    await service.retry([letter_id(shop.orders, f"k{key}-1") for key in range(KEYS)], actor=acting("ann"))
    last = BEHIND + 1
    await until(
        lambda: all(len(shop.done.get(f"k{key}", ())) == last + 1 for key in range(KEYS)),
        timeout=180,
        what="all have followed",
    )

    async def free() -> bool:
        return not await held_keys(app.store.documents)

    await until(free, what="no key is held any more")


async def test_those_behind_a_dead_message_follow_it_in_order(shop: Shop) -> None:
    async with on(shop) as (app, service):
        await shop.start()
        await send(app, shop, range(2 + BEHIND))

        async def all_aside() -> bool:
            return await reasons(app) == {Reason.PERMANENT: KEYS, Reason.BEHIND: KEYS * BEHIND}

        await until(all_aside, what="all behind are set aside")
        assert all(numbers == [0] for numbers in shop.done.values()), "nothing has overtaken a dead one"
        assert {held.behind for held in await held_keys(app.store.documents)} == {BEHIND}
        (group,) = [group for group in await app.store.letters.groups(Query()) if group.error_type == "redrive.Behind"]
        assert group.count == KEYS * BEHIND, "one bundle"
        await let_follow(app, service, shop)
        assert all(numbers == list(range(2 + BEHIND)) for numbers in shop.done.values()), dict(shop.done)
        page = await app.store.letters.search(Query(), limit=1000)
        assert {letter.state for letter in page.letters} == {State.RESOLVED}


async def test_nothing_overtakes_a_dead_message_while_its_workers_are_killed(shop: Shop) -> None:
    """Everything behind comes while workers die; where the broker keeps order, it is kept to the last one."""
    async with on(shop) as (app, service):
        first = await shop.start()
        await send(app, shop, range(2))

        async def all_dead() -> bool:
            return await reasons(app) == {Reason.PERMANENT: KEYS}

        await until(all_dead, what="the first of each key is dead")
        for number in range(2, 2 + BEHIND):
            await send(app, shop, range(number, number + 1))
            some = KEYS * (number - 2) + 1

            async def more(some: int = some) -> bool:
                return (await reasons(app))[Reason.BEHIND] >= some

            if number < 4:
                await until(more, timeout=180, what="some are set aside")
                first.kill()
                await first.wait()
                first = await shop.start()

        async def all_aside() -> bool:
            return (await reasons(app))[Reason.BEHIND] == KEYS * BEHIND

        await until(all_aside, timeout=180, what="all behind are set aside")
        assert all(numbers == [0] for numbers in shop.done.values()), "nothing has overtaken a dead one"
        await let_follow(app, service, shop)
        for numbers in shop.done.values():
            assert sorted(numbers) == list(range(2 + BEHIND))
            assert numbers[:2] == [0, 1]
            assert numbers == sorted(numbers) or not shop.in_order
