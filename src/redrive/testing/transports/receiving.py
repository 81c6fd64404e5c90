"""Who receives what, when, and in which order."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta

import pytest
from msgspec.structs import replace

from redrive.model import Done, Release
from redrive.testing.builders import make_message
from redrive.testing.transports.backend import (
    NOTHING,
    TransportBackend,
    assert_waiting,
    assert_waits,
    cancelled,
    drain,
    take,
)
from redrive.testing.waiting import until
from redrive.transports.base import Depth, Settlement, Transport


class Receiving:
    """Waiting, limits, order and several consumers."""

    async def test_receive_waits_and_a_send_wakes_it(self, backend: TransportBackend, transport: Transport) -> None:
        receiving = asyncio.ensure_future(transport.receive("orders", 10))
        await assert_waiting(backend, receiving)
        await transport.send([make_message(id="awaited")])
        assert [delivery.message.id for delivery in await backend.eventually(receiving)] == ["awaited"]

    async def test_a_send_through_another_instance(self, backend: TransportBackend, transport: Transport) -> None:
        other = await backend.open()
        try:
            receiving = asyncio.ensure_future(transport.receive("orders", 10))
            await assert_waiting(backend, receiving)
            await other.send([make_message(id="from elsewhere")])
            if transport.features.shared:
                assert [delivery.message.id for delivery in await backend.eventually(receiving)] == ["from elsewhere"]
            else:
                await assert_waiting(backend, receiving)
                await cancelled(receiving)
                assert [delivery.message.id for delivery in await other.receive("orders", 1)] == ["from elsewhere"]
        finally:
            await other.aclose()

    async def test_a_source_that_nobody_knows_is_simply_empty(
        self, backend: TransportBackend, transport: Transport
    ) -> None:
        await transport.send([make_message()])
        await assert_waits(backend, transport, source="no such source")

    async def test_no_more_than_the_limit_is_received(self, backend: TransportBackend, transport: Transport) -> None:
        await transport.send([make_message() for _ in range(7)])
        sizes = [len(await take(backend, transport, "orders", 3)) for _ in range(2)]
        assert sizes == [3, 3]
        assert len(await backend.eventually(transport.receive("orders", 3))) == 1

    async def test_order(self, backend: TransportBackend, transport: Transport) -> None:
        sent = [make_message(id=f"{n:03}", key=b"k%d" % (n % 3)) for n in range(60)]
        for start in range(0, 60, 20):
            await transport.send(sent[start : start + 20])
        got = await drain(backend, transport, "orders", 60, limit=7)
        names = [delivery.message.id for delivery in got]
        match transport.features.ordered_by:
            case "source":
                assert names == [message.id for message in sent]
            case "key":
                for key in {message.key for message in sent}:
                    assert [delivery.message.id for delivery in got if delivery.message.key == key] == [
                        message.id for message in sent if message.key == key
                    ]
            case "none":
                assert sorted(names) == [message.id for message in sent]
            case other:
                pytest.fail(f"features.ordered_by is {other!r}: it is 'source', 'key' or 'none'")

    async def test_the_most_urgent_come_first(self, backend: TransportBackend, transport: Transport) -> None:
        urgencies = [5, 0, -2, 5, 9, 0, -2]
        sent = [make_message(id=f"{n}", priority=urgency, key=b"k") for n, urgency in enumerate(urgencies)]
        await transport.send(sent)
        got = await drain(backend, transport, "orders", len(urgencies), limit=2)
        priorities = [delivery.message.priority for delivery in got]
        if transport.features.urgent_first:
            assert priorities == sorted(urgencies)
        elif transport.features.ordered_by == "none":
            assert sorted(priorities) == sorted(urgencies)
        else:
            assert priorities == urgencies

    async def test_two_consumers_never_share_a_message(self, backend: TransportBackend, transport: Transport) -> None:
        other = await backend.open() if transport.features.shared else transport
        names = [f"{n}" for n in range(min(backend.many, 300))]
        await transport.send([make_message(id=name) for name in names])
        consumers = [asyncio.ensure_future(_consume(consumer)) for consumer in (transport, other, transport, other)]
        counts: Counter[str] = Counter()
        try:
            await backend.eventually(until(lambda: _is_empty(transport), what="the queue is empty"))
        finally:
            for consumer in consumers:
                consumed = await cancelled(consumer)
                counts.update(consumed or [])
            if other is not transport:
                await other.aclose()
        assert counts == Counter(names)

    async def test_a_cancelled_receive_leaves_nothing_leased(
        self, backend: TransportBackend, transport: Transport
    ) -> None:
        for number in range(40):
            receiving = asyncio.ensure_future(transport.receive("orders", 10))
            for _ in range(number % 5):
                await asyncio.sleep(0)
            await transport.send([make_message(id=f"{number}")])
            for _ in range(number % 7):
                await asyncio.sleep(0.0002)
            received = await cancelled(receiving) or []
            await transport.settle([Settlement(delivery, Release()) for delivery in received])
        await backend.eventually(until(lambda: _has_ready(transport, 40), what="all 40 are ready, none leased"))
        got = await drain(backend, transport, "orders", 40)
        assert {delivery.message.attempt for delivery in got} == {1}

    async def test_a_message_with_a_time_is_not_received_before(
        self, backend: TransportBackend, transport: Transport
    ) -> None:
        """Where that is not promised, the core refuses such a message before the transport sees it."""
        if not transport.features.delays_sends:
            return
        sent = make_message(id="later", not_before=backend.now() + timedelta(minutes=10))
        await transport.send([sent, make_message(id="now")])
        [first] = await backend.eventually(transport.receive("orders", 10))
        assert first.message.id == "now"
        await transport.settle([Settlement(first, Done())])
        await assert_waits(backend, transport)
        assert (await transport.depths())["orders"] == Depth(0, 1, 0)
        await backend.let_pass(timedelta(minutes=10))
        [later] = await backend.eventually(transport.receive("orders", 10))
        assert replace(later.message, origin="") == replace(sent, not_before=None)
        assert (later.failures, later.redelivered) == ((), False)


async def _consume(transport: Transport) -> list[str]:
    """Receive, hold for a moment, finish; the ids when it is cancelled."""
    got: list[str] = []
    try:
        while True:
            some = await transport.receive("orders", 7)
            got += [delivery.message.id for delivery in some]
            await asyncio.sleep(0)
            await transport.settle([Settlement(delivery, Done()) for delivery in some])
    except asyncio.CancelledError:
        return got


async def _depth(transport: Transport) -> Depth:
    return (await transport.depths()).get("orders", NOTHING)


async def _is_empty(transport: Transport) -> bool:
    return (await _depth(transport)).total == 0


async def _has_ready(transport: Transport, number: int) -> bool:
    depth = await _depth(transport)
    return depth.leased == 0 and depth.ready == number
