"""Messages that the broker will never take a copy of, or not as they are: they hold up nothing, and none is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pika
import pytest

from redrive.clock import SystemClock
from redrive.forensics.query import Query
from redrive.model import Done, Reason, Release, Retry, State
from redrive.testing.builders import make_failure, make_message
from redrive.testing.waiting import until
from redrive.transports.base import ACCEPTED, CannotReturn, Delivery, SendStatus, Settlement
from redrive.transports.rabbitmq.fields import Field, field_of
from redrive.transports.rabbitmq.options import options_of
from redrive.transports.rabbitmq.properties import Properties
from redrive.transports.rabbitmq.publisher import Parcel, Publisher
from redrive.transports.rabbitmq.redrive import DeadMessages
from redrive.transports.rabbitmq.transport import RabbitTransport, open_transport
from tests.servers import web
from tests.servers.fixtures import StartsServer
from tests.servers.rabbitmq import GUEST, RabbitMQ
from tests.trouble.rabbitmq.work import LEASE, PATIENCE, Victim, Work

GOOD = 300
LARGE, LARGEST = 125_000, 131_020  # bytes of headers: a frame has 131,072, and room beside the first, not the second


def theirs(id: str, size: int = 0, **properties: Any) -> Properties:
    """The properties of a message that somebody else published."""
    headers: dict[str, Any] = properties.pop("headers", {})
    return Properties(message_id=id, delivery_mode=2, headers={**headers, "x": "y" * size}, **properties)


async def published(publisher: Publisher, *messages: tuple[Properties, bytes]) -> None:
    await publisher.publish([Parcel("", "orders", properties, body) for properties, body in messages])


async def received(transport: RabbitTransport, number: int = 1) -> list[Delivery]:
    found: list[Delivery] = []
    while len(found) < number:
        found += await asyncio.wait_for(transport.receive("orders", number), PATIENCE)
    return found


async def die_with_all(start_victim: Callable[[], Victim], transport: RabbitTransport, count: int) -> None:
    """A worker has everything in its hands, and dies."""
    victim = start_victim()
    await received(victim.transport, count)
    await victim.die()


@pytest.mark.parametrize("size", [LARGE, LARGEST])
async def test_headers_that_leave_no_room_were_delivered_before_and_hold_up_nobody(
    url: str, transport: RabbitTransport, publisher: Publisher, start_victim: Callable[[], Victim], size: int
) -> None:
    await published(publisher, (theirs("large", size), b"ok"))
    await die_with_all(start_victim, transport, 1)
    await transport.send([make_message(id=f"{n}", body=b"ok") for n in range(GOOD)])
    work = Work(url)
    await work.until(lambda: len(work.done) >= GOOD, "all good ones are handled")
    if size == LARGE:
        await work.until(lambda: work.done["large"] == 1, "it is handled, too")
    else:
        [letter] = await until_letters(work, 1)
        assert (letter.message.id, letter.reason, letter.last.type) == ("large", Reason.TOO_LARGE, "redrive.TooLarge")
        assert letter.message.header("x") == b"y" * size
        assert "131,052" in letter.last.message, "it says what a frame has"
    await work.end()


async def until_letters(work: Work, number: int) -> Any:
    letters = work.app.store.letters

    async def are_there() -> bool:
        return await letters.count(Query()) == number

    await until(are_there, what=f"{number} letters", timeout=60)
    return (await letters.search(Query())).letters


async def test_what_cannot_be_retried_is_a_letter_and_its_neighbours_are_retried_and_buried(
    url: str, publisher: Publisher
) -> None:
    fail = [(theirs(f"bad-{n}"), b"bad") for n in range(20)]
    await published(
        publisher, *fail, (theirs("large", LARGEST), b"flaky"), *[(theirs(f"{n}"), b"ok") for n in range(GOOD)]
    )
    work = Work(f"{url}&bury=both", attempts=3)
    await work.until(lambda: len(work.done) == GOOD, "all good ones are handled")
    letters = {letter.message.id: letter for letter in await until_letters(work, 21)}
    large = letters.pop("large")
    assert (large.reason, large.state, large.last.type) == (Reason.TOO_LARGE, State.PENDING, "ConnectionError")
    assert "[not retried: the headers of 'large' fill a frame" in large.last.message
    assert {letter.reason for letter in letters.values()} == {Reason.PERMANENT}
    await work.end()


async def test_a_transport_names_what_it_cannot_retry_and_gives_back_what_it_cannot_copy(
    transport: RabbitTransport, publisher: Publisher
) -> None:
    await published(publisher, (theirs("large", LARGEST), b""), (theirs("small"), b""))
    large, small = await received(transport, 2)
    settlements = [Settlement(one, Retry(timedelta()), make_failure()) for one in (large, small)]
    with pytest.raises(CannotReturn) as refused:
        await transport.settle(settlements)
    assert list(refused.value.why) == [id(large)]
    assert await transport.settle([Settlement(large, Release()), settlements[1]]) == [], "neither is lost"
    again = {one.message.id: one for one in await received(transport, 2)}
    assert (again["small"].message.attempt, again["small"].uncountable) == (2, "")
    assert "fill a frame" in again["large"].uncountable
    assert await transport.settle([Settlement(one, Done()) for one in again.values()]) == []


async def test_a_redrive_leaves_what_cannot_go_back_and_sends_the_rest(
    url: str, transport: RabbitTransport, publisher: Publisher
) -> None:
    parcels = [Parcel("dlq.orders", "parking", theirs(f"{n}"), b"") for n in range(30)]
    parcels[3] = Parcel("dlq.orders", "parking", theirs("large", LARGEST), b"")
    await publisher.publish(parcels)
    dead = DeadMessages(options_of(url), SystemClock(), batch=10)
    done = await dead.redrive("orders", limit=100, by="ann")
    assert (done.found, done.sent, done.refused) == (30, 29, 1)
    assert "fill a frame" in done.why
    assert [message.message_id for message in await dead.peek("orders.dlq")] == ["large"]
    await dead.aclose()
    assert len({one.message.id for one in await received(transport, 29)}) == 29


# -- copies that the broker would refuse, or send elsewhere ------------------------------------------------------------


async def test_the_copy_of_another_users_message_is_taken(
    rabbitmq_server: RabbitMQ, vhost: str, transport: RabbitTransport, publisher: Publisher
) -> None:
    api, everything = f"{rabbitmq_server.management_url}/api", {"configure": ".*", "write": ".*", "read": ".*"}
    web.call("PUT", f"{api}/users/{vhost}", {"password": "secret", "tags": ""}, credentials=GUEST)
    web.call("PUT", f"{api}/permissions/{vhost}/{vhost}", everything, credentials=GUEST)
    address = pika.URLParameters(f"amqp://{vhost}:secret@{rabbitmq_server.address}/{vhost}")
    with pika.BlockingConnection(address) as connection:
        properties = pika.BasicProperties(message_id="theirs", user_id=vhost, delivery_mode=2)
        connection.channel().basic_publish("", "orders", b"x", properties)
    [first] = await received(transport)
    await transport.settle([Settlement(first, Retry(timedelta()), make_failure())])
    [second] = await received(transport)
    assert (second.message.id, second.message.attempt) == ("theirs", 2)
    assert second.message.headers == first.message.headers, "who published it first is still known"
    assert await transport.send([second.message]) == [ACCEPTED]
    web.call("DELETE", f"{api}/users/{vhost}", credentials=GUEST)


async def test_a_copy_goes_to_its_queue_and_not_to_those_that_its_sender_had_named_beside_it(
    url: str, transport: RabbitTransport, publisher: Publisher
) -> None:
    await open_declared(url, "audit")
    headers = {"CC": ["audit"], "BCC": ["audit"]}
    await published(publisher, (theirs("m-1", headers=headers), b""))
    [first] = await received(transport)
    assert (await transport.depths())["orders"].total == 1
    await transport.settle([Settlement(first, Retry(timedelta()), make_failure())])
    [second] = await received(transport)
    assert await transport.send([second.message]) == [ACCEPTED]
    assert second.message.header("CC") == first.message.header("CC") == b'["audit"]'
    assert await count_of(url, "audit") == 1, "only what its sender sent"


async def open_declared(url: str, queue: str) -> None:
    other = open_transport(url, clock=SystemClock(), lease=LEASE)
    assert await other.send([make_message(source=queue, id="first")]) == [ACCEPTED]
    [one] = await other.receive(queue, 1)
    await other.settle([Settlement(one, Done())])
    await other.aclose()


async def count_of(url: str, queue: str) -> int | None:
    dead = DeadMessages(options_of(url), SystemClock())
    try:
        return await dead.count(queue)
    finally:
        await dead.aclose()


async def test_one_that_the_broker_closes_the_connection_for_takes_its_neighbours_along_once(
    transport: RabbitTransport, publisher: Publisher
) -> None:
    wrong = theirs("wrong")
    wrong.expiration = "soon"
    parcels = [Parcel("", "orders", theirs(f"{n}"), b"") for n in range(5)]
    parcels.insert(2, Parcel("", "orders", wrong, b""))
    await publisher.outcomes(parcels)
    outcomes = await publisher.outcomes(parcels)
    statuses = [getattr(outcome, "status", ACCEPTED.status) for outcome in outcomes]
    assert statuses == [SendStatus.ACCEPTED] * 2 + [SendStatus.REFUSED] + [SendStatus.ACCEPTED] * 3


async def test_a_body_larger_than_the_broker_takes_now_is_a_letter(start_server: StartsServer) -> None:
    """It came before somebody lowered the limit."""
    server = start_server(RabbitMQ)
    url = f"{server.url}?delay=200ms"
    sender = open_transport(url, clock=SystemClock(), lease=LEASE)
    await sender.send([make_message(id="large", body=b"flaky" + b" " * 200_000)])
    holder = open_transport(url, clock=SystemClock(), lease=LEASE)
    await received(holder)
    server.control("eval", "application:set_env(rabbit, max_message_size, 100000).")
    server.control("eval", "persistent_term:put(max_message_size, 100000).")
    await holder.aclose()  # so that it was delivered before
    await sender.send([make_message(id=f"{n}", body=b"ok") for n in range(GOOD)])
    work = Work(url)
    await work.until(lambda: len(work.done) == GOOD, "all good ones are handled")
    [letter] = await until_letters(work, 1)
    assert (letter.message.id, letter.reason) == ("large", Reason.TOO_LARGE)
    await work.end()
    await sender.aclose()


# -- headers that Python cannot hold -----------------------------------------------------------------------------------


def nested(levels: int) -> Field:
    field = Field(b"V")
    for _ in range(levels):
        field = Field(b"A" + len(field).to_bytes(4, "big") + field)
    return field


@pytest.mark.parametrize(
    "field",
    [nested(20_000), Field(b"T" + b"\x7f" + b"\xff" * 7), field_of({b"\xff": {b"\xfe": [b"\xff"]}})],
    ids=["deep", "a year that Python does not know", "names that are no text"],
)
async def test_headers_that_python_cannot_hold_are_received_and_copied(
    transport: RabbitTransport, publisher: Publisher, field: Field
) -> None:
    await published(publisher, (theirs("odd", headers={"odd": field}), b"x"))
    [first] = await received(transport)
    assert first.message.header("odd") is not None
    await transport.settle([Settlement(first, Retry(timedelta()), make_failure())])
    [second] = await received(transport)
    assert field in second.token.came.properties.raw
    assert second.message.headers == first.message.headers
    assert await transport.send([second.message]) == [ACCEPTED]
