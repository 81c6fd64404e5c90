"""Kafka: records that nobody expects, topics that are missing or too small, the dead-letter topic, and the way back."""

from __future__ import annotations

import asyncio
from datetime import datetime
from pathlib import Path

import pytest

from redrive import Policy, Redrive
from redrive.clock import moment
from redrive.errors import UsageError
from redrive.forensics.query import Query
from redrive.model import Reason, State
from redrive.service import Service
from redrive.stores.base import EntryStatus
from redrive.telemetry.events import BackendDown, BackendUp
from redrive.testing.waiting import until
from redrive.transports.kafka.options import options_of
from redrive.transports.kafka.wire import TOMBSTONE
from redrive.transports.kafka.writer import Parcel, TooLarge, Writer
from tests.actors import acting
from tests.servers.kafka import Kafka
from tests.trouble.helpers import Told, letters, until_letters, working
from tests.trouble.kafka import Topic


async def replay_all(app: Redrive) -> str:
    """Its id."""
    service = Service(app)
    replay = await service.replay(Query(), every=True, actor=acting("test"))
    await service.run_replay(replay.id)
    return replay.id


def burying_all(topic: Topic, dlq: str, directory: Path) -> Redrive:
    """On its DLQ topic alone, whatever comes."""
    app = topic.app(directory, url={"dlq": dlq, "dlq_only": "yes"})

    @app.handler(topic.name, policy=Policy(attempts=1))
    async def handle(body: bytes) -> None:
        raise ValueError("never")

    return app


# -- records that nobody expects -------------------------------------------------------------------------------------


async def test_a_tombstone_is_buried_as_it_is_and_replayed_as_a_tombstone(kafka_server: Kafka, tmp_path: Path) -> None:
    topic = Topic(kafka_server)
    topic.produce((b"gone", None), headers=[("raw", b"\xff\x00"), ("raw", b"")])
    app = topic.app(tmp_path)

    @app.handler(topic.name)
    async def handle(body: dict[str, int]) -> None: ...

    async with app, working(app):
        [letter] = await until_letters(app, 1)
        await replay_all(app)
        await until(lambda: len(topic.records()) == 2, what="it was sent back")
    assert (letter.reason, letter.message.body, letter.message.key) == (Reason.UNDECODABLE, b"", b"gone")
    assert letter.message.header(TOMBSTONE) is not None
    old, new = topic.records()
    assert (new.value(), new.key(), new.partition()) == (None, b"gone", old.partition())
    assert [pair for pair in new.headers() if pair[0] == "raw"] == old.headers()


async def test_headers_that_lie_hold_nothing_back(kafka_server: Kafka, tmp_path: Path) -> None:
    """Strangers can write our headers, too: a wait of a thousand years, a billion attempts, JSON without an end."""
    topic = Topic(kafka_server, partitions=1)
    lies = (b'{"id":"a","at":1,"due":60000000000000000}', b'{"id":"b","at":1,"attempt":2000000000}')
    for lie in (*lies, b'{"id":"c","at":1,"z":' + b"[" * 2000):
        topic.produce((b"k", b"1"), headers=[("redrive-message", lie), ("redrive-failures", b"\x91" * 2000)])
    topic.produce((b"k", b"2"))
    app = topic.app(tmp_path)
    handled: list[int] = []

    @app.handler(topic.name)
    async def handle(body: int) -> None:
        handled.append(body)

    async with app, working(app):
        await until(lambda: 2 in handled, what="what is behind them is handled")
        await topic.until_committed(4)
        [letter] = await letters(app)
    assert sorted(handled) == [1, 1, 2]
    assert (letter.message.id, letter.reason) == ("b", Reason.CRASHED)


async def test_headers_that_make_our_own_reading_fail_are_a_letter_with_all_of_them(
    kafka_server: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(microseconds: int) -> datetime:
        if microseconds == 77:
            raise RuntimeError("a bug of ours")
        return moment(microseconds)

    monkeypatch.setattr("redrive.transports.kafka.wire.moment", failing)
    topic = Topic(kafka_server, partitions=1)
    for body in (b"1", None):
        topic.produce((b"k", body), headers=[("theirs", b"x"), ("redrive-message", b'{"id":"a","at":77}')])
    topic.produce((b"k", b"2"))
    app = topic.app(tmp_path)
    handled: list[int] = []

    @app.handler(topic.name)
    async def handle(body: int) -> None:
        handled.append(body)

    async with app, working(app):
        await topic.until_committed(3)
        tombstone, letter = sorted(await letters(app), key=lambda letter: letter.message.body)
    assert handled == [2]
    assert tombstone.message.header(TOMBSTONE) is not None
    assert (letter.reason, letter.failures[-1].type) == (Reason.UNDECODABLE, "redrive.Unreadable")
    assert "its headers cannot be read: RuntimeError: a bug of ours" in letter.failures[-1].message
    assert (letter.message.body, letter.message.header("theirs")) == (b"1", b"x")


async def test_a_message_of_two_megabytes_is_handled_and_one_that_the_topic_refuses_says_so(
    kafka_server: Kafka, tmp_path: Path
) -> None:
    topic, small = Topic(kafka_server), Topic(kafka_server, most=1 << 20)
    large = b"x" * (2 << 20)
    app = topic.app(tmp_path)
    sizes: list[int] = []

    @app.handler(topic.name)
    async def handle(body: bytes) -> None:
        sizes.append(len(body))

    app.declare(small.name)
    async with app, working(app):
        await app.send(topic.name, large, key="k")
        await topic.until_committed(1)
        with pytest.raises(UsageError, match=r"2,097,152 bytes: raise its `max\.message\.bytes`"):
            await app.send(small.name, large, key="k")
    assert sizes == [len(large)]


async def test_a_topic_that_is_missing_is_named_and_read_when_it_is_there(kafka_server: Kafka, tmp_path: Path) -> None:
    topic = Topic(kafka_server, make=False)
    app = topic.app(tmp_path)
    told, handled = Told(app), list[bytes]()

    @app.handler(topic.name)
    async def handle(body: bytes) -> None:
        handled.append(body)

    async with app, working(app):
        missing = f"there is no topic '{topic.name}' on {topic.servers}: create it"
        await until(lambda: any(missing in one.why for one in told.of(BackendDown)), what="it says so")
        topic.make(topic.name)
        topic.produce((None, b"here"))
        await until(lambda: handled == [b"here"], what="it is read")
    assert told.of(BackendUp)


async def test_a_source_that_no_topic_can_be_called_is_refused(kafka_server: Kafka, tmp_path: Path) -> None:
    app = Topic(kafka_server, make=False).app(tmp_path)
    async with app:
        with pytest.raises(UsageError, match="is no name of a Kafka topic"):
            await app.send("no/topic", b"")


# -- the dead-letter topic -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("only", ["no", "yes"])
async def test_a_dead_message_is_on_the_dlq_topic_before_it_is_committed(
    kafka_server: Kafka, tmp_path: Path, only: str
) -> None:
    topic = Topic(kafka_server, partitions=1)
    dlq = f"{topic.name}.dlq"
    topic.produce((b"k", b"\xff not JSON"), headers=[("h", b"\x00")])
    app = topic.app(tmp_path, url={"dlq": dlq, "dlq_only": only})
    told = Told(app)

    @app.handler(topic.name)
    async def handle(body: dict[str, int]) -> None: ...

    async with app, working(app):
        await until(lambda: bool(told.of(BackendDown)), what="the topic is missing, and it says so")
        assert topic.committed() in ({}, {0: 0})
        assert await letters(app) == []
        topic.make(dlq)
        await topic.until_committed(1)
        stored = await letters(app)
    [record] = topic.records(dlq)
    headers = dict(record.headers())
    assert (record.key(), record.value(), headers["h"]) == (b"k", b"\xff not JSON", b"\x00")
    assert (headers["redrive-dlq-reason"], headers["redrive-dlq-attempts"]) == (b"undecodable", b"1")
    assert headers["redrive-dlq-origin"] == f"{topic.name}[0]@0".encode()
    assert len(stored) == (0 if only == "yes" else 1)


async def test_a_letter_too_large_for_the_dlq_topic_keeps_its_body_in_the_store_and_leaves_a_stub(
    kafka_server: Kafka, tmp_path: Path
) -> None:
    topic = Topic(kafka_server, partitions=1)
    dlq = f"{topic.name}.dlq"
    topic.make(dlq, most=1 << 20)
    topic.produce((b"k", b"x" * (2 << 20)), (b"k", b"small"), (b"key" * (1 << 19), b"its key is what is too large"))
    app = burying_all(topic, dlq, tmp_path)

    async with app, working(app):
        await topic.until_committed(3)
        stored = await letters(app)
    assert {len(letter.message.body) for letter in stored} == {2 << 20, 28}
    found = {dict(record.headers()).get("redrive-stub"): record.value() for record in topic.records(dlq)}
    assert found.pop(None) == b"small"
    assert found.keys() == {letter.id.encode() for letter in stored}


async def test_a_dlq_topic_that_does_not_even_take_a_stub_ends_no_worker(kafka_server: Kafka, tmp_path: Path) -> None:
    topic = Topic(kafka_server, partitions=1)
    dlq = f"{topic.name}.dlq"
    topic.make(dlq, most=100)
    topic.produce((b"k", b"1"), (b"k", b"2"))
    app = burying_all(topic, dlq, tmp_path)

    async with app, working(app):
        await topic.until_committed(2)
        assert sorted(letter.message.body for letter in await letters(app)) == [b"1", b"2"]
    assert topic.records(dlq) == []


async def test_what_is_beside_a_message_too_large_is_not_refused_with_it(kafka_server: Kafka, tmp_path: Path) -> None:
    """Brokers refuse whole batches: of one large message and small ones, or of small ones that are too many for one."""
    topic = Topic(kafka_server, partitions=1, most=20_000)
    writer = Writer(options_of(topic.url()))
    sizes = [100, 60_000, *[5_000] * 200]
    parcels = [Parcel(topic.name, b"x" * size, b"k", [], moment(0)) for size in sizes]
    try:
        errors = await writer.outcomes(parcels)
    finally:
        await writer.aclose()
    assert [(number, type(error)) for number, error in enumerate(errors) if error is not None] == [(1, TooLarge)]
    assert sorted(len(one.value()) for one in topic.records()) == sorted(size for size in sizes if size < 20_000)


# -- replay ----------------------------------------------------------------------------------------------------------


async def test_a_replay_goes_to_the_same_partition_with_the_same_key_and_headers_and_resolves_its_letter(
    kafka_server: Kafka, tmp_path: Path
) -> None:
    topic = Topic(kafka_server, partitions=6)
    topic.produce((b"key", b'{"n": 1}'), headers=[("x", b"1"), ("x", b"\xff")], partition=5)
    app = topic.app(tmp_path)
    mended = asyncio.Event()

    @app.handler(topic.name, policy=Policy(attempts=1))
    async def handle(body: dict[str, int]) -> None:
        if not mended.is_set():
            raise ValueError("broken")

    async with app, working(app):
        [letter] = await until_letters(app, 1)
        mended.set()
        await replay_all(app)
        query = Query(states=(State.RESOLVED,))
        await until(lambda: _one(app, query), what="it is resolved")
    old, new = topic.records()
    assert (new.key(), new.value(), new.partition()) == (old.key(), old.value(), 5)
    assert [pair for pair in new.headers() if pair[0] == "x"] == old.headers()
    assert letter.message.id == f"{topic.name}[5]@0"


async def test_a_letter_that_its_topic_does_not_take_back_is_skipped_with_its_reason_and_the_others_go(
    kafka_server: Kafka, tmp_path: Path
) -> None:
    """On its way back a message has headers that it had not before, and may be the one byte too large."""
    topic = Topic(kafka_server, partitions=1, most=20_000)
    for body in (b"1", b"2" * 19_850, b"3"):
        topic.produce((b"k", body))
    app = topic.app(tmp_path)
    mended = asyncio.Event()

    @app.handler(topic.name, policy=Policy(attempts=1))
    async def handle(body: bytes) -> None:
        if not mended.is_set():
            raise ValueError("broken")

    async with app, working(app):
        await until_letters(app, 3)
        mended.set()
        id = await replay_all(app)
        await topic.until_committed(5)
        [skipped], _ = await Service(app).replay_entries(id, status=EntryStatus.SKIPPED)
    assert skipped.note.startswith(f"topic {topic.name!r} refuses a message of 19,850 bytes")
    assert [record.value()[:1] for record in topic.records()] == [b"1", b"2", b"3", b"1", b"3"]


async def _one(app: Redrive, query: Query) -> bool:
    return bool(await app.store.letters.count(query))
