"""What died comes back as it was, to the byte: body, key and headers in their order, from every transport and store."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TypeAlias

import pytest

from redrive import Permanent, Redrive
from redrive.flow.lineage import BY_HAND, LETTER, REPLAY, RETRIES
from redrive.forensics.query import Query
from redrive.model import Headers, Message
from redrive.service import Service
from redrive.testing.builders import make_message
from redrive.testing.waiting import until
from redrive.transports.kafka.wire import ENVELOPE
from tests.actors import acting
from tests.servers.kafka import Kafka
from tests.servers.mongodb import MongoDB
from tests.servers.opensearch import OpenSearch
from tests.servers.rabbitmq import RabbitMQ
from tests.servers.redis import Redis
from tests.trouble.helpers import until_letters, working
from tests.trouble.kafka import Topic

BODY = b'{"b": 1.0, "a": 1,\r\n  "a": 12345678901234567890123, "c": "\\u00e9"} \x00\xff'
KEY = b"\x00k\xff"
HEADERS: Headers = (
    ("a", b""),
    ("bytes", b"\xff\x00\x1b"),
    ("a", b"second"),
    ("a", b"second"),
    ("A", b"not a"),
    ("ключ", "значение".encode()),
    ("", b"no name"),
    ("n" * 300, b"v" * 3000),
    ("redrive-letter-like", b"x"),
)
OURS = {LETTER, REPLAY, RETRIES, BY_HAND, ENVELOPE}
Fixture: TypeAlias = Callable[[str], str]
_numbers = count(1)


def name() -> str:
    return f"identity-{os.getpid()}-{next(_numbers)}"


def own(message: Message) -> Headers:
    return tuple(pair for pair in message.headers if pair[0] not in OURS)


async def died_and_replayed(app: Redrive, source: str) -> tuple[Message, Message]:
    """What a handler got when it failed, and what it got when it was sent back."""
    got: list[Message] = []

    @app.handler(source)
    async def handle(body: bytes, message: Message) -> None:
        got.append(message)
        if len(got) == 1:
            raise Permanent("no")

    async with working(app):
        await until_letters(app, 1)
        service = Service(app)
        replay = await service.replay(Query(), every=True, actor=acting("test"))
        await service.run_replay(replay.id)
        await until(lambda: len(got) == 2, what="it came back")
    return got[0], got[1]


@pytest.fixture
def url(tmp_path: Path, request: pytest.FixtureRequest) -> Fixture:
    """The URL of a transport or store that nobody else uses."""

    def found(kind: str) -> str:
        match kind:
            case "sqlite":
                return f"sqlite:///{tmp_path / f'{name()}.db'}"
            case "redis":
                server: Redis = request.getfixturevalue("redis_server")
                return f"{server.url}?prefix={name()}"
            case "rabbitmq":
                broker: RabbitMQ = request.getfixturevalue("rabbitmq_server")
                return broker.url
            case "mongodb":
                documents: MongoDB = request.getfixturevalue("mongodb_server")
                return f"{documents.url}{name().replace('-', '_')}"
            case "opensearch":
                cluster: OpenSearch = request.getfixturevalue("opensearch_server")
                return f"opensearch://{cluster.address}/{name()}?timeout=60s"
        return f"{kind}://"

    return found


@pytest.mark.parametrize("kind", ["memory", "sqlite", "redis", "rabbitmq"])
async def test_a_message_comes_back_as_it_was_sent(url: Fixture, kind: str) -> None:
    source = name()
    sent = make_message(source=source, body=BODY, key=KEY, headers=HEADERS, tenant="acme", correlation_id="c-1")
    async with Redrive(transport=url(kind), store="memory://") as app:
        await app.transport().send([sent])
        first, again = await asyncio.wait_for(died_and_replayed(app, source), 120)
    for came in (first, again):
        assert (came.id, came.body, came.key, own(came)) == (sent.id, BODY, KEY, HEADERS)
        assert (came.tenant, came.correlation_id) == ("acme", "c-1")


@pytest.mark.parametrize("store", ["memory", "sqlite", "redis", "mongodb", "opensearch"])
async def test_a_record_of_a_stranger_comes_back_to_its_topic_as_it_was(
    kafka_server: Kafka, url: Fixture, store: str
) -> None:
    topic = Topic(kafka_server)
    headers = [*HEADERS, ("null", None), ("a", None), ("last", b"")]
    topic.produce((KEY, BODY), headers=headers)
    async with Redrive(transport=topic.url(), store=url(store)) as app:
        await asyncio.wait_for(died_and_replayed(app, topic.name), 120)
    with suppress(AssertionError):
        await until(lambda: len(topic.records()) == 2, timeout=30)
    old, new = topic.records()
    assert (new.value(), new.key(), new.partition()) == (BODY, KEY, old.partition())
    assert old.headers() == headers
    assert [pair for pair in new.headers() if pair[0] not in OURS] == headers
