"""URLs that are none, messages forged, odd, unroutable or too large, queues declared otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from pika import BasicProperties

from redrive.clock import SystemClock
from redrive.errors import ConfigError, TransportUnavailable
from redrive.forensics.query import Query
from redrive.model import Done, Retry, letter_id
from redrive.telemetry.events import BackendDown, MessageBuried
from redrive.testing.builders import make_failure, make_message
from redrive.testing.waiting import until
from redrive.transports.base import ACCEPTED, SendStatus, Settlement
from redrive.transports.rabbitmq.deaths import rejections
from redrive.transports.rabbitmq.options import options_of
from redrive.transports.rabbitmq.properties import Properties
from redrive.transports.rabbitmq.publisher import Parcel, Publisher, Unroutable
from redrive.transports.rabbitmq.transport import RabbitTransport, open_transport
from tests.servers import web
from tests.servers.rabbitmq import GUEST, RabbitMQ
from tests.trouble.rabbitmq.work import LEASE, PATIENCE, Work


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("amqp://", "amqp://user:password@host"),
        ("http://host", "amqp://user:password@host"),
        ("amqp://host/?dealy=1s", "did you mean 'delay'"),
        ("amqp://host/?retry=rejct", "did you mean 'reject'"),
        ("amqp://host/?retry=reject&delay=1s,2s", "one delay for all"),
        ("amqp://host/?queues=lazy", "classic or quorum"),
        ("amqp://host/?prefetch=0", "1 to 65,535"),
        ("amqp://host/?bury=grave", "store or dlq or both"),
        ("amqp://host/?declare=perhaps", "yes or no"),
        ("amqp://host/?delay=soon", "duration"),
    ],
)
def test_a_url_that_is_none(url: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        options_of(url)


async def test_nobody_there_and_a_wrong_password(rabbitmq_server: RabbitMQ) -> None:
    for url, says in (
        ("amqp://127.0.0.1:1/", "127.0.0.1:1"),
        (rabbitmq_server.url.replace("guest:guest", "guest:wrong"), "refuses this user"),
        (f"{rabbitmq_server.url}no-such-vhost", "is unavailable"),
    ):
        transport = open_transport(url, clock=SystemClock(), lease=LEASE)
        with pytest.raises(TransportUnavailable, match=says):
            await transport.check()
        await transport.aclose()


async def test_a_retry_waits_in_the_broker_for_its_time(url: str) -> None:
    transport = open_transport(f"{url},1h", clock=SystemClock(), lease=LEASE)
    waits = {"soon": timedelta(milliseconds=100), "late": timedelta(minutes=30)}
    await transport.send([make_message(id=name) for name in waits])
    for _ in waits:
        [one] = await transport.receive("orders", 1)
        await transport.settle([Settlement(one, Retry(waits[one.message.id]), make_failure(message="once"))])
    [again] = await asyncio.wait_for(transport.receive("orders", 1), PATIENCE)
    assert (again.message.id, again.message.attempt, again.redelivered) == ("soon", 2, False)
    assert [failure.message for failure in again.failures] == ["once"]
    assert (await transport.depths())["orders"].delayed == 1
    await transport.aclose()


# -- messages of other people ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "deaths",
    [
        "text",
        7,
        [],
        ["text", 3, None],
        [{"queue": "orders", "reason": "rejected"}],
        [{"queue": "orders", "reason": "rejected", "count": "9"}],
        [{"queue": "orders", "reason": "rejected", "count": -4}],
        [{"queue": "orders", "reason": "expired", "count": 9}],
        [{"queue": "another", "reason": "rejected", "count": 9}],
    ],
    ids=str,
)
async def test_a_forged_or_odd_x_death_counts_nothing(
    transport: RabbitTransport, publisher: Publisher, deaths: Any
) -> None:
    assert rejections({"x-death": deaths}, "orders") == 0
    await transport.send([make_message()])
    [mine] = await transport.receive("orders", 1)
    properties = BasicProperties(message_id="theirs", headers={"x-death": deaths})
    await publisher.publish([Parcel("", "orders", properties, b"{}")])
    [theirs] = await asyncio.wait_for(transport.receive("orders", 1), PATIENCE)
    assert (theirs.message.id, theirs.message.attempt, mine.message.attempt) == ("theirs", 1, 1)


@pytest.mark.parametrize(
    "ours",
    [
        "no JSON",
        b"\xff",
        7,
        '{"at": 1000000000000000000000000000000}',
        '{"attempt": -3}',
        '{"attempt": 99999999999}',
        '{"expires": -1}',
        '{"pairs": 3}',
        '{"x": ' + "[" * 50_000,
    ],
    ids=lambda ours: str(ours)[:30],
)
async def test_a_forged_header_of_ours_says_nothing(
    transport: RabbitTransport, publisher: Publisher, ours: Any
) -> None:
    properties = BasicProperties(message_id="theirs", headers={"redrive": ours, "redrive-failures": b"\xc1"})
    await publisher.publish([Parcel("", "orders", properties, b"{}")])
    [theirs] = await asyncio.wait_for(transport.receive("orders", 1), PATIENCE)
    assert (theirs.message.id, theirs.message.attempt, theirs.failures) == ("theirs", 1, ())
    await transport.settle([Settlement(theirs, Retry(timedelta()), make_failure())])
    [again] = await asyncio.wait_for(transport.receive("orders", 1), PATIENCE)
    assert (again.message.id, again.message.attempt) == ("theirs", 2)


async def test_text_that_is_none_is_carried_as_what_it_is(transport: RabbitTransport, publisher: Publisher) -> None:
    bytes_in_text: Any = b"\xff-id"
    properties = BasicProperties(
        message_id=bytes_in_text, correlation_id=bytes_in_text, headers={bytes_in_text: 1, "n": {"deep": [1, None]}}
    )
    await publisher.publish([Parcel("", "orders", properties, b"\x00")])
    [theirs] = await asyncio.wait_for(transport.receive("orders", 1), PATIENCE)
    assert theirs.message.id == theirs.message.correlation_id == "\\xff-id"
    assert theirs.message.header("\\xff-id") == b"1"
    await transport.settle([Settlement(theirs, Retry(timedelta()), make_failure())])
    [again] = await asyncio.wait_for(transport.receive("orders", 1), PATIENCE)
    assert (again.message.id, again.message.attempt) == ("\\xff-id", 2)


async def test_headers_that_fill_a_frame_are_refused_and_break_nothing(transport: RabbitTransport) -> None:
    huge = make_message(id="huge", headers=(("x", b"y" * 131_000),))
    first, refused, last = await transport.send([make_message(id="before"), huge, make_message(id="after")])
    assert first == last == ACCEPTED
    assert refused.status is SendStatus.REFUSED
    assert "the headers of 'huge' fill a frame" in refused.why
    some = [*await transport.receive("orders", 1), *await asyncio.wait_for(transport.receive("orders", 1), PATIENCE)]
    assert [one.message.id for one in some] == ["before", "after"]


async def test_one_whose_headers_leave_no_room_for_why_it_died_is_a_letter_in_the_store(
    url: str, transport: RabbitTransport
) -> None:
    await transport.send([make_message(id="bad", body=b"bad", headers=(("x", b"y" * 130_850),))])
    work = Work(f"{url}&bury=dlq", attempts=1)
    letters = work.app.store.letters

    async def is_recorded() -> bool:
        return await letters.get(letter_id("orders", "bad")) is not None

    await until(is_recorded, what="its letter is in the store, because the dead-letter queue cannot take it")
    await work.end()
    assert not work.saw(BackendDown), "nothing is wrong with the broker"


async def test_a_story_that_does_not_fit_beside_the_headers_is_left_out(transport: RabbitTransport) -> None:
    await transport.send([make_message(id="large", headers=(("x", b"y" * 100_000),))])
    [first] = await transport.receive("orders", 1)
    failure = make_failure(message="once", stack="s" * 40_000)
    await transport.settle([Settlement(first, Retry(timedelta()), failure)])
    [second] = await asyncio.wait_for(transport.receive("orders", 1), PATIENCE)
    assert (second.message.attempt, second.failures) == (2, ())


async def test_a_message_without_an_id_has_one_through_its_retries(
    transport: RabbitTransport, publisher: Publisher
) -> None:
    await publisher.publish([Parcel("", "orders", BasicProperties(message_id=None), b"a")])
    [first] = await asyncio.wait_for(transport.receive("orders", 1), PATIENCE)
    await transport.settle([Settlement(first, Retry(timedelta()), make_failure())])
    [second] = await asyncio.wait_for(transport.receive("orders", 1), PATIENCE)
    assert first.message.id == second.message.id != ""


async def test_what_no_queue_takes_is_an_error(publisher: Publisher) -> None:
    parcels = [Parcel("", name, BasicProperties(message_id=name), b"x") for name in ("orders", "nowhere", "orders")]
    found = await publisher.outcomes(parcels)
    assert [type(one) for one in found] == [type(None), Unroutable, type(None)]
    assert "'nowhere'" in str(found[1])


# -- declarations ------------------------------------------------------------------------------------------------------


async def test_a_queue_that_is_declared_otherwise(transport: RabbitTransport, url: str) -> None:
    await transport.send([make_message()])
    other = open_transport(url.replace("200ms", "1s"), clock=SystemClock(), lease=LEASE)
    [clash] = await other.send([make_message()])
    assert (clash.status, "declared otherwise" in clash.why) == (SendStatus.BUSY, True)
    await other.aclose()
    strict = open_transport(f"{url}&declare=no", clock=SystemClock(), lease=LEASE)
    made, unmade = await strict.send([make_message(), make_message(source="unmade")])
    assert made == ACCEPTED, "it does not wait for its neighbour's queue"
    assert (unmade.status, "is not on the broker" in unmade.why) == (SendStatus.BUSY, True)
    await strict.aclose()


async def test_a_queue_that_was_deleted_is_made_again(
    rabbitmq_server: RabbitMQ, vhost: str, transport: RabbitTransport
) -> None:
    await transport.send([make_message()])
    web.call("DELETE", f"{rabbitmq_server.management_url}/api/queues/{vhost}/orders", credentials=GUEST)
    [unroutable] = await transport.send([make_message()])
    assert (unroutable.status, "no queue takes" in unroutable.why) == (SendStatus.BUSY, True)
    assert await transport.send([make_message()]) == [ACCEPTED]


async def test_nobody_is_there_to_take_it(rabbitmq_server: RabbitMQ) -> None:
    """Of what was never published it is known that it was not taken."""
    transport = open_transport("amqp://127.0.0.1:1/", clock=SystemClock(), lease=LEASE)
    results = await transport.send([make_message(), make_message(source="other")])
    assert {result.status for result in results} == {SendStatus.BUSY}
    await transport.aclose()


async def test_quorum_queues(url: str) -> None:
    transport = open_transport(f"{url}&queues=quorum", clock=SystemClock(), lease=LEASE)
    await transport.send([make_message(id=f"{n}") for n in range(50)])
    got: list[str] = []
    while len(got) < 50:
        some = await asyncio.wait_for(transport.receive("orders", 20), PATIENCE)
        again = [one for one in some if one.message.attempt == 1]
        await transport.settle([Settlement(one, Retry(timedelta()), make_failure()) for one in again])
        await transport.settle([Settlement(one, Done()) for one in some if one.message.attempt == 2])
        got += [one.message.id for one in some if one.message.attempt == 2]
    assert sorted(got, key=int) == [f"{n}" for n in range(50)]
    await transport.aclose()


async def test_headers_that_make_our_own_reading_fail_are_a_letter(
    url: str, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(table: Mapping[str, Any], source: str) -> int:
        if "poison" in table:
            raise RuntimeError("a bug of ours")
        return rejections(table, source)

    monkeypatch.setattr("redrive.transports.rabbitmq.wire.rejections", failing)
    poison, good = Properties(headers={"poison": "1"}), Properties(message_id="good")
    await publisher.publish([Parcel("", "orders", poison, b"1"), Parcel("", "orders", good, b"2")])
    work = Work(url)
    await work.until(lambda: work.done["good"] == 1, "what is behind it is handled")
    await work.until(lambda: work.saw(MessageBuried), "it is buried")
    page = await work.app.store.letters.search(Query())
    await work.end()
    [letter] = page.letters
    assert (letter.message.body, letter.failures[-1].type) == (b"1", "redrive.Unreadable")
    assert "its headers cannot be read: RuntimeError: a bug of ours" in letter.failures[-1].message
