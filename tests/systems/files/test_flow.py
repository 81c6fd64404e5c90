"""The five steps of the contract on a real broker: reject, retry queue, time, back to its own queue, and parking."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest
from pika import BasicProperties

from redrive import Policy, Redrive
from redrive.clock import SystemClock
from redrive.errors import ConfigError, UsageError
from redrive.model import Message
from redrive.telemetry.events import Event, MessageBuried, MessageRetried
from redrive.testing.builders import make_message
from redrive.testing.waiting import until
from redrive.transports.rabbitmq.publisher import Parcel, Unroutable
from redrive.transports.rabbitmq.redrive import COUNT, ID, DeadMessages
from redrive.transports.rabbitmq.transport import open_transport
from redrive.worker import Worker
from tests.systems.files.conftest import Broker


def app_of(broker: Broker, seen: list[Message], *, fails: int, queue: str = "q.thumbnail") -> Redrive:
    app = Redrive(transport=broker.url, store="memory://")

    @app.handler(queue, policy=Policy(attempts=4))
    async def handle(body: bytes, message: Message) -> None:
        seen.append(message)
        if len(seen) <= fails:
            raise ConnectionError("the converter is away")

    return app


async def run_until(app: Redrive, done: Any) -> None:
    worker = Worker(app, upkeep=False)
    task = asyncio.create_task(worker.run())
    try:
        await until(done, what="done", timeout=60)
    finally:
        worker.stop()
        await task
        await app.aclose()


async def test_a_retry_goes_round_its_own_queue_and_no_other(broker: Broker) -> None:
    seen: list[Message] = []
    app = app_of(broker, seen, fails=2)
    events: list[Event] = []
    app.events.subscribe(events.append)
    await broker.publish("files.validated.pdf", b'{"file": 1}', correlation_id="c-1", type="file.validated")
    await run_until(app, lambda: len(seen) == 3)
    assert [one.attempt for one in seen] == [1, 2, 3]
    assert {one.id for one in seen} == {seen[0].id}
    assert seen[0].origin == "domain.events/files.validated.pdf"
    assert len([one for one in events if isinstance(one, MessageRetried)]) == 2
    assert await broker.count("q.extractor") == 1, "the other consumer of the same event got it once"
    assert await broker.count("q.audit") == await broker.count("q.projection") == 1
    for queue in ("q.thumbnail", "q.thumbnail.retry", "q.thumbnail.dlq"):
        assert await broker.count(queue) == 0


async def test_after_three_retries_it_is_parked_as_it_was(broker: Broker, parkings: DeadMessages) -> None:
    seen: list[Message] = []
    app = app_of(broker, seen, fails=99)
    buried: list[Event] = []
    app.events.subscribe(lambda event: buried.append(event) if isinstance(event, MessageBuried) else None)
    sent: dict[str, Any] = {"content_type": "application/json", "type": "file.validated"}
    sent["headers"] = {"n": 7, "deep": {"a": [1, 2]}}
    await broker.publish("files.validated.pdf", b"\xff\x00raw", message_id="m-1", correlation_id="c-1", **sent)
    await run_until(app, lambda: bool(buried))
    assert [one.attempt for one in seen] == [1, 2, 3, 4]
    [parked] = await parkings.peek("q.thumbnail.dlq")
    assert (parked.body, parked.message_id) == (b"\xff\x00raw", "m-1")
    assert parked.properties["content_type"] == "application/json"
    assert parked.properties["type"] == "file.validated"
    assert (parked.headers["n"], parked.headers["deep"]) == (7, {"a": [1, 2]})
    assert parked.headers["x-redrive-error-type"] == "ConnectionError"
    assert parked.headers["x-redrive-attempts"] == 4
    assert await app.store.letters.count(_all()) == 0, "parked, and not in the store"


async def test_what_is_parked_still_says_how_it_came_and_went_round(broker: Broker, parkings: DeadMessages) -> None:
    """Also where a worker has died with it on the way, and a copy took its place."""
    seen: list[Message] = []
    app = app_of(broker, seen, fails=99)
    await broker.publish("files.validated.pdf", b"1", message_id="m-1")
    await run_until(app, lambda: len(seen) == 2)
    app = app_of(broker, seen, fails=99)
    holder = open_transport(broker.url, clock=SystemClock(), lease=timedelta(minutes=1))
    await asyncio.wait_for(holder.receive("q.thumbnail", 1), 60)
    await holder.aclose()  # as a worker that dies with it
    await run_until(app, lambda: len(seen) == 4)
    await until(lambda: _is(broker, "q.thumbnail.dlq", 1), what="it is parked")
    [parked] = await parkings.peek("q.thumbnail.dlq")
    assert (parked.exchange, parked.routing_key) == ("domain.events", "files.validated.pdf")
    assert parked.headers["x-redrive-routing-key"] == "files.validated.pdf"
    deaths = [(one["queue"], one["reason"], one["count"]) for one in parked.headers["x-death"]]
    assert sorted(deaths) == [("q.thumbnail", "rejected", 3), ("q.thumbnail.retry", "expired", 3)]
    assert parked.headers["x-first-death-exchange"] == "domain.events"
    await parkings.redrive("q.thumbnail", limit=1, by="ann")
    again: list[Message] = []
    await run_until(app_of(broker, again, fails=0), lambda: len(again) == 1)
    assert (again[0].attempt, again[0].origin) == (1, "domain.events/files.validated.pdf"), "it counts anew"


async def test_a_redrive_sends_it_round_with_the_headers_of_the_audit(broker: Broker, parkings: DeadMessages) -> None:
    await broker.publish("parking", b"1", exchange="dlq.q.thumbnail", message_id="m-1", headers={"x-death": ["forged"]})
    await broker.publish("parking", b"2", exchange="dlq.q.thumbnail", message_id="m-2")
    done = await parkings.redrive("q.thumbnail", limit=10, by="ann")
    assert (done.found, done.sent) == (2, 2)
    seen: list[Message] = []
    await run_until(app_of(broker, seen, fails=0), lambda: len(seen) == 2)
    first = next(one for one in seen if one.id == "m-1")
    assert first.attempt == 1
    headers = dict(first.headers)
    assert headers["x-redriven-by"] == b"ann"
    assert headers["x-redriven-from"] == b"q.thumbnail.dlq"
    assert json.loads(headers["x-redriven-count"]) == 1
    assert {b"1", b"2"} == {one.body for one in seen}
    assert len({dict(one.headers)["x-redriven-id"] for one in seen}) == 2
    assert await broker.count("q.extractor") == await broker.count("q.audit") == 0, "nobody else saw it"


async def test_peek_leaves_order_and_content(broker: Broker, parkings: DeadMessages) -> None:
    for number in range(30):
        await broker.publish("parking", b"%d" % number, exchange="dlq.q.audit", message_id=f"m-{number}")
    before = await parkings.peek("q.audit.dlq", limit=30)
    assert [one.body for one in before] == [b"%d" % number for number in range(30)]
    assert [one.body for one in await parkings.peek("q.audit.dlq", limit=7)] == [b"%d" % n for n in range(7)]
    after = await parkings.peek("q.audit.dlq", limit=1000)
    assert [(one.body, one.headers, one.properties) for one in after] == [
        (one.body, one.headers, one.properties) for one in before
    ]
    assert await parkings.count("q.audit.dlq") == 30


async def test_a_redrive_takes_no_more_than_asked_for_and_tells_how_far_it_is(
    broker: Broker, parkings: DeadMessages
) -> None:
    await _park(broker, "q.audit", 1300)
    steps: list[tuple[int, int]] = []
    done = await parkings.redrive("q.audit", limit=1100, by="ann", progress=lambda sent, of: steps.append((sent, of)))
    assert (done.found, done.sent) == (1300, 1100)
    assert steps[-1] == (1100, 1100)
    assert [sent for sent, _ in steps] == sorted(sent for sent, _ in steps)
    await until(lambda: _is(broker, "q.audit", 1100), what="all of them are back in their queue")
    assert await broker.count("q.audit.dlq") == 200


async def test_a_redrive_that_is_stopped_leaves_each_message_in_one_queue(
    broker: Broker, parkings: DeadMessages
) -> None:
    """What is under way is brought to its end."""
    await _park(broker, "q.audit", 3000)

    def stop(sent: int, _: int) -> None:
        if not redriving.cancelling():
            redriving.cancel()

    redriving = asyncio.create_task(parkings.redrive("q.audit", limit=3000, by="ann", progress=stop))
    with pytest.raises(asyncio.CancelledError):
        await redriving
    left = await broker.count("q.audit.dlq")
    assert 0 < left < 3000
    await until(lambda: _is(broker, "q.audit", 3000 - left), what="all others are back in their queue")


async def test_a_redrive_whose_way_back_is_missing_moves_nothing(broker: Broker, parkings: DeadMessages) -> None:
    await _park(broker, "q.audit", 1200)
    channel = await broker.link.channel()
    await channel.call(channel.raw.queue_unbind, "q.audit.retry", "retry.q.audit", "retry")
    await channel.close()
    with pytest.raises(Unroutable, match=r"retry\.q\.audit"):
        await parkings.redrive("q.audit", limit=1200, by="ann")
    assert await broker.count("q.audit.dlq") == 1200


async def _park(broker: Broker, queue: str, number: int) -> None:
    way = (f"dlq.{queue}", "parking")
    properties = [BasicProperties(message_id=f"m-{n}", delivery_mode=2) for n in range(number)]
    await broker.publisher.publish([Parcel(*way, one, b"x" * 300) for one in properties])


async def test_a_repeat_after_a_crash_has_the_same_id_and_two_strangers_never(
    broker: Broker, parkings: DeadMessages
) -> None:
    parked: list[dict[str, Any]] = [
        {"message_id": "m"},
        {"message_id": "m"},
        {"message_id": "n"},
        {"message_id": "m", "headers": {COUNT: 1}},
        {},
        {},
    ]
    way = ("dlq.q.audit", "parking")
    await broker.publisher.publish([Parcel(*way, BasicProperties(delivery_mode=2, **one), b"body") for one in parked])
    assert (await parkings.redrive("q.audit", limit=10, by="ann")).sent == len(parked)
    await until(lambda: _is(broker, "q.audit", len(parked)), what="all are back in their queue")
    once, repeat, *strangers = [message.headers[ID] for message in await parkings.peek("q.audit", len(parked))]
    assert once == repeat
    assert len({once, *strangers}) == 5


async def test_what_is_not_there(parkings: DeadMessages) -> None:
    assert await parkings.count("nobody.dlq") is None
    with pytest.raises(ConfigError, match=r"no queue 'nobody\.dlq'"):
        await parkings.peek("nobody.dlq")
    with pytest.raises(ConfigError, match=r"no queue 'nobody\.dlq'"):
        await parkings.redrive("nobody", limit=1, by="ann")
    with pytest.raises(UsageError, match="at least one"):
        await parkings.redrive("q.audit", limit=0, by="ann")


async def test_a_dlq_that_is_missing_keeps_the_message(broker: Broker) -> None:
    channel = await broker.link.channel()
    await channel.call(channel.raw.queue_delete, "q.thumbnail.dlq")
    await channel.close()
    app = Redrive(transport=broker.url + "&declare=no", store="memory://")
    told: list[Event] = []
    app.events.subscribe(told.append)

    @app.handler("q.thumbnail", policy=Policy(attempts=1))
    async def handle(body: bytes) -> None:
        raise ValueError("broken")

    await app.send_messages([make_message(id="m-1", source="q.thumbnail")])
    from redrive.telemetry.events import BackendDown

    await run_until(app, lambda: any(isinstance(one, BackendDown) and "dead-letter queue" in one.why for one in told))
    await until(lambda: _is(broker, "q.thumbnail", 1), what="it is back from where it waited")
    assert await broker.count("q.thumbnail.retry") == 0


def _all() -> Any:
    from redrive.forensics.query import Query

    return Query()


async def _is(broker: Broker, queue: str, number: int) -> bool:
    return await broker.count(queue) == number
