"""What a transport tells of itself, and what outlives it."""

from __future__ import annotations

from datetime import timedelta

from redrive.model import Done, Retry
from redrive.testing.builders import make_failure, make_message
from redrive.testing.transports.backend import TransportBackend, drain, take
from redrive.transports.base import Depth, Settlement, Transport


class Standing:
    """Depths, health, closing and durability."""

    async def test_depths(self, backend: TransportBackend, transport: Transport) -> None:
        await transport.send([make_message(source="x") for _ in range(5)] + [make_message(source="y")])
        assert await transport.depths() == {"x": Depth(5, 0, 0), "y": Depth(1, 0, 0)}
        first, second, _ = await take(backend, transport, "x", 3)
        assert (await transport.depths())["x"] == Depth(2, 0, 3)
        await transport.settle([Settlement(first, Done())])
        assert (await transport.depths())["x"] == Depth(2, 0, 2)
        if transport.features.native_delay:
            await transport.settle([Settlement(second, Retry(timedelta(hours=1)), make_failure())])
            assert (await transport.depths())["x"] == Depth(2, 1, 1)
        await backend.let_pass(backend.lease * 1.1)
        left = (await transport.depths())["x"]
        assert (left.leased, left.total) == (0, 4), "a lease that ended is no lease"

    async def test_check_says_nothing_when_all_is_well(self, transport: Transport) -> None:
        await transport.check()

    async def test_closing_twice_is_harmless(self, backend: TransportBackend, transport: Transport) -> None:
        other = await backend.open()
        await other.aclose()
        await other.aclose()
        await transport.send([make_message(id="still here")])
        [delivery] = await backend.eventually(transport.receive("orders", 1))
        assert delivery.message.id == "still here", "closing one instance twice closed another"

    async def test_what_was_sent_outlives_those_who_sent_it(
        self, backend: TransportBackend, transport: Transport
    ) -> None:
        first = await backend.open()
        await first.send([make_message(id="kept"), make_message(id="held", priority=-1)])
        await backend.eventually(first.receive("orders", 1))
        await first.aclose()
        second = await backend.open()
        try:
            if not transport.features.durable:
                assert sum(depth.total for depth in (await second.depths()).values()) == 0
                return
            await backend.let_pass(backend.lease * 1.1)
            got = await drain(backend, second, "orders", 2)
            assert {delivery.message.id for delivery in got} == {"kept", "held"}
        finally:
            await second.aclose()
