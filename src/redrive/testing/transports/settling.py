"""Done, retried or released: each as it was asked for, once."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace

from redrive.model import Done, Release, Retry
from redrive.testing.builders import make_failure, make_message
from redrive.testing.transports.backend import NOTHING, TransportBackend, assert_waits, drain, take
from redrive.transports.base import Depth, Settlement, Transport


class Settling:
    """What becomes of what was in hand."""

    async def test_done_is_gone(self, backend: TransportBackend, transport: Transport) -> None:
        await transport.send([make_message()])
        [delivery] = await backend.eventually(transport.receive("orders", 1))
        assert await transport.settle([Settlement(delivery, Done())]) == []
        await backend.let_pass(backend.lease * 1.1)
        await assert_waits(backend, transport)
        assert (await transport.depths()).get("orders", NOTHING).total == 0

    async def test_settling_twice_is_harmless(self, backend: TransportBackend, transport: Transport) -> None:
        await transport.send([make_message(id="a"), make_message(id="b"), make_message(id="c")])
        a, b, c = await take(backend, transport, "orders", 3)
        hour = timedelta(hours=1)
        batch = [
            Settlement(a, Done()),
            Settlement(b, Retry(hour), make_failure(message="once")),
            Settlement(c, Release(hour)),
        ]
        await transport.settle(batch)
        before = await transport.depths()
        await transport.settle(batch)
        assert await transport.depths() == before
        await transport.settle([Settlement(b, Done()), Settlement(c, Done())])
        assert await transport.depths() == before, "who has settled has no say any more"
        await backend.let_pass(timedelta(hours=1.1))
        got = {delivery.message.id: delivery for delivery in await drain(backend, transport, "orders", 2)}
        retried, released = got[b.message.id], got[c.message.id]
        assert (retried.message.attempt, released.message.attempt) == (2, 1)
        if transport.features.keeps_history:
            assert [failure.message for failure in retried.failures] == ["once"]

    async def test_a_retry(self, backend: TransportBackend, transport: Transport) -> None:
        """Where it has a delay of its own, it keeps to it; where not, the core parks, and asks for no delay."""
        delay = timedelta(minutes=10) if transport.features.native_delay else timedelta()
        await transport.send([make_message(id="again")])
        for attempt in (1, 2, 3):
            [delivery] = await backend.eventually(transport.receive("orders", 1))
            assert (delivery.message.attempt, delivery.redelivered) == (attempt, False)
            expected = tuple(f"failure {n}" for n in range(1, attempt)) if transport.features.keeps_history else ()
            assert tuple(failure.message for failure in delivery.failures) == expected
            failure = make_failure(attempt=attempt, message=f"failure {attempt}", stack="\x00\u202e", code="550")
            assert await transport.settle([Settlement(delivery, Retry(delay), failure)]) == []
            if transport.features.native_delay:
                assert (await transport.depths())["orders"] == Depth(0, 1, 0)
                await assert_waits(backend, transport)
                await backend.let_pass(delay)

    async def test_a_failure_is_kept_as_it_was(self, backend: TransportBackend, transport: Transport) -> None:
        failure = make_failure(code="SMTP 550", stack="Traceback…", frames=("shop:charge",), version="1.2")
        await transport.send([make_message()])
        [first] = await backend.eventually(transport.receive("orders", 1))
        await transport.settle([Settlement(first, Retry(timedelta()), failure)])
        [second] = await backend.eventually(transport.receive("orders", 1))
        assert second.failures == ((failure,) if transport.features.keeps_history else ())
        await transport.settle([Settlement(second, Release())])
        [third] = await backend.eventually(transport.receive("orders", 1))
        assert third.failures == second.failures, "giving it back forgot its story"

    async def test_a_release_is_as_if_it_had_not_been_received(
        self, backend: TransportBackend, transport: Transport
    ) -> None:
        await transport.send([make_message()])
        for _ in range(4):
            [delivery] = await backend.eventually(transport.receive("orders", 1))
            assert (delivery.message.attempt, delivery.redelivered) == (1, False)
            assert await transport.settle([Settlement(delivery, Release())]) == []

    async def test_a_release_with_a_pause(self, backend: TransportBackend, transport: Transport) -> None:
        await transport.send([make_message(), make_message()])
        [paused] = await backend.eventually(transport.receive("orders", 1))
        await transport.settle([Settlement(paused, Release(timedelta(minutes=10)))])
        if transport.features.native_delay:
            got = await backend.eventually(transport.receive("orders", 10))
            assert paused.message.id not in [other.message.id for other in got], (
                "it came back before its pause was over"
            )
            await transport.settle([Settlement(delivery, Done()) for delivery in got])
        await backend.let_pass(timedelta(minutes=10))
        names = [delivery.message.id for delivery in await drain(backend, transport, "orders", 1)]
        assert paused.message.id in names

    async def test_a_retry_does_not_hold_up_the_others(self, backend: TransportBackend, transport: Transport) -> None:
        if not transport.features.native_delay:
            return await self._assert_a_parked_message_leaves_the_queue(backend, transport)
        await transport.send([make_message(), make_message()])
        [bad] = await backend.eventually(transport.receive("orders", 1))
        await transport.settle([Settlement(bad, Retry(timedelta(hours=1)), make_failure())])
        [good] = await backend.eventually(transport.receive("orders", 10))
        assert good.message.id != bad.message.id
        return None

    async def _assert_a_parked_message_leaves_the_queue(self, backend: TransportBackend, transport: Transport) -> None:
        """What the core does where there is no delay: it parks the message in the store, and this is done with."""
        await transport.send([make_message(id="bad", priority=-1), make_message(id="good")])
        [bad] = await backend.eventually(transport.receive("orders", 1))
        await transport.settle([Settlement(bad, Done())])
        await transport.send([replace(bad.message, attempt=2)])
        got = {delivery.message.id: delivery for delivery in await drain(backend, transport, "orders", 2)}
        assert got["bad"].message.attempt == 2, "a parked message goes on counting"
        assert got["good"].message.attempt == 1
