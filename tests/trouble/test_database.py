"""The file is locked, the disk is full, the file is none of ours, or two processes want it at once."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest

import redrive.drivers.sqlite.database
from redrive import Policy
from redrive.clock import SystemClock
from redrive.errors import ConfigError, StoreUnavailable, TransportUnavailable, Unavailable
from redrive.forensics.query import Query
from redrive.stores.sqlite import SqliteStore
from redrive.telemetry.events import BackendDown, BackendUp
from redrive.testing.builders import make_letter, make_message
from redrive.testing.waiting import until
from redrive.transports.base import ACCEPTED
from redrive.transports.sqlite import SqliteTransport
from tests.trouble.helpers import Told, letters, make_app, start, until_empty, url_in, working

HOLDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.readline()
connection.execute("ROLLBACK")
print("free", flush=True)
"""


async def test_a_database_locked_by_another_process_slows_us_down_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redrive.drivers.sqlite.database, "_BUSY_SECONDS", 0.1)
    app = make_app(tmp_path, concurrency=4, batch=10)
    told, handled, locked = Told(app), Counter[int](), asyncio.Event()

    @app.handler("orders", policy=Policy(attempts=1))
    async def handle(body: int) -> None:
        handled[body] += 1
        if body >= 40:
            await locked.wait()
        if body % 10 == 0:
            raise ValueError("every tenth")

    async with app:
        await app.send_messages([app.message("orders", number) for number in range(100)])
        async with working(app, upkeep=True):
            await until(lambda: handled.total() > 40)
            holder = await start(HOLDER, str(tmp_path / "redrive.db"), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            assert holder.stdout is not None
            assert holder.stdin is not None
            assert await holder.stdout.readline() == b"held\n"
            locked.set()
            await until(lambda: len(told.of(BackendDown)) >= 2, what="it was reported, again and again")
            with pytest.raises(TransportUnavailable, match="locked"):
                await app.send("orders", 100)
            holder.stdin.write(b"\n")
            assert await holder.wait() == 0
            await until_empty(app)
        buried = await letters(app)
    assert "locked" in told.of(BackendDown)[0].why
    assert told.of(BackendUp)
    assert handled == Counter(range(100)), "what was done twice, or never"
    assert sorted(int(one.message.body) for one in buried) == list(range(0, 100, 10))


async def test_a_full_disk_keeps_what_was_accepted_and_work_goes_on_when_there_is_room(tmp_path: Path) -> None:
    app = make_app(tmp_path, batch=10)
    told, handled = Told(app), Counter[str]()

    @app.handler("orders", policy=Policy(attempts=1))
    async def handle(body: bytes) -> None:
        raise ValueError(body[:20].decode())

    async with app:
        bodies = [b"%06d" % number * 500 for number in range(20)]
        await app.send_messages([app.message("orders", body) for body in bodies])
        await _limit_pages(app.transport(), grow=0)
        with pytest.raises(TransportUnavailable, match=r"disk is full.*make room"):
            await app.send("orders", b"x" * 1_000_000)
        with pytest.raises(StoreUnavailable, match="disk is full"):
            await app.store.letters.record([make_letter(make_message(body=b"x" * 1_000_000))])
        async with working(app):
            await until(lambda: any("disk is full" in one.why for one in told.of(BackendDown)), what="it was reported")
            await _limit_pages(app.transport(), grow=1 << 30)
            await until_empty(app)
        found = await letters(app)
    assert handled == Counter()
    bodies_found = sorted(one.message.body for one in found)
    assert [body for body in bodies_found if not body.startswith(b"x")] == sorted(bodies)
    assert {one.message.attempt for one in found} == {1}


async def test_several_writes_that_fail_together_all_say_why(tmp_path: Path) -> None:
    transport = SqliteTransport(url_in(tmp_path), clock=_clock(), lease=timedelta(seconds=30))
    await _limit_pages(transport, grow=0)
    sends = [transport.send([make_message(body=b"x" * 500_000)]) for _ in range(20)]
    results = await asyncio.gather(*sends, return_exceptions=True)
    assert all(isinstance(one, TransportUnavailable) and "disk is full" in str(one) for one in results), results
    await _limit_pages(transport, grow=1 << 30)
    await transport.send([make_message()])
    assert (await transport.depths())["orders"].ready == 1
    await transport.aclose()


async def test_one_write_that_cannot_be_made_does_not_take_the_others_with_it(tmp_path: Path) -> None:
    transport = SqliteTransport(url_in(tmp_path), clock=_clock(), lease=timedelta(seconds=30))
    sends = [transport.send([make_message(priority=1 << 70 if n % 5 == 0 else 0)]) for n in range(20)]
    results = await asyncio.gather(*sends, return_exceptions=True)
    assert sum(result == [ACCEPTED] for result in results) == 16
    assert (await transport.depths())["orders"].ready == 16
    await transport.aclose()


WORKER = """
import os, sys
from datetime import timedelta
from redrive import Policy, Redrive, immediate
from redrive.config.settings import Settings

url, done = sys.argv[1:]
app = Redrive(transport=url, settings=Settings(concurrency=4, batch=10))

@app.handler("orders", policy=Policy(attempts=2, backoff=immediate()))
async def handle(body: int) -> None:
    with open(done, "a") as file:
        file.write(f"{os.getpid()} {body}\\n")
    if body % 25 == 0:
        raise ConnectionError("twice")

app.run()
"""


async def test_two_workers_on_one_file_handle_every_message_once(tmp_path: Path) -> None:
    app, done = make_app(tmp_path), tmp_path / "done"
    app.declare("orders")
    async with app:
        workers = [
            await start(WORKER, url_in(tmp_path), str(done), stderr=subprocess.PIPE, stdout=subprocess.PIPE)
            for _ in range(2)
        ]
        sent, at_work = 0, set[str]()
        while sent < 400 or len(at_work) < 2:
            await app.send_messages([app.message("orders", sent + number) for number in range(20)])
            sent += 20
            await until_empty(app)
            at_work = {line.split()[0] for line in done.read_text().splitlines()}
        for worker in workers:
            worker.terminate()
        outputs = [await asyncio.wait_for(worker.communicate(), 30) for worker in workers]
        buried = await letters(app)
    assert [worker.returncode for worker in workers] == [0, 0]
    for _, errors in outputs:
        assert b"Traceback" not in errors
        assert b"unavailable" not in errors
    expected = Counter({str(number): 2 if number % 25 == 0 else 1 for number in range(sent)})
    assert Counter(line.split()[1] for line in done.read_text().splitlines()) == expected
    assert sorted(int(one.message.body) for one in buried) == list(range(0, sent, 25))


OPENER = """
import asyncio, sys
from datetime import timedelta
from redrive.clock import SystemClock
from redrive.testing.builders import make_message
from redrive.transports.sqlite import SqliteTransport

async def main():
    print("ready", flush=True)
    sys.stdin.readline()
    transport = SqliteTransport(sys.argv[1], clock=SystemClock(), lease=timedelta(seconds=30))
    await transport.send([make_message(id=sys.argv[2])])
    await transport.aclose()

asyncio.run(main())
"""


async def test_processes_that_make_a_new_file_at_the_same_time_do_not_get_in_each_others_way(tmp_path: Path) -> None:
    processes = [
        await start(OPENER, url_in(tmp_path), str(number), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for number in range(6)
    ]
    for process in processes:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"\n")
    for process in processes:
        await asyncio.wait_for(process.communicate(), 60)
    assert [process.returncode for process in processes] == [0] * 6
    app = make_app(tmp_path)
    async with app:
        assert (await app.transport().depths())["orders"].ready == 6


async def test_files_that_are_not_ours_are_left_alone_and_say_what_to_do(tmp_path: Path) -> None:
    no_database = tmp_path / "notes.txt"
    no_database.write_text("Dear diary, " * 100)
    with pytest.raises(StoreUnavailable, match="point `store` at another file"):
        SqliteStore(f"sqlite:///{no_database}")
    assert no_database.read_text() == "Dear diary, " * 100
    with pytest.raises(Unavailable, match="does its directory exist"):
        SqliteStore(f"sqlite:///{tmp_path}/no/such/directory.db")
    newer = tmp_path / "newer.db"
    connection = sqlite3.connect(newer)
    connection.execute("PRAGMA user_version=99")
    connection.close()
    with pytest.raises(ConfigError, match="newer Redrive"):
        SqliteStore(f"sqlite:///{newer}")


async def test_who_uses_what_was_closed_is_told_so_and_does_not_wait_forever(tmp_path: Path) -> None:
    transport = SqliteTransport(url_in(tmp_path), clock=_clock(), lease=timedelta(seconds=30))
    store = SqliteStore(url_in(tmp_path))
    await transport.aclose()
    assert await store.letters.count(Query()) == 0, "the one's end is not the other's"
    await store.aclose()
    with pytest.raises(TransportUnavailable, match="closed"):
        await asyncio.wait_for(transport.send([make_message()]), 10)
    with pytest.raises(StoreUnavailable, match="closed"):
        await asyncio.wait_for(store.letters.count(Query()), 10)


def _clock() -> SystemClock:
    return SystemClock()


async def _limit_pages(transport: object, *, grow: int) -> None:
    """As if the disk had room for so many pages more: SQLite answers as it does on a full one."""
    assert isinstance(transport, SqliteTransport)

    def limit(connection: sqlite3.Connection) -> int:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        (most,) = connection.execute(f"PRAGMA max_page_count={pages + grow}").fetchone()
        return int(most)

    await transport._database.write(limit)
