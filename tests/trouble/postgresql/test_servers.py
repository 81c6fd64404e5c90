"""PostgreSQL killed, cut off, full, read-only, replaced by its standby: what was acknowledged is there."""

from __future__ import annotations

import asyncio
import random
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from redrive.errors import ConfigError, StoreUnavailable
from redrive.forensics.query import Query
from redrive.model import Letter, State
from redrive.stores.base import Store
from redrive.testing.builders import make_failure, make_letter, make_message
from redrive.testing.clock import START
from redrive.testing.reference import Reference, counted
from redrive.testing.waiting import until
from tests.servers.fixtures import StartsServer
from tests.servers.postgresql import PgBouncer, PostgreSQL, Standby
from tests.servers.rundirs import new_directory
from tests.servers.toxiproxy import Toxiproxy
from tests.trouble.postgresql.conftest import OpensStore

IMPATIENT = "timeout=3&connect_timeout=2"


class Recorder:
    """Records letters batch by batch until it is told to stop; what was not acknowledged it records again."""

    def __init__(self, store: Store, name: str) -> None:
        self.store, self.name = store, name
        self.acknowledged: list[Letter] = []
        self.refused = 0
        self.stopped = False

    async def run(self) -> None:
        number = 0
        while not self.stopped:
            number += 1
            batch = [make_letter(make_message(id=f"{self.name}-{number}-{n}")) for n in range(20)]
            while not await self._recorded(batch):  # noqa: ASYNC110 - nobody tells us when the server is back
                await asyncio.sleep(0.01)
            self.acknowledged += batch

    async def _recorded(self, batch: Sequence[Letter]) -> bool:
        try:
            await self.store.letters.record(batch)
        except StoreUnavailable:
            self.refused += 1
            return False
        return True


async def is_accounted_for(store: Store, recorders: Sequence[Recorder]) -> None:
    """Every letter that was acknowledged is there once, and the counters say so."""
    expected = [letter for recorder in recorders for letter in recorder.acknowledged]
    for letter in expected:
        assert await store.letters.get(letter.id) == letter
    scanned = await store.letters.count(Query(since=START))
    assert scanned == len(expected)
    assert await store.letters.count(Query()) == scanned
    assert counted(await store.letters.tallies()).total() == scanned
    assert sum(group.count for group in await store.letters.groups(Query())) == scanned


@pytest.mark.parametrize("bounced", [False, True])
async def test_killed_and_restarted_under_load(start_server: StartsServer, opens: OpensStore, bounced: bool) -> None:
    server = start_server(PostgreSQL)
    url = f"{server.url}?{IMPATIENT}"
    if bounced:
        bouncer = start_server(lambda: PgBouncer(server, lines=("server_login_retry = 0",)))
        url = f"{bouncer.url}?{IMPATIENT}"
    recorders = [Recorder(opens(url), f"r{n}") for n in range(3)]
    tasks = [asyncio.create_task(recorder.run()) for recorder in recorders]
    for _ in range(2):
        reached = [len(recorder.acknowledged) + 60 for recorder in recorders]
        await until(lambda: all(len(r.acknowledged) >= n for r, n in zip(recorders, reached, strict=True)))  # noqa: B023
        refused = sum(recorder.refused for recorder in recorders)
        server.kill9()
        await until(lambda: sum(recorder.refused for recorder in recorders) > refused)  # noqa: B023
        server.start()
    reached = [len(recorder.acknowledged) + 60 for recorder in recorders]
    await until(lambda: all(len(r.acknowledged) >= n for r, n in zip(recorders, reached, strict=True)))
    for recorder in recorders:
        recorder.stopped = True
    await asyncio.gather(*tasks)
    await is_accounted_for(opens(url), recorders)


async def test_what_was_acknowledged_is_on_a_synchronous_standby_that_takes_over(
    start_server: StartsServer, opens: OpensStore
) -> None:
    primary = start_server(lambda: PostgreSQL(lines=("synchronous_standby_names = 'standby'",)))
    standby = start_server(lambda: Standby(primary))
    store = opens(f"postgresql://redrive@{primary.address},{standby.address}/postgres?{IMPATIENT}")
    recorder = Recorder(store, "r")
    task = asyncio.create_task(recorder.run())
    await until(lambda: len(recorder.acknowledged) >= 200)
    primary.kill9()
    await until(lambda: recorder.refused > 0)
    standby.sql("ALTER SYSTEM SET synchronous_standby_names = ''")
    standby.promote()
    reached = len(recorder.acknowledged) + 100
    await until(lambda: len(recorder.acknowledged) >= reached)
    recorder.stopped = True
    await task
    await is_accounted_for(opens(standby.url), [recorder])


async def test_a_standby_is_refused_with_what_to_do(start_server: StartsServer, opens: OpensStore) -> None:
    primary = start_server(PostgreSQL)
    await opens(primary.url).letters.record([make_letter()])
    standby = start_server(lambda: Standby(primary))
    await until(lambda: standby.sql("SELECT count(*) FROM pg_namespace WHERE nspname = 'redrive'") == "1")
    store = opens(standby.url)
    for call in (store.check(), store.letters.record([make_letter()])):
        with pytest.raises(StoreUnavailable, match="name the primary"):
            await call


async def test_a_connection_cut_in_the_middle_of_a_copy_leaves_nothing_and_costs_nothing(
    toxiproxy_server: Toxiproxy, postgresql_server: PostgreSQL, postgresql_url: str, opens: OpensStore
) -> None:
    proxy = toxiproxy_server.proxy(postgresql_server.address)
    store = opens(postgresql_url.replace(postgresql_server.address, proxy.address) + f"?{IMPATIENT}")
    await store.letters.record([make_letter()])
    letters = [make_letter(make_message(body=b"x" * 20_000)) for _ in range(100)]
    proxy.add("limit_data", stream="upstream", bytes=500_000)
    with pytest.raises(StoreUnavailable):
        await store.letters.record(letters)
    assert await opens(postgresql_url).letters.count(Query(since=START)) == 1
    proxy.remove("limit_data")
    await store.letters.record(letters)
    assert await store.letters.count(Query(since=START)) == await store.letters.count(Query()) == 101


async def test_a_server_that_says_nothing_is_given_up(
    toxiproxy_server: Toxiproxy, postgresql_server: PostgreSQL, postgresql_url: str, opens: OpensStore
) -> None:
    proxy = toxiproxy_server.proxy(postgresql_server.address)
    store = opens(postgresql_url.replace(postgresql_server.address, proxy.address) + "?timeout=1&connect_timeout=2")
    await store.letters.record([make_letter()])
    proxy.add("timeout", stream="downstream", timeout=0)
    with pytest.raises(StoreUnavailable):
        await store.letters.record([make_letter()])
    proxy.remove("timeout")
    await store.letters.record([make_letter()])


@pytest.mark.parametrize("isolation", ["read committed", "serializable"])
async def test_batches_that_cross_each_other_are_all_recorded(
    postgresql_url: str, opens: OpensStore, isolation: str
) -> None:
    level = isolation.replace(" ", "%5C%20")
    stores = [opens(f"{postgresql_url}?options=-c%20default_transaction_isolation%3D{level}") for _ in range(3)]
    messages = [make_message(id=f"m-{n}") for n in range(20)]

    def deaths(attempt: int) -> list[Letter]:
        some = [make_letter(message, make_failure(attempt=attempt)) for message in messages]
        return some if attempt % 2 else some[::-1]

    await asyncio.gather(*(stores[n % 3].letters.record(deaths(n)) for n in range(1, 7)))
    for message in messages:
        letter = await stores[0].letters.get(make_letter(message).id)
        assert letter is not None
        assert {failure.attempt for failure in letter.failures} == set(range(1, 7))
    assert await stores[0].letters.count(Query()) == 20


async def test_moves_and_claims_that_cross_each_other(postgresql_url: str, opens: OpensStore) -> None:
    stores = [opens(postgresql_url) for _ in range(4)]
    letters = [make_letter(make_message(id=f"m-{n}")) for n in range(60)]
    await stores[0].letters.record(letters)
    ids = [letter.id for letter in letters]

    async def move(n: int) -> set[str]:
        order = ids if n % 2 else ids[::-1]
        found = await stores[n % 4].letters.move(order, expect=[State.PENDING], to=State.EXHAUSTED, now=START)
        return set(found)

    moved = await asyncio.gather(*(move(n) for n in range(8)))
    assert sum(map(len, moved)) == len(set().union(*moved)) == 60
    assert await stores[0].letters.count(Query(states=(State.EXHAUSTED,))) == 60


async def test_statement_timeout_of_the_server(postgresql_url: str, opens: OpensStore) -> None:
    await opens(postgresql_url).letters.record([make_letter()])
    store = opens(postgresql_url + "?options=-c%20statement_timeout%3D1")
    letters = [make_letter(make_message(body=b"x" * 100_000)) for _ in range(100)]
    with pytest.raises(StoreUnavailable, match="raise its statement_timeout"):
        await store.letters.record(letters)
    assert await opens(postgresql_url).letters.count(Query()) == 1


async def test_read_only(postgresql_url: str, opens: OpensStore) -> None:
    await opens(postgresql_url).letters.record([make_letter()])
    store = opens(postgresql_url + "?options=-c%20default_transaction_read_only%3Don")
    for call in (store.check(), store.letters.record([make_letter()])):
        with pytest.raises(StoreUnavailable, match="takes no writes"):
            await call
    assert await store.letters.count(Query()) == 1


async def test_tables_from_the_future(postgresql_server: PostgreSQL, postgresql_url: str, opens: OpensStore) -> None:
    await opens(postgresql_url).letters.record([make_letter()])
    database = postgresql_url.rpartition("/")[2]
    postgresql_server.sql("INSERT INTO redrive.migrations VALUES ('store', 99)", database=database)
    store = opens(postgresql_url)
    for call in (store.check(), store.letters.count(Query())):
        with pytest.raises(ConfigError, match=r"version 99 of the store's tables.*upgrade Redrive"):
            await call


async def test_a_check_makes_no_tables(postgresql_url: str, opens: OpensStore) -> None:
    store = opens(postgresql_url)
    await store.check()
    assert not await store.is_made()
    await store.letters.record([])
    await store.letters.record([make_letter()])
    assert await store.is_made()
    await store.check()


@pytest.mark.parametrize("statement", ["DELETE FROM redrive.letters WHERE source = 'a'", "TRUNCATE redrive.letters"])
async def test_what_somebody_deletes_by_hand_is_counted(
    postgresql_server: PostgreSQL, postgresql_url: str, opens: OpensStore, statement: str
) -> None:
    store = opens(postgresql_url)
    await store.letters.record([make_letter(make_message(source=name)) for name in "aaab"])
    postgresql_server.sql(statement, database=postgresql_url.rpartition("/")[2])
    left = await store.letters.count(Query(since=START))
    assert left == await store.letters.count(Query()) == counted(await store.letters.tallies()).total()
    await store.letters.record([make_letter(make_message(source="a"))])
    assert await store.letters.count(Query()) == left + 1 == sum(g.count for g in await store.letters.groups(Query()))


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A disk of 24 MB."""
    place = new_directory("small-disk")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", place], check=True)
    subprocess.run(["chown", "postgres", place], check=True)
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def resize(disk: Path, size: str) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", disk], check=True)


async def test_disk_full_is_said_and_nothing_has_to_be_restarted(
    start_server: StartsServer, opens: OpensStore, small_disk: Path
) -> None:
    server = start_server(PostgreSQL)
    server.sql(f"CREATE TABLESPACE small LOCATION '{small_disk}'")
    server.sql("ALTER DATABASE postgres SET default_tablespace = small")
    store = opens(server.url)
    reference = Reference()
    said, batch = "", _batch(0)
    for n in range(200):
        batch = _batch(n)
        try:
            await store.letters.record(batch)
        except StoreUnavailable as error:
            said = str(error)
            break
        reference.record(batch)
    assert "its disk is full: make room" in said
    assert await store.letters.count(Query(since=START)) == len(reference.letters)
    resize(small_disk, "96m")
    await store.letters.record(batch)
    reference.record(batch)
    assert await store.letters.count(Query(since=START)) == len(reference.letters)
    assert await store.letters.count(Query()) == len(reference.letters)


def _batch(n: int) -> list[Letter]:
    rng = random.Random(n)
    return [make_letter(make_message(id=f"{n}-{m}", body=rng.randbytes(10_000))) for m in range(20)]


async def test_closed_while_it_works(postgresql_url: str, opens: OpensStore) -> None:
    store = opens(postgresql_url)
    await store.check()
    calls = [asyncio.create_task(store.letters.record([make_letter()])) for _ in range(20)]
    await asyncio.sleep(0)
    await store.aclose()
    for call in calls:
        with suppress(StoreUnavailable):
            await call
