"""What a message of Celery holds goes into a letter and comes out again, whatever it is."""

from __future__ import annotations

import asyncio
import uuid
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kombu import Connection, Exchange, Queue

from redrive.flow.lineage import lineage
from redrive.integrations.celery.attempts import earlier, with_attempt
from redrive.integrations.celery.checks import way_to
from redrive.integrations.celery.transport import CeleryTransport, read_url
from redrive.integrations.celery.wire import DELIVERY, as_bytes, identity, kept, lineage_of, published, read, written
from redrive.integrations.letters import failure_of
from redrive.model import Message
from redrive.transports.base import SendStatus
from tests.integrations.celery.messages import NOW, kombu_message, sent_back_task
from tests.servers.rabbitmq import RabbitMQ
from tests.servers.redis import Redis

plain = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
odd = st.binary() | st.datetimes(timezones=st.just(UTC)) | st.decimals(allow_nan=False, allow_infinity=False)
names = st.text(st.characters(codec="utf-8"))
values = st.recursive(
    plain | odd | names, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4)
)


@settings(max_examples=50)
@given(values)
def test_the_value_of_a_header_comes_back(value: Any) -> None:
    assert read(written(value)) == value


@pytest.mark.parametrize("text", ["3", "true", "null", '"quoted"', '{"$bytes": "AA=="}', "NaN", "", " 7", "\ud800"])
def test_a_text_stays_a_text_whatever_it_looks_like(text: str) -> None:
    assert read(written(text)) == text


def test_what_people_read_in_a_header_is_what_celery_wrote() -> None:
    assert written("tasks.add") == b"tasks.add"
    assert written(3) == b"3"
    assert written([None, 60]) == b"[null,60]"
    assert read(written({"$bytes": 1})) == {"$bytes": 1}


def test_a_replay_publishes_what_was_published_and_begins_anew() -> None:
    headers = {"retries": 3, "eta": "2030-01-01T00:00:00", "expires": "2030-01-01T00:00:00", "shadow": "7"}
    when = datetime(2030, 1, 1, tzinfo=UTC)
    properties = {"priority": 5, "reply_to": "me", "timestamp": when, "user_id": "ann", "expiration": "1000"}
    again = published(sent_back_task("q", "t1", headers, properties=properties))
    assert again.delivery.properties == {"priority": 5, "reply_to": "me", "timestamp": when}
    assert (again.delivery.exchange, again.delivery.routing_key, again.body) == ("", "q", b"[[2, 2], {}, {}]")
    told = {name: again.headers[name] for name in ("task", "id", "retries", "eta", "expires", "shadow")}
    assert told == {"task": "tasks.add", "id": "t1", "retries": 0, "eta": None, "expires": None, "shadow": "7"}


def test_a_message_that_comes_back_finds_its_letter() -> None:
    again = published(sent_back_task("q", "t1"))
    received = kombu_message("q", "t1", again.headers)
    assert lineage(lineage_of(received, task="tasks.add", id="t1", now=NOW)) is not None
    assert lineage(kept(received, task="tasks.add", id="t1", now=NOW)) is not None
    assert lineage(lineage_of(received, task="tasks.add", id="t2", now=NOW)) is None


def test_poisonous_headers_are_kept_as_far_as_they_can_be() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    message = kept(kombu_message("q", "t1", {"deep": deep, "fine": 1}), task="t" * 1000, id="t1", now=NOW)
    assert message.header("fine") == b"1"
    assert message.header("deep") == b"(this header could not be kept)"
    assert len(message.source) == 200


def test_who_a_message_is_for_is_read_and_never_unpickled() -> None:
    assert identity(kombu_message("q", "t1")) == ("tasks.add", "t1")
    first = kombu_message("q", "", body=b'{"task": "tasks.old", "id": "p1"}')
    first.headers = {}
    assert identity(first) == ("tasks.old", "p1")
    first.content_type = "application/x-python-serialize"
    assert identity(first)[0] == ""
    first.headers = {"task": ["no", "name"], "id": 7}
    assert identity(first)[0] == ""
    assert identity(first)[1]


def test_attempts_fit_into_a_header_and_the_newest_stay() -> None:
    headers: dict[str, Any] = {"mine": 1}
    for number in range(1, 400):
        failure = failure_of(ValueError("x" * 600), at=NOW, attempt=number)
        headers = with_attempt(headers, failure)
    kept_attempts = [failure.attempt for failure in earlier(headers)]
    assert len(str(headers["redrive-attempts"])) <= 24_000
    assert kept_attempts == list(range(kept_attempts[0], 400))
    assert len(kept_attempts) > 20
    assert headers["mine"] == 1


@pytest.mark.parametrize("told", [None, 7, "no json", "[1]", b"\xff", {"a": 1}])
def test_attempts_that_somebody_else_wrote_are_none(told: Any) -> None:
    assert earlier({"redrive-attempts": told}) == ()


@pytest.mark.parametrize(
    ("headers", "why"), [((), "is it a task of Celery"), (((DELIVERY, b'{"exchange": 7}'),), "cannot be read")]
)
def test_a_letter_that_is_no_task_is_refused_with_the_reason(headers: Any, why: str) -> None:
    [result] = CeleryTransport("celery+amqp://nowhere").publish([Message("m", "s", b"", NOW, headers)])
    assert result.status is SendStatus.REFUSED
    assert why in result.why


def test_options_of_a_transport_stand_behind_its_url() -> None:
    url = "celery+redis://h:1/0?global_keyprefix=shop:&ssl_cert_reqs=required&priority_steps=[0,5]"
    assert read_url(url) == (
        "redis://h:1/0?ssl_cert_reqs=required",
        {"global_keyprefix": "shop:", "priority_steps": [0, 5]},
    )
    assert "celery+amqp://USER:PASSWORD@rabbit:5672/shop" in way_to("celery", "pyamqp://rabbit:5672/shop")


def bound(broker: str, kind: str) -> tuple[str, str]:
    """An exchange with a queue that takes `orders.*`, or `orders.new`."""
    name = uuid.uuid4().hex[:10]
    exchange = Exchange(f"x{name}", kind)
    with Connection(broker) as connection, connection.channel() as channel:
        Queue(f"q{name}", exchange, "orders.*" if kind == "topic" else "orders.new").bind(channel).declare()
    return exchange.name, f"q{name}"


def received(broker: str, queue: str) -> Any:
    with Connection(broker) as connection, connection.channel() as channel:
        message = Queue(queue).bind(channel).get(no_ack=True)
        return message and (as_bytes(message.body), message.headers["id"], message.headers["redrive-replay"])


async def answers(broker: str, messages: list[Message]) -> list[tuple[str, str]]:
    transport = CeleryTransport(f"celery+{broker}")
    try:
        return [(result.status.value, result.why) for result in await transport.send(messages)]
    finally:
        await transport.aclose()


def to(exchange: str, key: str, id: str) -> Message:
    return sent_back_task("", id, delivery_info={"exchange": exchange, "routing_key": key})


@pytest.mark.parametrize("kind", ["direct", "topic"])
@pytest.mark.parametrize("broker", ["rabbitmq", "redis"])
async def test_each_message_goes_to_its_exchange_and_is_answered_for(
    broker: str, kind: str, request: pytest.FixtureRequest
) -> None:
    server: RabbitMQ | Redis = request.getfixturevalue(f"{broker}_server")
    exchange, queue = await asyncio.to_thread(bound, server.url, kind)
    foreign = Message("m", "s", b"", NOW)
    sent = [to(exchange, "orders.new", "t1"), to(exchange, "bills", "t2"), to("x-gone", "a", "t3"), foreign]
    found = await answers(server.url, [*sent, to("", queue, "t4")])
    assert [status for status, _ in found] == ["accepted", "refused", "refused", "refused", "accepted"]
    assert "no queue takes it" in found[1][1]
    assert "x-gone" in found[2][1]
    assert await asyncio.to_thread(received, server.url, queue) == (b"[[2, 2], {}, {}]", "t1", "r1")
    assert await asyncio.to_thread(received, server.url, queue) == (b"[[2, 2], {}, {}]", "t4", "r1")
    assert await asyncio.to_thread(received, server.url, queue) is None


def test_decimals_and_bytes_have_a_form() -> None:
    assert read(written({"a": [b"\x00", Decimal("1.50")]})) == {"a": [b"\x00", Decimal("1.50")]}
