"""Keys in order on PostgreSQL: where the policy says so, a message waits until the one before it of its key is done."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from datetime import timedelta

import pytest

from redrive import Message, Policy, Redrive, Transient, immediate
from redrive.errors import ConfigError
from redrive.limits import Fair, Limits
from redrive.model import Done, Holds, Release, Retry
from redrive.testing.builders import make_failure, make_message
from redrive.testing.waiting import until
from redrive.transports.base import Settlement
from redrive.worker import Worker
from tests.trouble.postgresql_queue import finish, ids, transport_on
from tests.trouble.postgresql_time import let_time_pass


async def test_only_the_first_of_each_key_is_handed_out(postgresql_url: str) -> None:
    async with transport_on(postgresql_url) as here, transport_on(postgresql_url) as there:
        for transport in (here, there):
            transport.keep_order("orders", Holds.KEY)
        await here.send([make_message(id=f"{key}{n}", key=key.encode()) for n in range(3) for key in "ab"])
        await here.send([make_message(id="free 1"), make_message(id="free 2")])
        first = await here.receive("orders", 10)
        assert ids(first) == ["a0", "b0", "free 1", "free 2"]
        a0, b0, *free = first
        await finish(here, [a0, *free])
        [a1] = await there.receive("orders", 10)
        assert a1.message.id == "a1", "one of a key goes to whichever worker, when the one before is done with"
        await here.settle([Settlement(b0, Retry(timedelta(hours=1)), make_failure())])
        await there.settle([Settlement(a1, Release())])
        [again] = await there.receive("orders", 10)
        assert again.message.id == "a1", "what waits for its retry holds up its key, and no other"
        await finish(there, [again])
        [a2] = await there.receive("orders", 10)
        await let_time_pass(postgresql_url, timedelta(hours=1))
        got = await here.receive("orders", 10)
        assert ids(got) == ["b0"] or set(ids(got)) == {"b0", "a2"}  # its lease has ended in that hour, too
        await finish(there, [a2])


async def test_a_worker_keeps_each_key_in_order_through_failures(postgresql_url: str) -> None:
    app = Redrive(transport=postgresql_url, store="memory://")
    seen: dict[bytes, list[int]] = defaultdict(list)

    @app.handler("orders", policy=Policy(attempts=3, backoff=immediate(), holds="key"), concurrency=8)
    async def handle(number: int, message: Message) -> None:
        await asyncio.sleep(0)
        if number % 3 == 1 and message.attempt == 1:
            raise Transient("once")
        assert message.key is not None
        seen[message.key].append(number)

    async with app:
        worker = Worker(app, upkeep=False)
        running = asyncio.create_task(worker.run())
        for number in range(60):
            await app.send("orders", number, key=f"k{number % 4}")
        await until(lambda: sum(map(len, seen.values())) == 60, what="all are handled")
        worker.stop()
        await running
    assert all(numbers == sorted(numbers) for numbers in seen.values())


async def test_without_it_a_key_holds_up_nothing(postgresql_url: str) -> None:
    async with transport_on(postgresql_url) as transport:
        await transport.send([make_message(id=f"{n}", key=b"same") for n in range(3)])
        got = await transport.receive("orders", 10)
        assert ids(got) == ["0", "1", "2"]
        assert await transport.settle([Settlement(item, Done()) for item in got]) == []


async def test_what_cannot_be_kept_is_refused(postgresql_url: str) -> None:
    async with transport_on(postgresql_url) as transport:
        with pytest.raises(ConfigError, match="holds='key'"):
            transport.keep_order("orders", Holds.PARTITION)
        transport.limit("orders", Limits(fair=Fair()))
        with pytest.raises(ConfigError, match="exclude each other"):
            transport.keep_order("orders", Holds.KEY)
