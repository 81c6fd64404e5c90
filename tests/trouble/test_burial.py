"""What was decided of a message and could not be written is remembered: no handler is run again for the sake of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from redrive import Message, Permanent, Policy, Redrive, constant
from redrive.model import Reason
from redrive.stores.sqlite import SqliteStore
from redrive.telemetry.events import BackendDown, MessageRetried
from redrive.testing.faults import Outage, store_outage
from redrive.testing.waiting import until
from tests.servers import web
from tests.servers.kafka import Kafka
from tests.servers.rabbitmq import GUEST, RabbitMQ
from tests.servers.redis import Redis
from tests.trouble.helpers import Told, letters, make_app, until_empty, until_letters, url_in, working
from tests.trouble.kafka import Topic

TWICE = Policy(attempts=2, backoff=constant("1ms"))


@pytest.fixture(params=["sqlite", "memory", "redis", "rabbitmq", "rabbitmq-reject", "kafka"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The URL of a transport, and a source of the test's own there."""
    kind, source = request.param, f"orders-{uuid4().hex[:12]}"
    if kind == "sqlite":
        yield url_in(tmp_path), source
    elif kind == "memory":
        yield "memory://", source
    elif kind == "redis":
        server: Redis = request.getfixturevalue("redis_server")
        yield f"{server.url}?prefix={source}", source
    elif kind == "kafka":
        kafka: Kafka = request.getfixturevalue("kafka_server")
        topic = Topic(kafka, partitions=1)
        yield topic.url(), topic.name
    else:
        rabbitmq: RabbitMQ = request.getfixturevalue("rabbitmq_server")
        vhost = f"{rabbitmq.management_url}/api/vhosts/{source}"
        web.call("PUT", vhost, credentials=GUEST)
        yield f"{rabbitmq.url}{source}?delay=100ms" + ("&retry=reject" if kind.endswith("reject") else ""), source
        web.call("DELETE", vhost, credentials=GUEST)


def app_at(url: str, directory: Path) -> tuple[Redrive, Outage]:
    outage, store = store_outage(SqliteStore(f"sqlite:///{directory / 'letters.db'}"))
    return make_app(directory, transport=url, store=store), outage


async def test_a_handler_is_not_run_again_because_its_letter_could_not_be_written(
    place: tuple[str, str], tmp_path: Path
) -> None:
    url, source = place
    app, outage = app_at(url, tmp_path)
    told, seen = Told(app), Counter[tuple[str, int]]()

    @app.handler(source, policy=TWICE)
    async def handle(kind: str, message: Message) -> None:
        seen[kind, message.attempt] += 1
        raise Permanent("never") if kind == "hopeless" else ConnectionError("not now")

    outage.down = True
    async with app, working(app):
        await app.send(source, "hopeless")
        await app.send(source, "stubborn")
        await until(lambda: len(told.of(BackendDown)) >= 2, what="it was tried again and again")
        outage.down = False
        found = {letter.message.body: letter for letter in await until_letters(app, 2)}
        await until_empty(app)
    assert seen == {("hopeless", 1): 1, ("stubborn", 1): 1, ("stubborn", 2): 1}
    hopeless, stubborn = found[b"hopeless"], found[b"stubborn"]
    assert (hopeless.reason, hopeless.last.message, len(hopeless.failures)) == (Reason.PERMANENT, "never", 1)
    assert (stubborn.reason, stubborn.last.message) == (Reason.ATTEMPTS, "not now")
    assert [event.failure.attempt for event in told.of(MessageRetried)] == [1], "a letter that waits is no retry"


async def test_a_worker_that_comes_after_buries_what_the_one_before_could_not(
    place: tuple[str, str], tmp_path: Path
) -> None:
    """With the failure, where the transport keeps it."""
    url, source = place
    if url.startswith("memory"):
        return  # nobody comes after
    if url.startswith("kafka"):
        url += f"&counters=sqlite:///{tmp_path}/counters.db"
    runs = Counter[int]()
    for is_down in (True, False):
        app, outage = app_at(url, tmp_path)
        told = Told(app)

        @app.handler(source, policy=TWICE)
        async def handle(body: bytes, message: Message) -> None:
            runs[message.attempt] += 1
            raise ConnectionError("not now")

        outage.down = is_down
        async with app, working(app):
            if is_down:
                await app.send(source, b"")
                await until(lambda: len(told.of(BackendDown)) >= 2, what="it was tried in vain")  # noqa: B023
            else:
                await until_letters(app, 1)
                await until_empty(app)
                [letter] = await letters(app)
                if app.transport().features.keeps_history and not url.startswith("kafka"):
                    assert (letter.reason, letter.last.message) == (Reason.ATTEMPTS, "not now")
    assert runs == {1: 1, 2: 1}
