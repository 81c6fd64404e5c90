"""Dead-letter queues of RabbitMQ into a store, and back."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pika
import pytest
from msgspec.structs import replace

from redrive import Policy, Redrive, immediate
from redrive.clock import SystemClock
from redrive.flow.signing import load_keys
from redrive.forensics.query import Query
from redrive.model import DEAD_HEADER, LETTER_HEADER, Reason, State
from redrive.proof import Process, Ring, forget
from redrive.service import Service
from redrive.stores.base import EntryStatus
from redrive.telemetry.events import MessageBuried
from redrive.testing.builders import make_failure, make_letter, make_message
from redrive.testing.clock import START
from redrive.testing.waiting import until
from redrive.transports.base import SendStatus
from redrive.transports.rabbitmq.dead_letter_queues import PROOF, dead_in, parcel_of
from redrive.transports.rabbitmq.deaths import DEATH_HEADERS
from redrive.transports.rabbitmq.publisher import Parcel
from redrive.transports.rabbitmq.transport import open_transport
from redrive.transports.rabbitmq.wire import STORY
from redrive.upkeep.heartbeat import beats
from tests.actors import acting
from tests.cli.world import Shell
from tests.servers import web
from tests.servers.rabbitmq import GUEST, RabbitMQ
from tests.trouble.helpers import Told, letters, make_app, working


@pytest.fixture
def url(rabbitmq_server: RabbitMQ) -> Iterator[str]:
    name = f"collect-{uuid4().hex[:12]}"
    place = f"{rabbitmq_server.management_url}/api/vhosts/{name}"
    web.call("PUT", place, credentials=GUEST)
    yield f"{rabbitmq_server.url.rstrip('/')}/{name}"
    web.call("DELETE", place, credentials=GUEST)


def collected(place: Path, url: str, *more: str) -> int:
    count: int = reported(place, url, *more)["collected"]
    return count


def reported(place: Path, url: str, *more: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(shell(place, "collect", url, *more, "--json").stdout)
    return found


def shell(place: Path, *words: str, **more: Any) -> subprocess.CompletedProcess[bytes]:
    return Shell(place).process("--store", f"sqlite:///{place / 'letters.db'}", *words, **more)


async def test_what_rabbitmq_has_dead_lettered_says_where_it_was_and_goes_back_there(url: str, tmp_path: Path) -> None:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel: Any = connection.channel()
        channel.queue_declare("their.dead", durable=True)
        to_dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "their.dead"}
        channel.queue_declare("orders", durable=True, arguments=to_dead)
        channel.queue_declare("slow", durable=True, arguments={**to_dead, "x-message-ttl": 1})
        properties = pika.BasicProperties(message_id="o-1", headers={"trace": "1"}, delivery_mode=2)
        channel.basic_publish("", "orders", b"\xff rejected", properties)
        channel.basic_publish("", "slow", b"expired")
        channel.basic_publish("", "their.dead", b"just there")
        method, _, _ = channel.basic_get("orders")
        channel.basic_reject(method.delivery_tag, requeue=False)
        while channel.queue_declare("their.dead", passive=True).method.message_count < 3:
            connection.process_data_events(0.01)
    allow = ("--allow-source", "orders", "--allow-source", "slow")
    assert collected(tmp_path, f"{url}/their.dead", *allow) == 3
    assert collected(tmp_path, f"{url}/their.dead", *allow) == 0
    async with make_app(tmp_path, transport=f"{url}?declare=no", store=f"sqlite:///{tmp_path / 'letters.db'}") as app:
        found = {letter.message.body: letter for letter in await letters(app)}
        rejected = found[b"\xff rejected"]
        assert (rejected.message.source, rejected.message.id) == ("orders", "o-1")
        assert rejected.message.header("trace") == b"1"
        assert rejected.last.type == "rabbitmq.Rejected"
        assert (found[b"expired"].message.source, found[b"expired"].reason) == ("slow", Reason.EXPIRED)
        assert found[b"just there"].last.type == "rabbitmq.Unknown"
        app.declare("orders")
        service = Service(app)
        await service.run_replay((await service.replay(Query(sources=("orders",)), actor=acting("test"))).id)
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        method, back, body = connection.channel().basic_get("orders", auto_ack=True)
        assert (body, back.message_id, back.headers["trace"]) == (b"\xff rejected", "o-1", "1")


def dead_of(url: str, *sources: str) -> None:
    """Messages in `orders.dlq` of which x-death says that they were rejected in these queues."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel: Any = connection.channel()
        channel.queue_declare("orders.dlq", durable=True)
        for number, source in enumerate(sources):
            death = {"queue": source, "reason": "rejected", "count": 1, "exchange": "", "routing-keys": [source]}
            properties = pika.BasicProperties(message_id=f"m-{number}", headers={"x-death": [death]}, delivery_mode=2)
            channel.basic_publish("", "orders.dlq", b"%d" % number, properties)


async def test_what_names_a_queue_that_nobody_allows_is_kept_and_sent_nowhere_until_somebody_does(
    url: str, tmp_path: Path
) -> None:
    sources = ("orders", "payments", "payments", "*")
    dead_of(url, *sources)
    told = shell(tmp_path, "collect", f"{url}/orders.dlq").stderr.decode()
    (act,) = json.loads(shell(tmp_path, "audit", "--json").stdout)["audit"]
    assert (act["action"], act["outcome"], act["detail"]) == ("collect", "done", "4 letters from orders.dlq")
    assert "4 letters collected" in told
    assert "3 letters of them cannot be sent back yet" in told
    assert "payments (2), * (1)." in told
    assert "run this again with --allow-source payments --allow-source '[*]'" in told
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        for queue in ("orders", "payments"):
            connection.channel().queue_declare(queue, durable=True)
    way = {"REDRIVE_TRANSPORTS_DEFAULT": f"{url}?declare=no"}
    plan = shell(tmp_path, "replay", "--source", "payments", "--dry-run", **way).stdout.decode()
    assert "2 letters will be skipped: the dead record names that source itself" in " ".join(plan.split())
    assert b"skipped 2" in shell(tmp_path, "replay", "--source", "payments", "--yes", code=None, **way).stderr
    assert "a source that nobody has allowed" in shell(tmp_path, "doctor", code=None, **way).stdout.decode()
    assert "--allow-source" in shell(tmp_path, "retry", "m-1#not-allowed", code=None, **way).stderr.decode()
    again = reported(tmp_path, f"{url}/orders.dlq", "--allow-source", "payments")
    assert again == {"collected": 0, "allowed": 2, "not_allowed": {}}
    shell(tmp_path, "replay", "--all", "--yes", code=None, **way)
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel: Any = connection.channel()
        assert [channel.queue_declare(queue, passive=True).method.message_count for queue in sources[:2]] == [1, 2]
    async with make_app(tmp_path, transport="memory://", store=f"sqlite:///{tmp_path / 'letters.db'}") as app:
        left = await app.store.letters.search(Query(states=(State.PENDING,)))
    assert [letter.message.source for letter in left.letters] == ["*"]


def test_the_sources_of_an_app_are_declared(url: str, tmp_path: Path) -> None:
    dead_of(url, "payments", "ledger")
    (tmp_path / "shop.py").write_text(
        "from redrive import Redrive\napp = Redrive(transport='memory://')\napp.declare('payments')\n"
    )
    assert reported(tmp_path, f"{url}/orders.dlq", "--app", "shop")["not_allowed"] == {"ledger": 1}


async def test_what_a_worker_of_the_store_handles_is_declared(url: str, tmp_path: Path) -> None:
    dead_of(url, "payments", "ledger")
    app = make_app(tmp_path, transport="memory://", store=f"sqlite:///{tmp_path / 'letters.db'}")

    @app.handler("payments")
    async def handle(body: int) -> None: ...

    async with app, working(app):
        await until(lambda: has_beat(app), what="its worker is known")
        found = await asyncio.to_thread(reported, tmp_path, f"{url}/orders.dlq")
    assert found["not_allowed"] == {"ledger": 1}


async def has_beat(app: Redrive) -> bool:
    return bool(await beats(app.store.documents))


async def test_what_redrive_has_parked_comes_with_its_story(url: str, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'letters.db'}"
    app: Redrive = make_app(tmp_path, transport=f"{url}?bury=dlq", store=store)
    told = Told(app)

    @app.handler("q.orders", policy=Policy(attempts=2, backoff=immediate()))
    async def handle(body: int) -> None:
        raise ConnectionError("no")

    async with app:
        await app.send("q.orders", 7, id="m-7", tenant="acme", headers={"trace": "1"})
        async with working(app):
            await until(lambda: bool(told.of(MessageBuried)), what="it is parked")
    (buried,) = told.of(MessageBuried)
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:  # as a worker that dies before its ack does
        channel: Any = connection.channel()
        _, properties, body = channel.basic_get("q.orders.dlq")
        channel.basic_publish("dlq.q.orders", "parking", body, properties)
    collected(tmp_path, f"{url}/q.orders.dlq")
    async with make_app(tmp_path, transport="memory://", store=store) as other:
        (letter,) = await letters(other)
    assert (letter.id, letter.message.body, letter.message.tenant) == (buried.letter, b"7", "acme")
    assert letter.message.header("trace") == b"1"
    assert [failure.attempt for failure in letter.failures] == [1, 2]
    assert (letter.last, letter.reason, letter.group) == (buried.failure, buried.reason, buried.group)
    assert not letter.foreign


def test_a_signed_letter_is_ours_only_with_the_body_and_the_story_that_were_signed() -> None:
    Process.ring = Ring(b"key", (b"key",), believes_unsigned=False)
    message = make_message(id="m-7", source="q.orders", tenant="acme", key=b"k")
    letter = make_letter(message, make_failure(message="no", at=START))
    table = dict(parcel_of(letter).properties.headers)
    dead = dead_in(message, table)
    assert dead is not None
    assert (dead.reason, dead.group) == (letter.reason, letter.group)
    changes = ({"id": "m-8"}, {"source": "q.bills"}, {"body": b"another"}, {"tenant": None}, {"key": None})
    for changed in changes:
        assert dead_in(replace(message, **changed), table) is None
    said = table[DEAD_HEADER].replace('"reason"', '"expires_at":"2000-01-01T00:00:00Z","reason"')
    other = make_letter(message, make_failure(message="yes", at=START))
    forgeries = ({DEAD_HEADER: said}, {STORY: parcel_of(other).properties.headers[STORY]}, {PROOF: ""}, {PROOF: 7})
    for forged in forgeries:
        assert dead_in(message, {**table, **forged}) is None


def publish_dead(url: str, *parcels: Parcel, **headers: str) -> None:
    """As whoever may publish to `q.orders.dlq` can, with other headers."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel: Any = connection.channel()
        channel.queue_declare("q.orders.dlq", durable=True)
        for parcel in parcels:
            table = {**parcel.properties.headers, **headers}
            said = pika.BasicProperties(message_id=parcel.properties.message_id, headers=table, delivery_mode=2)
            channel.basic_publish("", "q.orders.dlq", parcel.body, said)


@pytest.mark.parametrize("proof", ["", "A" * 32], ids=["unsigned", "signed by somebody else"])
async def test_a_crafted_letter_is_one_of_its_own_and_changes_none_that_is_stored(
    url: str, tmp_path: Path, proof: str
) -> None:
    stored = make_letter(make_message(id="m-7", source="q.orders", body=b"7"), state=State.RESOLVED)
    message, failure = replace(stored.message, body=b"8"), make_failure(type="E", message="no")
    crafted = make_letter(message, failure, expires_at=START, max_retries=9)
    unknown = make_letter(replace(message, id="m-8"), failure, expires_at=START, max_retries=9)
    store = f"sqlite:///{tmp_path / 'letters.db'}"
    async with make_app(tmp_path, transport="memory://", store=store) as app:
        await load_keys(app.store, app.clock.now())
        forget()  # who crafts them has no key
        await app.store.letters.record([stored])
        before = await app.store.letters.get(stored.id)
    for _ in range(2):
        publish_dead(url, parcel_of(crafted), parcel_of(unknown), **{PROOF: proof})
        assert collected(tmp_path, f"{url}/q.orders.dlq") == 2
    async with make_app(tmp_path, transport="memory://", store=store) as app:
        assert await app.store.letters.get(stored.id) == before
        others = [letter for letter in await letters(app) if letter.id != stored.id]
    assert len(others) == 2, "what is collected twice is one letter"
    assert unknown.id in {letter.id for letter in others}
    for letter in others:
        assert (letter.message.body, letter.last.type, letter.last.message) == (b"8", "E", "no")
        assert (letter.foreign, letter.max_retries, letter.expires_at) == (True, 0, None)


async def test_what_was_parked_before_letters_were_signed_is_believed_where_the_store_had_letters(
    url: str, tmp_path: Path
) -> None:
    letter = make_letter(make_message(id="m-7", source="q.orders"), make_failure(), make_failure(attempt=2))
    publish_dead(url, parcel_of(letter), **{PROOF: ""})
    store = f"sqlite:///{tmp_path / 'letters.db'}"
    async with make_app(tmp_path, transport="memory://", store=store) as app:
        await app.store.letters.record([make_letter()])
    assert collected(tmp_path, f"{url}/q.orders.dlq") == 1
    async with make_app(tmp_path, transport="memory://", store=store) as app:
        found = await app.store.letters.get(letter.id)
    assert found is not None
    assert (found.failures, found.foreign) == (letter.failures, False)


# -- parked by a plain consumer, as the document of the files has it --------------------------------------------------


def park_as_the_document_does(url: str, number: int) -> None:
    """A plain consumer in its own topology: it rejects three times, then publishes to the DLQ with x-death and acks."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel: Any = connection.channel()
        channel.exchange_declare("domain.events", "topic", durable=True)
        for exchange in ("retry.q.thumbnail", "dlq.q.thumbnail"):
            channel.exchange_declare(exchange, "direct", durable=True)
        retry = {"x-dead-letter-exchange": "retry.q.thumbnail", "x-dead-letter-routing-key": "retry"}
        back = {"x-message-ttl": 5, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q.thumbnail"}
        channel.queue_declare("q.thumbnail", durable=True, arguments=retry)
        channel.queue_declare("q.thumbnail.retry", durable=True, arguments=back)
        channel.queue_declare("q.thumbnail.dlq", durable=True)
        channel.queue_bind("q.thumbnail", "domain.events", "files.validated.*")
        channel.queue_bind("q.thumbnail.retry", "retry.q.thumbnail", "retry")
        channel.queue_bind("q.thumbnail.dlq", "dlq.q.thumbnail", "parking")
        channel.confirm_delivery()
        for n in range(number):
            channel.basic_publish("domain.events", "files.validated.pdf", b"%d" % n, _plain(f"m-{n}"))
        parked = 0
        while parked < number:
            method, properties, body = channel.basic_get("q.thumbnail")
            if method is None:
                connection.process_data_events(0.005)
            elif _rejections(properties) < 3:
                channel.basic_reject(method.delivery_tag, requeue=False)
            else:
                channel.basic_publish("dlq.q.thumbnail", "parking", body, properties)
                channel.basic_ack(method.delivery_tag)
                parked += 1


def _plain(id: str) -> pika.BasicProperties:
    return pika.BasicProperties(message_id=id, delivery_mode=2, headers={"n": 7})


def _rejections(properties: pika.BasicProperties) -> int:
    deaths = (properties.headers or {}).get("x-death", [])
    return next((int(one["count"]) for one in deaths if one["reason"] == "rejected"), 0)


def broker_has(server: RabbitMQ, url: str) -> set[str]:
    vhost = url.rpartition("/")[2]
    found = [web.call("GET", f"{server.management_url}/api/{kind}/{vhost}", credentials=GUEST) for kind in KINDS]
    return {f"{kind} {one['name']}" for kind, some in zip(KINDS, found, strict=True) for one in json.loads(some)}


KINDS = ("queues", "exchanges")


@pytest.mark.parametrize("peeked", [False, True], ids=["untouched", "peeked at before"])
async def test_what_a_plain_consumer_has_parked_goes_back_to_its_queue_and_nothing_is_declared(
    rabbitmq_server: RabbitMQ, url: str, tmp_path: Path, peeked: bool
) -> None:
    park_as_the_document_does(url, 3)
    if peeked:
        with pika.BlockingConnection(pika.URLParameters(url)) as connection:
            channel: Any = connection.channel()
            for _ in range(3):
                channel.basic_get("q.thumbnail.dlq")
    before = broker_has(rabbitmq_server, url)
    assert collected(tmp_path, f"{url}/q.thumbnail.dlq") == 3
    store = f"sqlite:///{tmp_path / 'letters.db'}"
    async with make_app(tmp_path, transport=url, store=store) as app:  # which would declare what it handles
        found = await letters(app)
        assert {letter.message.source for letter in found} == {"q.thumbnail"}
        assert {letter.message.origin for letter in found} == {"domain.events/files.validated.pdf"}
        assert {(letter.last.type, letter.last.attempt) for letter in found} == {("rabbitmq.Rejected", 3)}
        service = Service(app)
        replay = await service.replay(Query(sources=("q.thumbnail",)), actor=acting("test"))
        await service.run_replay(replay.id)
        assert await app.store.ledger.tally(replay.id) == {EntryStatus.SENT: 3}
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        back = [connection.channel().basic_get("q.thumbnail", auto_ack=True) for _ in range(3)]
    assert {body for _, _, body in back} == {b"0", b"1", b"2"}
    assert all("x-death" not in properties.headers and properties.headers["n"] == 7 for _, properties, _ in back)
    assert broker_has(rabbitmq_server, url) == before


async def test_a_letter_whose_queue_is_gone_waits_and_no_queue_is_made(
    rabbitmq_server: RabbitMQ, url: str, tmp_path: Path
) -> None:
    async with make_app(tmp_path, transport=url) as app:
        message = make_message(source="gone", headers=((LETTER_HEADER, b"x"),))
        [answer] = await app.transport().send([message])
        assert (answer.status, "is not on the broker" in answer.why) == (SendStatus.BUSY, True)
    assert not any("gone" in name for name in broker_has(rabbitmq_server, url))


async def test_a_collector_that_dies_leaves_the_messages_as_they_were(url: str, tmp_path: Path) -> None:
    park_as_the_document_does(url, 2)
    ignoring = f"{url}?declare=no&redeliveries=ignore"
    for _ in range(2):  # the second time both were delivered before
        transport = open_transport(ignoring, clock=SystemClock(), lease=timedelta(seconds=30))
        taken = [one for _ in range(2) for one in await transport.receive("q.thumbnail.dlq", 1)]
        assert [one.message.body for one in taken] == [b"0", b"1"], "in the order in which they lie there"
        await transport.aclose()
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        _, properties, _ = connection.channel().basic_get("q.thumbnail.dlq")
    assert _rejections(properties) == 3
    assert set(properties.headers) - set(DEATH_HEADERS) == {"n"}, "nothing of ours was added"
