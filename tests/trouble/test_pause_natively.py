"""A pause is carried out by the broker's own means: partitions that are not read, consumers that are cancelled."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from contextlib import aclosing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from redrive.clock import SystemClock
from redrive.model import Done
from redrive.testing.builders import make_message
from redrive.testing.waiting import until
from redrive.transports.base import Depth, Settlement
from redrive.transports.kafka.transport import KafkaTransport
from redrive.transports.kafka.transport import open_transport as open_kafka
from redrive.transports.rabbitmq.link import Link
from redrive.transports.rabbitmq.options import options_of
from redrive.transports.rabbitmq.transport import RabbitTransport
from redrive.transports.rabbitmq.transport import open_transport as open_rabbitmq
from tests.conformance.test_kafka_transport import make_topics
from tests.servers import web
from tests.servers.kafka import Kafka
from tests.servers.rabbitmq import GUEST, RabbitMQ

LEASE = timedelta(seconds=30)


# -- Kafka ---------------------------------------------------------------------------------------------------------


def _kafka(server: Kafka, name: str, place: Path) -> KafkaTransport:
    options = f"group={name}&counters=sqlite:///{place / 'counts.db'}&consumer.heartbeat.interval.ms=100"
    return open_kafka(f"kafka://{server.bootstrap}/?{options}", clock=SystemClock(), lease=LEASE)


def _shelf(transport: KafkaTransport, source: str) -> Any:
    return transport._readers[source].shelf


async def test_a_paused_partition_is_not_read_also_by_who_gets_it_in_a_rebalance(
    kafka_server: Kafka, tmp_path: Path
) -> None:
    name = f"native-{secrets.token_hex(4)}"
    orders, pulse = f"{name}.orders", f"{name}.pulse"
    make_topics(kafka_server, orders, partitions=4)
    make_topics(kafka_server, pulse)
    async with aclosing(_kafka(kafka_server, name, tmp_path)) as first:
        await first.send([make_message(source=orders, id="before")])
        [delivery] = await asyncio.wait_for(first.receive(orders, 1), 60)
        await first.settle([Settlement(delivery, Done())])
        await first.set_paused([orders])
        paused = asyncio.ensure_future(first.receive(orders, 10))
        await until(lambda: first._readers[orders]._has_paused, what="the thread has paused them")
        await first.send([make_message(source=orders, key=b"%d" % number) for number in range(40)])
        async with aclosing(_kafka(kafka_server, name, tmp_path)) as second:
            await second.set_paused([orders])
            also_paused = asyncio.ensure_future(second.receive(orders, 10))
            await until(lambda: _has_partitions(second, orders), what="the second has joined")
            await first.send([make_message(source=pulse, id="later")])
            [later] = await asyncio.wait_for(second.receive(pulse, 1), 60)
            assert later.message.id == "later"
            for transport in (first, second):
                assert _shelf(transport, orders).ready == 0, "what is paused is not even fetched"
            also_paused.cancel()
            await asyncio.gather(also_paused, return_exceptions=True)
        await until(lambda: len(_shelf(first, orders).partitions) == 4, what="all is the first's again")
        assert not paused.done()
        assert _shelf(first, orders).ready == 0
        await first.set_paused([])
        assert await asyncio.wait_for(paused, 60)
        await until(lambda: _shelf(first, orders).ready + _shelf(first, orders).leased == 40, what="all are read")


def _has_partitions(transport: KafkaTransport, source: str) -> bool:
    return source in transport._readers and bool(_shelf(transport, source).partitions)


# -- RabbitMQ ------------------------------------------------------------------------------------------------------


@pytest.fixture
def vhost(rabbitmq_server: RabbitMQ) -> Iterator[str]:
    name = f"native-{secrets.token_hex(4)}"
    place = f"{rabbitmq_server.management_url}/api/vhosts/{name}"
    web.call("PUT", place, credentials=GUEST)
    yield f"{rabbitmq_server.url.rstrip('/')}/{name}?delay=1h"
    web.call("DELETE", place, credentials=GUEST)


def _rabbitmq(url: str) -> RabbitTransport:
    return open_rabbitmq(url, clock=SystemClock(), lease=LEASE)


@pytest.mark.parametrize("redeliveries", ["count", "ignore"])
async def test_what_was_prefetched_goes_back_uncounted_and_others_have_it(vhost: str, redeliveries: str) -> None:
    url = f"{vhost}&redeliveries={redeliveries}"
    async with aclosing(_rabbitmq(url)) as first, aclosing(_rabbitmq(url)) as second:
        sent = [make_message(id=f"{number}") for number in range(10)]
        await first.send(sent)
        [held] = await asyncio.wait_for(first.receive("orders", 1), 60)
        await until(lambda: _is_so(url, ready=0, consumers=1), what="the others are prefetched")
        await first.set_paused(["orders"])
        assert await _is_so(url, ready=9, consumers=0)
        got = [held]
        while len(got) < 10:
            got += await asyncio.wait_for(second.receive("orders", 10), 60)
        assert {delivery.message.id for delivery in got} == {message.id for message in sent}
        assert {(delivery.message.attempt, delivery.redelivered) for delivery in got} == {(1, False)}
        assert await first.settle([Settlement(held, Done())]) == [], "what is in hand may end"
        await second.settle([Settlement(delivery, Done()) for delivery in got[1:]])
        await first.set_paused([])
        await first.send([make_message(id="after")])
        receiving = [asyncio.ensure_future(side.receive("orders", 1)) for side in (first, second)]
        await asyncio.wait(receiving, return_when=asyncio.FIRST_COMPLETED, timeout=60)
        assert await _is_so(url, ready=0, consumers=2)
        for task in receiving:
            task.cancel()
        await asyncio.gather(*receiving, return_exceptions=True)


async def test_a_channel_that_is_lost_during_a_pause_is_made_again_when_it_goes_on(vhost: str) -> None:
    async with aclosing(_rabbitmq(vhost)) as transport:
        await transport.send([make_message(id="a")])
        [delivery] = await asyncio.wait_for(transport.receive("orders", 1), 60)
        await transport.settle([Settlement(delivery, Done())])
        await transport.set_paused(["orders"])
        receiving = asyncio.ensure_future(transport.receive("orders", 1))
        transport._subscriptions["orders"]._channel.abandon()
        await until(lambda: transport._subscriptions["orders"].closed is not None, what="it is lost")
        await transport.set_paused(["orders"])
        async with aclosing(_rabbitmq(vhost)) as other:
            await other.send([make_message(id="b")])
            assert (await _depth(other)) == Depth(1, 0, 0)
        assert not receiving.done()
        await transport.set_paused([])
        [again] = await asyncio.wait_for(receiving, 60)
        assert (again.message.id, again.message.attempt) == ("b", 1)


async def _depth(transport: RabbitTransport) -> Depth:
    return (await transport.depths())["orders"]


async def _is_so(url: str, *, ready: int, consumers: int) -> bool:
    """Whether the broker has so many messages ready, and so many consumers."""
    link = Link(options_of(url))
    try:
        channel = await link.channel()
        frame = await channel.call(channel.raw.queue_declare, "orders", passive=True)
        return bool((frame.method.message_count, frame.method.consumer_count) == (ready, consumers))
    finally:
        await link.aclose()
