"""RabbitMQ killed, cut off, full, emptied under us. Nothing is lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from urllib.parse import quote

import pytest

from redrive import Redrive
from redrive.clock import SystemClock
from redrive.doctor import Level, examine
from redrive.errors import TransportUnavailable
from redrive.forensics.query import Query
from redrive.model import Done, Message, Reason
from redrive.telemetry.events import BackendDown, BackendUp
from redrive.testing.builders import make_message
from redrive.testing.waiting import until
from redrive.transports.base import ACCEPTED, SendStatus, Settlement
from redrive.transports.rabbitmq.link import Link
from redrive.transports.rabbitmq.options import options_of
from redrive.transports.rabbitmq.redrive import DeadMessages
from redrive.transports.rabbitmq.transport import RabbitTransport, open_transport
from tests.servers import web
from tests.servers.fixtures import StartsServer
from tests.servers.rabbitmq import GUEST, RabbitMQ
from tests.servers.toxiproxy import Toxiproxy
from tests.trouble.rabbitmq.work import LEASE, PATIENCE, Work


async def test_the_broker_is_killed_under_load_and_comes_back(start_server: StartsServer) -> None:
    server = start_server(RabbitMQ)
    url = f"{server.url}?delay=200ms"
    sender = open_transport(url, clock=SystemClock(), lease=LEASE)
    await sender.send([make_message(id=f"a-{n}", body=b"ok") for n in range(3000)])
    await sender.send([make_message(id=f"bad-{n}", body=b"bad") for n in range(20)])
    work = Work(url, attempts=2, seconds=0.001)
    await work.until(lambda: len(work.done) > 50, "some are handled")
    server.kill9()
    await work.until(lambda: work.saw(BackendDown), "it is told")
    server.start()
    await work.until(lambda: len(work.done) == 3000, "all are handled")
    assert work.saw(BackendUp)
    assert set(work.attempts) == {1}, "what the broker calls delivered after its crash was tried by nobody"
    letters = work.app.store.letters

    async def buried() -> bool:
        return await letters.count(Query()) == 20

    await until(buried, what="all bad ones are letters", timeout=90)
    assert {one.reason for one in (await letters.search(Query())).letters} == {Reason.PERMANENT}
    await work.end()
    await sender.aclose()


async def test_a_connection_that_is_cut_in_the_middle_of_a_confirm(
    toxiproxy_server: Toxiproxy, rabbitmq_server: RabbitMQ, vhost: str, transport: RabbitTransport
) -> None:
    proxy = toxiproxy_server.proxy(rabbitmq_server.address)
    cut = open_transport(
        f"amqp://guest:guest@{proxy.address}/{vhost}?delay=200ms&confirm_timeout=2s", clock=SystemClock(), lease=LEASE
    )
    await cut.send([make_message(id="before")])
    proxy.add("limit_data", bytes=0)  # the broker takes it, and its answer reaches nobody
    [result] = await cut.send([make_message(id="during")])
    assert result.status is SendStatus.UNKNOWN
    proxy.remove("limit_data")
    await cut.send([make_message(id="during"), make_message(id="after")])
    names: Counter[str] = Counter()
    while not {"before", "during", "after"} <= set(names):
        names.update(one.message.id for one in await asyncio.wait_for(transport.receive("orders", 10), PATIENCE))
    assert names["during"] in (1, 2), "repeated, but not lost"
    await cut.aclose()


async def test_a_queue_that_is_deleted_under_its_consumer(
    rabbitmq_server: RabbitMQ, vhost: str, url: str, transport: RabbitTransport
) -> None:
    await transport.send([make_message(id="first", body=b"ok")])
    work = Work(url)
    await work.until(lambda: work.done["first"] == 1, "the first is handled")
    web.call("DELETE", f"{rabbitmq_server.management_url}/api/queues/{vhost}/orders", credentials=GUEST)
    await work.until(lambda: work.saw(BackendDown), "it is told")
    await _send_anew(url, make_message(id="second", body=b"ok"))
    await work.until(lambda: work.done["second"] == 1, "the second is handled")
    await work.end()


async def _send_anew(url: str, message: Message) -> None:
    """As a process does that has just begun, and so declares its queue."""
    transport = open_transport(url, clock=SystemClock(), lease=LEASE)
    assert await transport.send([message]) == [ACCEPTED]
    await transport.aclose()


@pytest.mark.parametrize("kind", ["queues", "exchanges"])
async def test_a_dead_letter_queue_that_is_missing_keeps_the_message(
    rabbitmq_server: RabbitMQ, vhost: str, url: str, transport: RabbitTransport, kind: str
) -> None:
    await transport.send([make_message(id="bad", body=b"bad")])
    name = {"queues": "orders.dlq", "exchanges": "dlq.orders"}[kind]
    web.call("DELETE", f"{rabbitmq_server.management_url}/api/{kind}/{vhost}/{name}", credentials=GUEST)
    work = Work(f"{url}&bury=dlq&declare=no", attempts=1)
    await work.until(lambda: work.saw(BackendDown), "it is loud")
    down = next(event for event in work.events if isinstance(event, BackendDown))
    assert "could not reach its dead-letter queue" in down.why
    await _send_anew(url, make_message(id="good", body=b"ok"))  # which makes what is missing again
    await work.until(lambda: work.done["good"] == 1, "others are handled")
    await until(lambda: _has_parked(url, "bad"), what="it is parked now", timeout=60)
    await work.end()


async def _has_parked(url: str, id: str) -> bool:
    parkings = DeadMessages(options_of(url), SystemClock())
    found = await parkings.peek("orders.dlq", 10)
    await parkings.aclose()
    return [one.message_id for one in found] == [id]


async def test_a_memory_or_disk_alarm_stops_publishers_and_not_consumers(start_server: StartsServer) -> None:
    server = start_server(RabbitMQ)
    transport = open_transport(f"{server.url}?delay=200ms&confirm_timeout=2s", clock=SystemClock(), lease=LEASE)
    await transport.send([make_message(id="before"), make_message(id="handled")])
    server.control("set_vm_memory_high_watermark", "absolute", "1MB")
    await until(lambda: _refuses(transport, "memory"), what="it says that it is low on memory", timeout=60)
    with pytest.raises(TransportUnavailable, match="takes nothing from publishers"):
        await transport.check()
    management = quote(server.management_url, safe="")
    async with Redrive(transport=f"{server.url}?management={management}", store="memory://") as app:
        failures = [one for one in (await examine(app)).findings if one.level is Level.FAILURE]
    assert [one.about for one in failures] == ["transports.default"]
    assert "memory on redrive@localhost" in failures[0].text
    held = await transport.receive("orders", 2)
    await transport.settle([Settlement(one, Done()) for one in held if one.message.id == "handled"])
    await transport.depths()  # comes back after the ack: the broker has read both
    server.control("set_vm_memory_high_watermark", "0.6")

    await until(lambda: _takes(transport, "after"), what="it takes messages again", timeout=60)
    names = {one.message.id for one in held}
    while "after" not in names:
        names |= {one.message.id for one in await asyncio.wait_for(transport.receive("orders", 50), PATIENCE)}
    assert "before" in names
    server.control("set_disk_free_limit", "1000000GB")
    await until(lambda: _refuses(transport, "disk"), what="it says that it is low on disk", timeout=60)
    await asyncio.wait_for(transport.aclose(), 60)  # though the broker does not hear it


async def _refuses(transport: RabbitTransport, why: str) -> bool:
    [result] = await transport.send([make_message(id="refused")])
    return result.status is not SendStatus.ACCEPTED and why in result.why


async def _takes(transport: RabbitTransport, id: str) -> bool:
    [result] = await transport.send([make_message(id=id)])
    return result.status is SendStatus.ACCEPTED


async def test_a_broker_that_answers_and_is_slow_is_waited_for(
    toxiproxy_server: Toxiproxy, rabbitmq_server: RabbitMQ, vhost: str
) -> None:
    """Each of its answers takes nearly a second: the first connection opens all the same."""
    proxy = toxiproxy_server.proxy(rabbitmq_server.address)
    proxy.add("latency", latency=900)
    link = Link(options_of(f"amqp://guest:guest@{proxy.address}/{vhost}"))
    channel = await link.channel()
    await channel.close()
    await link.aclose()
