"""Input that nobody asked for: too large, not text, not decodable, for nobody."""

from __future__ import annotations

import asyncio
import sqlite3
from datetime import timedelta
from pathlib import Path

import pytest

from redrive import Message, Policy
from redrive.clock import SystemClock
from redrive.errors import MessageTooLarge, UnknownSource
from redrive.forensics.query import Query
from redrive.model import Category, Reason, Stage
from redrive.service import Service
from redrive.telemetry.events import Event, LetterRefused
from redrive.testing.builders import make_message
from redrive.testing.waiting import until
from redrive.transports.memory import MemoryTransport
from tests.trouble.helpers import depth, letters, make_app, until_empty, until_letters, url_in, working

MB = 1 << 20
EVERY_BYTE = bytes(range(256))


async def test_a_body_of_50_mb_is_refused_when_it_is_sent(tmp_path: Path) -> None:
    app = make_app(tmp_path)
    app.declare("orders")
    async with app:
        with pytest.raises(MessageTooLarge, match=r"52,428,800 bytes, over the limit of 16,777,216.*body_limit"):
            await app.send("orders", b"x" * 50 * MB)
        assert await depth(app) == 0


async def test_a_body_of_50_mb_that_arrives_anyway_is_buried_as_it_is(tmp_path: Path) -> None:
    app = make_app(tmp_path)
    handled: list[bytes] = []

    @app.handler("orders")
    async def handle(body: bytes) -> None:
        handled.append(body)

    body = EVERY_BYTE * (50 * MB // 256)
    async with app, working(app):
        await app.transport().send([make_message(id="large", body=body), make_message(id="small", body=b"x")])
        await until_empty(app)
        [letter] = await letters(app)
    assert handled == [b"x"]
    assert (letter.reason, letter.category, letter.last.stage) == (
        Reason.TOO_LARGE,
        Category.VALIDATION,
        Stage.DELIVERY,
    )
    assert "body_limit" in letter.last.message
    assert letter.message.body == body


async def test_headers_that_are_no_text_reach_the_handler_and_the_letter(tmp_path: Path) -> None:
    app = make_app(tmp_path)
    seen: list[Message] = []

    @app.handler("orders", policy=Policy(attempts=1))
    async def handle(body: bytes, message: Message) -> None:
        seen.append(message)
        raise ValueError("after a look")

    headers = {"x-raw": EVERY_BYTE, "redrive-letter": b"\xff", "redrive-retries": b"\xff9", "redrive-replay": b"\xfe"}
    async with app, working(app):
        id = await app.send("orders", b"", headers={**headers, "redrive-after": b"\xff\n\xfe"}, key=EVERY_BYTE)
        await until_empty(app)
        [letter] = await letters(app)
        shown = await Service(app).letter(letter.id)
    assert seen[0].header("x-raw") == EVERY_BYTE
    assert dict(letter.message.headers)["x-raw"] == EVERY_BYTE
    assert (letter.message.id, letter.message.key) == (id, EVERY_BYTE)
    assert shown.id == letter.id


async def test_a_body_that_does_not_decode_is_buried_at_once_bytes_intact(tmp_path: Path) -> None:
    app = make_app(tmp_path)
    bodies = [b"", b"\xff\xfe", b"{", b"[1, 2]", b"null", EVERY_BYTE, b"[" * 100_000, b'{"n": NaN}']

    @app.handler("orders", policy=Policy(attempts=5))
    async def handle(body: dict[str, int]) -> None:
        raise AssertionError("nothing of this is a dict of numbers")

    async with app, working(app):
        await app.send_messages([app.message("orders", body) for body in bodies])
        await until_empty(app)
        buried = await letters(app)
    assert sorted(one.message.body for one in buried) == sorted(bodies)
    assert {(one.reason, one.category, len(one.failures)) for one in buried} == {
        (Reason.UNDECODABLE, Category.VALIDATION, 1)
    }


async def test_a_source_that_nobody_knows(tmp_path: Path) -> None:
    app = make_app(tmp_path)

    @app.handler("orders")
    async def handle(body: bytes) -> None: ...

    async with app:
        with pytest.raises(UnknownSource, match=r"did you mean 'orders'.*app\.declare"):
            await app.send("order", b"")
        app.declare("elsewhere")
        await app.send("elsewhere", b"")
        with pytest.raises(UnknownSource, match="did you mean 'orders'"):
            await Service(app).letters(Query(sources=("ordres",)))


async def test_messages_of_a_source_without_a_handler_stay_where_they_are(tmp_path: Path) -> None:
    app = make_app(tmp_path)
    app.declare("others'")
    handled = asyncio.Event()

    @app.handler("orders")
    async def handle(body: bytes) -> None:
        handled.set()

    async with app, working(app):
        await app.send("others'", b"mine")
        await app.send("orders", b"")
        await asyncio.wait_for(handled.wait(), 120)
        assert (await app.transport().depths())["others'"].ready == 1


async def test_a_letter_that_the_store_will_not_have_is_kept_in_the_queue_and_holds_up_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A priority that no integer of SQLite holds: a broker may carry what a database cannot."""
    clock = SystemClock()
    queue = MemoryTransport(clock=clock, lease=timedelta(seconds=30))
    app = make_app(tmp_path, transport=queue, store=url_in(tmp_path))

    @app.handler("orders", policy=Policy(attempts=1))
    async def handle(body: bytes) -> None:
        raise ValueError("no")

    told: list[Event] = []
    app.events.subscribe(told.append)
    async with app, working(app):
        odd = make_message(id="odd", priority=2**70)
        await app.transport().send([odd, *(make_message(id=f"even-{number}") for number in range(5))])
        assert len(await until_letters(app, 5)) == 5
        await until(lambda: "refuses the letter of message 'odd'" in caplog.text, what="it is said")
        await until(lambda: any(isinstance(one, LetterRefused) for one in told), what="it is counted")
        assert await depth(app) == 1


async def test_a_row_that_somebody_broke_is_a_letter_and_the_next_one_goes_on(tmp_path: Path) -> None:
    app = make_app(tmp_path)
    handled: list[str] = []

    @app.handler("orders")
    async def handle(body: bytes, message: Message) -> None:
        handled.append(message.id)

    async with app:
        sent = [make_message(id=name, body=b"x", headers=(("a", b"b"),)) for name in ("broken", "good")]
        await app.transport().send(sent)
        with sqlite3.connect(tmp_path / "redrive.db") as connection:
            connection.execute("UPDATE queue SET rest = ? WHERE id = 'broken'", (b"\x91" * 3000,))
        async with working(app):
            await until_empty(app)
        [letter] = await letters(app)
    assert handled == ["good"]
    assert (letter.message.id, letter.message.body, letter.reason) == ("broken", b"x", Reason.UNDECODABLE)
    assert (letter.category, letter.last.stage) == (Category.VALIDATION, Stage.DELIVERY)
    assert "unpack" in letter.last.message


async def test_an_error_that_is_hard_to_tell_is_told_all_the_same(tmp_path: Path) -> None:
    """Chains, groups and arguments without an end: the letter has what can be said, and the next one is handled."""
    app = make_app(tmp_path)
    handled: list[int] = []

    def deep_group(levels: int) -> BaseException:
        error: Exception = ValueError("at the bottom")
        for _ in range(levels):
            error = ExceptionGroup("g", [error])
        return error

    def long_chain(links: int) -> BaseException:
        first = error = ValueError("last")
        for _ in range(links):
            error.__cause__ = error = ValueError("x")
        return first

    def deep_argument() -> BaseException:
        value: list[object] = []
        for _ in range(100_000):
            value = [value]
        return ValueError(value)

    class Rude(Exception):
        def __str__(self) -> str:
            raise RecursionError("no")

        __repr__ = __str__

    errors = [deep_group(3000), long_chain(50_000), deep_argument(), Rude(), ValueError("\ud800" * 10_000)]

    @app.handler("orders", policy=Policy(attempts=1))
    async def handle(body: int) -> None:
        if body < len(errors):
            raise errors[body]
        handled.append(body)

    async with app, working(app):
        for number in range(len(errors) + 1):
            await app.send("orders", number)
        await until_empty(app)
        found = await letters(app)
    assert handled == [len(errors)]
    assert sorted(letter.message.body for letter in found) == [b"%d" % number for number in range(len(errors))]
    assert all(len(letter.last.stack) <= 32_000 and len(letter.last.message) <= 50_000 for letter in found)
