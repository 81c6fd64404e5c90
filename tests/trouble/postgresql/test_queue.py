"""A queue in a PostgreSQL that is killed, cut off, read-only, or set up strangely: what was accepted is there."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from redrive.cli import main
from redrive.clock import SystemClock
from redrive.errors import ConfigError, TransportUnavailable
from redrive.model import Done, Message
from redrive.testing.builders import make_message
from redrive.testing.clock import START
from redrive.transports.base import Settlement
from redrive.transports.postgresql import PostgresqlTransport
from tests.servers.fixtures import StartsServer
from tests.servers.postgresql import PgBouncer, PostgreSQL, Standby
from tests.servers.toxiproxy import Toxiproxy
from tests.trouble.postgresql_queue import ids, transport_on
from tests.trouble.postgresql_time import let_time_pass

IMPATIENT = "timeout=3&connect_timeout=2"


async def _sent(transport: PostgresqlTransport, messages: Sequence[Message]) -> None:
    """Sent again and again until it is accepted: an id that is queued stays one message."""
    while True:
        with suppress(TransportUnavailable):
            await transport.send(messages)
            return
        await asyncio.sleep(0.01)


async def _drained(transport: PostgresqlTransport, number: int) -> Counter[str]:
    """Received and settled so often that nothing is left; how often each was."""
    seen: Counter[str] = Counter()
    while len(seen) < number:
        with suppress(TransportUnavailable):
            got = await asyncio.wait_for(transport.receive("orders", 100), 60)
            seen.update(ids(got))
            await transport.settle([Settlement(item, Done()) for item in got])
    return seen


@pytest.mark.parametrize("bounced", [False, True], ids=["straight", "through PgBouncer"])
async def test_killed_and_restarted_under_load(start_server: StartsServer, bounced: bool) -> None:
    server = start_server(PostgreSQL)
    url = f"{server.url}?{IMPATIENT}"
    if bounced:
        url = f"{start_server(lambda: PgBouncer(server, lines=('server_login_retry = 0',))).url}?{IMPATIENT}"
    sent = [[make_message(id=f"{batch}-{n}") for n in range(150 if batch % 2 else 20)] for batch in range(30)]
    async with transport_on(url, lease=timedelta(seconds=2)) as sender, transport_on(url) as receiver:
        await sender.send([make_message(id="first")])
        draining = asyncio.ensure_future(_drained(receiver, 1 + sum(map(len, sent))))
        for number, batch in enumerate(sent):
            sending = asyncio.ensure_future(_sent(sender, batch))
            if number in (7, 20):
                await asyncio.sleep(0.005)
                server.kill9()
                server.start()
                await let_time_pass(server.url, timedelta(hours=1))  # what was leased then comes back
            await asyncio.wait_for(sending, 60)
        seen = await asyncio.wait_for(draining, 60)
    assert set(seen) == {"first", *(message.id for batch in sent for message in batch)}


async def test_a_connection_cut_in_the_middle_of_a_copy(
    toxiproxy_server: Toxiproxy, postgresql_server: PostgreSQL, postgresql_url: str
) -> None:
    proxy = toxiproxy_server.proxy(postgresql_server.address)
    url = postgresql_url.replace(postgresql_server.address, proxy.address)
    messages = [make_message(id=f"{n}", body=b"x" * 1000) for n in range(500)]
    async with transport_on(f"{url}?{IMPATIENT}") as cut, transport_on(postgresql_url) as transport:
        await cut.send([make_message(id="first")])
        proxy.add("limit_data", stream="upstream", bytes=100_000)
        with pytest.raises(TransportUnavailable):
            await cut.send(messages)
        assert (await transport.depths())["orders"].total == 1, "a part of it was taken"
        proxy.remove("limit_data")
        await _sent(cut, messages)
        assert (await transport.depths())["orders"].total == 501


async def test_sends_that_cross_each_other(postgresql_url: str) -> None:
    """The same ids in opposite orders, by one statement and by COPY: deadlocks are run again, an id is one message."""
    async with transport_on(postgresql_url) as one, transport_on(postgresql_url) as other:
        messages = [make_message(id=f"{n:04}") for n in range(300)]
        orders = [messages, messages[::-1], messages[:50], messages[49::-1]] * 3
        await asyncio.gather(*((one, other)[n % 2].send(some) for n, some in enumerate(orders)))
        assert (await one.depths())["orders"].total == 300


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
async def test_whatever_the_default_isolation_is(postgresql_url: str, isolation: str) -> None:
    level = isolation.replace(" ", "%5C%20")
    url = f"{postgresql_url}?options=-c%20default_transaction_isolation%3D{level}"
    async with transport_on(url) as one, transport_on(url) as other:
        await one.send([make_message(id=f"{n}") for n in range(200)])
        seen: Counter[str] = Counter()

        async def consume(transport: PostgresqlTransport) -> None:
            while sum(seen.values()) < 200:
                got = await transport.receive("orders", 20)
                await transport.settle([Settlement(item, Done()) for item in got])
                seen.update(ids(got))

        tasks = [asyncio.ensure_future(consume(transport)) for transport in (one, other, one, other)]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED, timeout=60)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert seen == {f"{n}": 1 for n in range(200)}


async def test_statement_timeout_of_the_server(postgresql_url: str) -> None:
    async with transport_on(postgresql_url) as transport:
        await transport.send([make_message()])
        async with transport_on(f"{postgresql_url}?options=-c%20statement_timeout%3D1") as slow:
            with pytest.raises(TransportUnavailable, match="raise its statement_timeout"):
                await slow.send([make_message(body=b"x" * 4_000_000) for _ in range(5)])
        assert (await transport.depths())["orders"].total == 1


async def test_read_only_and_wrong_rights_are_said(postgresql_server: PostgreSQL, postgresql_url: str) -> None:
    async with transport_on(postgresql_url) as transport:
        await transport.send([make_message()])
    async with transport_on(f"{postgresql_url}?options=-c%20default_transaction_read_only%3Don") as reading:
        for asking in (reading.send([make_message()]), reading.check()):
            with pytest.raises(TransportUnavailable, match="takes no writes"):
                await asking
    name = postgresql_url.rpartition("/")[2]
    postgresql_server.sql("DROP ROLE IF EXISTS poor; CREATE ROLE poor LOGIN")
    async with transport_on(postgresql_server.url_of(name, "poor")) as poor:
        with pytest.raises((TransportUnavailable, ConfigError), match=r"right|GRANT"):
            await poor.send([make_message()])


async def test_a_standby_is_refused(start_server: StartsServer) -> None:
    server = start_server(PostgreSQL)
    async with transport_on(server.url) as transport:
        await transport.send([make_message()])
    standby = start_server(lambda: Standby(server))
    async with transport_on(standby.url) as reading:
        with pytest.raises((TransportUnavailable, ConfigError), match=r"standby|takes no writes"):
            await reading.check()


async def test_tables_from_the_future(postgresql_url: str) -> None:
    async with transport_on(postgresql_url) as transport:
        await transport.send([make_message()])
    async with await psycopg.AsyncConnection.connect(postgresql_url) as connection:
        await connection.execute("INSERT INTO redrive.migrations (component, version) VALUES ('queue', 999)")
    async with transport_on(postgresql_url) as transport:
        with pytest.raises(ConfigError, match=r"version 999 of the queue's tables.*upgrade Redrive"):
            await transport.send([make_message()])


async def test_tables_that_somebody_drops_are_made_again(postgresql_url: str) -> None:
    async with transport_on(postgresql_url) as transport:
        await transport.send([make_message(id="gone")])
        async with await psycopg.AsyncConnection.connect(postgresql_url) as connection:
            await connection.execute("DROP SCHEMA redrive CASCADE")
        with pytest.raises(TransportUnavailable, match="made again with the next call"):
            await transport.send([make_message(id="lost")])
        await transport.send([make_message(id="new")])
        assert ids(await transport.receive("orders", 10)) == ["new"]


async def test_bodies_of_ten_megabytes(postgresql_url: str) -> None:
    async with transport_on(postgresql_url) as transport:
        large = [make_message(id=f"{n}", body=bytes([n]) * (10 << 20)) for n in range(4)]
        await transport.send(large)
        got = await transport.receive("orders", 10)
        assert [item.message.body for item in got] == [message.body for message in large]
        assert await transport.settle([Settlement(item, Done()) for item in got]) == []


async def test_many_at_once_arrive_as_few_do(postgresql_url: str) -> None:
    """Many are copied in, few are inserted: with everything that a message can have, it makes no difference."""
    whole = {
        "headers": (("h", b"\x00\xff"), ("h", b"")),
        "key": b"\x00k",
        "tenant": "t\x00ü",
        "correlation_id": "c",
        "expires_at": START + timedelta(days=9),
        "origin": "elsewhere",
        "attempt": 3,
        "priority": -7,
    }
    later = SystemClock().now() + timedelta(minutes=10)
    plain = [make_message(id=f"plain \x00{n:03}", body=b"\x00" * n) for n in range(150)]
    full = [make_message(id=f"full {n:03}", body=b"x", **whole) for n in range(150)]
    delayed = [make_message(id=f"later {n:03}", not_before=later) for n in range(150)]
    async with transport_on(postgresql_url) as transport:
        await transport.send([*plain, *full, *delayed])
        got = [item.message for item in await transport.receive("orders", 1000)]
        assert got == [*full, *plain]
        assert (await transport.depths())["orders"].delayed == 150
        await let_time_pass(postgresql_url, timedelta(minutes=10))
        again = [item.message for item in await transport.receive("orders", 1000)]
        assert [message for message in again if message.id.startswith("later")] == [
            replace(message, not_before=None) for message in delayed
        ]


async def test_a_row_that_somebody_broke_is_marked_and_holds_up_no_other(postgresql_url: str) -> None:
    async with transport_on(postgresql_url) as transport:
        await transport.send([make_message(id=f"{n}", tenant="t") for n in range(3)])
        async with await psycopg.AsyncConnection.connect(postgresql_url) as connection:
            await connection.execute("UPDATE redrive.queue SET rest = '\\xc1' WHERE id = '1'")
        got = await transport.receive("orders", 10)
        assert [bool(item.unreadable) for item in got] == [False, True, False]
        assert await transport.settle([Settlement(item, Done()) for item in got]) == []


async def test_a_settlement_whose_answer_was_lost_is_no_lost_lease(
    toxiproxy_server: Toxiproxy, postgresql_server: PostgreSQL, postgresql_url: str
) -> None:
    proxy = toxiproxy_server.proxy(postgresql_server.address)
    url = postgresql_url.replace(postgresql_server.address, proxy.address)
    async with transport_on(f"{url}?timeout=2&connect_timeout=2") as transport:
        await transport.send([make_message(id=f"{n}") for n in range(3)])
        got = await transport.receive("orders", 10)
        settlements = [Settlement(item, Done()) for item in got]
        proxy.add("timeout", stream="downstream", timeout=0)
        with pytest.raises(TransportUnavailable):
            await transport.settle(settlements)
        proxy.remove("timeout")
        assert await transport.settle(settlements) == []
        assert await transport.depths() == {}


def test_the_commands_work_on_it(postgresql_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REDRIVE_TRANSPORTS_DEFAULT", postgresql_url)
    monkeypatch.setenv("REDRIVE_STORE", f"sqlite:///{tmp_path / 'letters.db'}")

    def run(*words: str) -> str:
        result = CliRunner().invoke(main, list(words))
        assert result.exit_code == 0, result.output
        return result.output

    run("send", "orders", '{"n": 1}', "--delay", "1h")
    run("send", "orders", '{"n": 1}')
    assert "orders is paused" in run("pause", "orders", "--force")
    assert "delayed" in run("queue", "orders")
    assert "orders goes on" in run("resume", "orders")
    assert "answers" in run("doctor")
    assert '"delayed": 1' in run("stats", "--json")
    assert '"ready": 1' in run("stats", "--json")
