"""Dead-letter topics of Kafka, whoever wrote them, into a store and back to where they came from."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from msgspec.structs import replace

from redrive import Policy, Redrive, constant
from redrive.collect.collector import Collector
from redrive.collect.kafka import KafkaReader
from redrive.flow.signing import load_keys
from redrive.forensics.query import Query
from redrive.model import Letter, Reason, State
from redrive.service import Service
from redrive.stores.base import Letters
from redrive.telemetry.events import LetterRefused
from redrive.telemetry.metrics import Metrics
from redrive.testing.builders import make_failure, make_letter, make_message
from redrive.testing.clock import START
from redrive.transports.kafka.dlq import record_of
from tests.actors import acting
from tests.cli.world import Shell
from tests.servers.kafka import Kafka
from tests.trouble.helpers import Told, letters, working
from tests.trouble.kafka import Topic

MILLIS = 1_700_000_000_000


class Dlq:
    """A dead-letter topic, the topic it belongs to, and a store to collect into."""

    def __init__(self, server: Kafka, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(place)
        self.main, self.dead = Topic(server), Topic(server, partitions=2)
        self.shell = Shell(place)
        self.store = f"sqlite:///{place / 'redrive.db'}"
        self.url = f"kafka://{server.bootstrap}/{self.dead.name}?group={self.dead.group}"

    def collect(self, *more: str) -> Any:
        words = ("--store", self.store, "collect", self.url, "--source", self.main.name, *more, "--json")
        return json.loads(self.shell.process(*words).stdout)["collected"]

    def app(self) -> Redrive:
        return Redrive(transport=self.main.url(), store=self.store)

    async def letters(self) -> list[Letter]:
        async with self.app() as app:
            return await letters(app)

    async def replay(self) -> None:
        async with self.app() as app:
            app.declare(self.main.name)
            service = Service(app)
            await service.run_replay((await service.replay(Query(), every=True, actor=acting("test"))).id)


@pytest.fixture
def dlq(kafka_server: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dlq:
    return Dlq(kafka_server, tmp_path, monkeypatch)


async def test_springs_headers_are_understood_and_it_goes_back_as_it_was(dlq: Dlq) -> None:
    own: list[tuple[str, bytes | None]] = [("trace", b"\xff\x00"), ("__TypeId__", b"shop.Order")]
    said = [
        ("kafka_dlt-original-topic", dlq.main.name.encode()),
        ("kafka_dlt-original-partition", struct.pack(">i", 2)),
        ("kafka_dlt-original-offset", struct.pack(">q", 808_464_432)),  # its last four bytes look like digits
        ("kafka_dlt-original-timestamp", struct.pack(">q", MILLIS)),
        ("kafka_dlt-original-timestamp-type", b"CreateTime"),
        ("kafka_dlt-original-consumer-group", b"billing"),
        ("kafka_dlt-exception-fqcn", b"org.springframework.kafka.listener.ListenerExecutionFailedException"),
        ("kafka_dlt-exception-cause-fqcn", b"java.net.SocketTimeoutException"),
        ("kafka_dlt-exception-message", b"Read timed out"),
        ("kafka_dlt-exception-stacktrace", b"java.net.SocketTimeoutException: Read timed out\n\tat shop.Charge"),
    ]
    dlq.dead.produce((b"key", b"\xfe the value"), headers=[*own, *said])
    assert dlq.collect() == 1
    assert dlq.collect() == 0  # acknowledged
    (letter,) = await dlq.letters()
    place = f"{dlq.main.name}[2]@808464432"
    assert (letter.message.source, letter.message.id, letter.message.origin) == (dlq.main.name, place, place)
    assert (letter.message.key, letter.message.body) == (b"key", b"\xfe the value")
    assert letter.message.headers == tuple(own)
    assert (letter.last.type, letter.last.message) == ("java.net.SocketTimeoutException", "Read timed out")
    assert "at shop.Charge" in letter.last.stack
    (dead,) = dlq.dead.records()
    assert letter.message.enqueued_at == datetime.fromtimestamp(MILLIS / 1000, UTC), "when it was sent"
    assert letter.last.at == datetime.fromtimestamp(dead.timestamp()[1] / 1000, UTC), "when it failed"
    assert letter.last.worker == "billing"
    await dlq.replay()
    (back,) = dlq.main.records()
    assert (back.key(), back.value(), back.partition()) == (b"key", b"\xfe the value", 2)
    assert [pair for pair in back.headers() if not pair[0].startswith("redrive-")] == own


async def test_kafka_connects_headers_are_understood(dlq: Dlq) -> None:
    said = [
        ("__connect.errors.topic", dlq.main.name.encode()),
        ("__connect.errors.partition", b"1"),
        ("__connect.errors.offset", b"42"),
        ("__connect.errors.connector.name", b"orders-sink"),
        ("__connect.errors.task.id", b"0"),
        ("__connect.errors.stage", b"VALUE_CONVERTER"),
        ("__connect.errors.class.name", b"org.apache.kafka.connect.json.JsonConverter"),
        ("__connect.errors.exception.class.name", b"org.apache.kafka.connect.errors.DataException"),
        ("__connect.errors.exception.message", b"Converting byte[] failed"),
        ("__connect.errors.exception.stacktrace", None),
    ]
    dlq.dead.produce((None, b"{"), headers=said)
    assert dlq.collect() == 1
    (letter,) = await dlq.letters()
    assert letter.message.id == f"{dlq.main.name}[1]@42"
    assert letter.last.type == "org.apache.kafka.connect.errors.DataException"
    assert "Converting byte[] failed (stage VALUE_CONVERTER" in letter.last.message
    assert (letter.last.worker, letter.message.headers) == ("orders-sink-0", ())


async def test_a_value_with_dlq_metadata_is_understood(dlq: Dlq) -> None:
    said = {"original_error": "slow", "error_type": "TimeoutError", "retry_count": 3}
    said |= {"last_failure_timestamp": MILLIS, "dlq_published_at": MILLIS + 5}
    dlq.dead.produce((b"k", json.dumps({"ticket_id": "t-1", "n": 1, "dlq_metadata": said}).encode()))
    assert dlq.collect() == 1
    (letter,) = await dlq.letters()
    assert (letter.message.id, json.loads(letter.message.body)) == ("t-1", {"ticket_id": "t-1", "n": 1})
    assert (letter.last.type, letter.last.message, letter.last.attempt) == ("TimeoutError", "slow", 3)
    assert letter.created_at == datetime.fromtimestamp((MILLIS + 5) / 1000, UTC)


async def test_redrives_own_graves_come_back_whole(dlq: Dlq, tmp_path: Path) -> None:
    app = dlq.main.app(tmp_path, url={"dlq": dlq.dead.name, "dlq_only": "yes"}, store=dlq.store)

    @app.handler(dlq.main.name, policy=Policy(attempts=2, backoff=constant("5ms")))
    async def handle(body: int) -> None:
        raise ConnectionError("no")

    async with app, working(app):
        await app.send(dlq.main.name, 7, id="m-7", key="k", headers={"trace": "1"}, tenant="acme")
        await dlq.main.until_committed(1)
    assert dlq.collect() == 1
    (letter,) = await dlq.letters()
    assert (letter.message.id, letter.message.tenant, letter.message.headers) == ("m-7", "acme", (("trace", b"1"),))
    assert [failure.attempt for failure in letter.failures] == [1, 2]
    assert letter.reason is Reason.ATTEMPTS


async def test_a_crafted_letter_is_one_of_its_own_and_changes_none_that_is_stored(dlq: Dlq) -> None:
    stored = make_letter(make_message(source=dlq.main.name, body=b"7"), state=State.RESOLVED)
    crafted = make_letter(replace(stored.message, body=b"8"), make_failure(message="no"), expires_at=START)
    record = record_of(crafted, dlq.dead.name)  # by somebody who has no key
    async with dlq.app() as app:
        await load_keys(app.store, app.clock.now())
        await app.store.letters.record([stored])
        before = await app.store.letters.get(stored.id)
    dlq.dead.produce((None, record.value), headers=record.headers)
    assert dlq.collect() == 1
    async with dlq.app() as app:
        assert await app.store.letters.get(stored.id) == before
        (other,) = [letter for letter in await letters(app) if letter.id != stored.id]
    assert (other.message.body, other.foreign, other.expires_at) == (b"8", True, None)


async def test_what_says_nothing_is_kept_as_it_is(dlq: Dlq) -> None:
    """Bytes, tombstones, headers that only look like somebody's, names that are no text; and nothing of it twice."""
    dlq.dead.produce((None, b"\xff\x00"), (b"k", None), (b"k", b'{"dlq_metadata": 3}'), (b"k", b'"dlq_metadata"'))
    dlq.dead.produce((b"k", b"x"), headers=[("kafka_dlt-original-offset", b"\xff"), ("kafka_dlt-x", None)])
    dlq.dead.produce((b"k", b"y"), headers=[("redrive-dead", b"{}"), ("redrive-message", b"?")])
    assert dlq.collect() == 6
    found = await dlq.letters()
    assert {letter.message.body for letter in found} == {
        b"\xff\x00",
        b"",
        b'{"dlq_metadata": 3}',
        b'"dlq_metadata"',
        b"x",
        b"y",
    }
    assert {letter.message.source for letter in found} == {dlq.main.name}
    dlq.url += "-another"  # a second group reads it all again
    assert dlq.collect() == 6
    again = await dlq.letters()
    assert {(one.id, len(one.failures)) for one in again} == {(one.id, 1) for one in found}
    await dlq.replay()
    assert sorted(str(one.value()) for one in dlq.main.records()) == sorted(
        str(value) for value in (b"\xff\x00", None, b'{"dlq_metadata": 3}', b'"dlq_metadata"', b"x", b"y")
    )


def make_picky(letters: Letters) -> None:
    """They will not have some letters."""
    record = letters.record

    async def picky(letters: Sequence[Letter]) -> None:
        if any(b"bad" in letter.message.body for letter in letters):
            raise ValueError("no such value")
        await record(letters)

    letters.record = picky  # type: ignore[method-assign]


async def test_one_record_that_the_store_will_not_have_ends_nothing_and_stays_where_it_lies(dlq: Dlq) -> None:
    dlq.dead.produce((b"k", b"1"), (b"k", b"bad"), (b"k", b"2"), (b"k", b"bad too"), (b"k", b"3"), partition=0)
    async with Redrive(transport=dlq.dead.url(), store=dlq.store) as app:
        told, metrics = Told(app), Metrics(app.events)
        store = app.store
        make_picky(store.letters)
        how: dict[str, Any] = {"events": app.events, "clock": app.clock, "lease": app.settings.lease}
        reader = KafkaReader(dlq.dead.name)
        assert await Collector(app.transport(), dlq.dead.name, reader, store, **how).run(follow=False) == 3
        refused = told.of(LetterRefused)
        assert {(one.source, one.message) for one in refused} == {
            (dlq.dead.name, f"{dlq.dead.name}[0]@1"),
            (dlq.dead.name, f"{dlq.dead.name}[0]@3"),
        }
        assert {one.why for one in refused} == {"ValueError: no such value"}
        assert f'redrive_letters_refused_total{{source="{dlq.dead.name}"}} 2.0' in metrics.render(None).decode()
    assert dlq.dead.committed() == {0: 1, 1: 0}, "its offset is not lost"
    assert dlq.collect() == 2, "the next one, whose store takes them, has those that were left"
    assert {letter.message.body for letter in await dlq.letters()} == {b"1", b"2", b"3", b"bad", b"bad too"}


def test_markers_of_transactions_are_no_messages(dlq: Dlq) -> None:
    producer: Any = Producer({"bootstrap.servers": dlq.dead.servers, "transactional.id": dlq.dead.name})
    producer.init_transactions(30)
    for value in (b"1", b"2"):
        producer.begin_transaction()
        producer.produce(dlq.dead.name, value, b"k")
        producer.commit_transaction(30)
    assert dlq.collect() == 2


def test_a_topic_that_is_not_there_is_named(dlq: Dlq) -> None:
    url = dlq.url.replace(dlq.dead.name, "nowhere")
    done = dlq.shell.process("--store", dlq.store, "collect", url, code=None)
    assert done.returncode != 0
    assert b"there is no topic 'nowhere'" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("url", ["kafka://127.0.0.1:9", "redis://127.0.0.1/x", "nonsense"])
def test_a_url_that_cannot_be_collected_from_is_explained(tmp_path: Path, url: str) -> None:
    done = Shell(tmp_path).process("collect", url, code=None)
    assert done.returncode == 2
    assert b"kafka://" in done.stderr
    assert b"Traceback" not in done.stderr
