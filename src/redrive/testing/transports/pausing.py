"""A source that is paused hands out nothing, where the transport says that it can be paused (`Pausable`,
`FollowsPauses`)."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from redrive.model import Done, Release, Retry
from redrive.testing.builders import make_failure, make_message
from redrive.testing.clock import START
from redrive.testing.transports.backend import TransportBackend, assert_waiting, assert_waits, take
from redrive.transports.base import FollowsPauses, Pausable, Paused, Settlement, Transport

_ANN = Paused("orders", by="ann", at=START, why="its database is down: ünïcode 🗝")


async def _pause(transport: Transport, source: str = "orders") -> bool:
    """Pause it, however the transport is told; False: it cannot be paused."""
    if isinstance(transport, Pausable):
        assert await transport.pause(Paused(source, by="ann", at=START)) == Paused(source, by="ann", at=START)
    elif isinstance(transport, FollowsPauses):
        await transport.set_paused([source])
    else:
        for name in ("pause", "resume", "pauses", "set_paused"):
            assert not hasattr(transport, name), f"it has a `{name}` that is not the one of a protocol"
        return False
    return True


async def _resume(transport: Transport, source: str = "orders") -> None:
    if isinstance(transport, Pausable):
        assert await transport.resume(source) == Paused(source, by="ann", at=START)
    elif isinstance(transport, FollowsPauses):
        await transport.set_paused([])


class Pausing:
    """Pausing, and going on."""

    async def test_a_paused_source_hands_out_nothing_until_it_is_resumed(
        self, backend: TransportBackend, transport: Transport
    ) -> None:
        if not await _pause(transport):
            return
        await transport.send([make_message(id="a"), make_message(source="others", id="b")])
        receiving = asyncio.ensure_future(transport.receive("orders", 10))
        await assert_waiting(backend, receiving)
        [other] = await backend.eventually(transport.receive("others", 10))
        assert other.message.id == "b", "only one source is paused"
        await _resume(transport)
        [delivery] = await backend.eventually(receiving)
        assert (delivery.message.id, delivery.message.attempt, delivery.redelivered) == ("a", 1, False)
        await transport.settle([Settlement(delivery, Done()), Settlement(other, Done())])

    async def test_what_was_received_before_a_pause_may_end(
        self, backend: TransportBackend, transport: Transport
    ) -> None:
        sent = [make_message(id=f"{number}", key=f"{number}".encode()) for number in range(5)]
        await transport.send(sent)
        done, retried, released = await take(backend, transport, "orders", 3)
        if not await _pause(transport):
            return
        assert await transport.extend([done, retried, released]) == []
        outcomes = (Settlement(done, Done()), Settlement(retried, Retry(timedelta()), make_failure()))
        assert await transport.settle([*outcomes, Settlement(released, Release())]) == []
        await assert_waits(backend, transport)
        await _resume(transport)
        left = {item.message.id: item for item in await take(backend, transport, "orders", 4)}
        assert left.keys() == {message.id for message in sent} - {done.message.id}
        assert left[retried.message.id].message.attempt == 2
        others = [item for id, item in left.items() if id != retried.message.id]
        assert {(item.message.attempt, item.redelivered) for item in others} == {(1, False)}, "nobody had tried them"

    async def test_a_retry_that_becomes_due_waits_while_its_source_is_paused(
        self, backend: TransportBackend, transport: Transport
    ) -> None:
        await transport.send([make_message()])
        [delivery] = await backend.eventually(transport.receive("orders", 1))
        if not transport.features.native_delay or not await _pause(transport):
            return
        await transport.settle([Settlement(delivery, Retry(timedelta(minutes=10)), make_failure())])
        await backend.let_pass(timedelta(minutes=11))
        await assert_waits(backend, transport)
        await _resume(transport)
        [again] = await backend.eventually(transport.receive("orders", 1))
        assert again.message.attempt == 2

    async def test_a_pause_is_kept_with_who_made_it_and_the_first_one_stays(
        self, backend: TransportBackend, transport: Transport
    ) -> None:
        if not isinstance(transport, Pausable):
            return
        assert await transport.pause(_ANN) == _ANN
        bob = Paused("orders", by="bob", at=START, why="me too")
        assert await transport.pause(bob) == _ANN
        other = await backend.open() if transport.features.shared else transport
        assert isinstance(other, Pausable)
        try:
            assert [*await other.pauses()] == [_ANN]
            await other.send([make_message()])
            await assert_waits(backend, other)
            assert await other.resume("orders") == _ANN, "anybody may resume it"
        finally:
            if other is not transport:
                await other.aclose()
        assert [*await transport.pauses()] == []
        assert await transport.resume("orders") is None
        assert len(await backend.eventually(transport.receive("orders", 10))) == 1
        assert await transport.pause(bob) == bob

    async def test_a_pause_with_an_end_ends_by_itself(self, backend: TransportBackend, transport: Transport) -> None:
        if not isinstance(transport, Pausable):
            return
        ten = Paused("orders", by="rule", at=backend.now(), until=backend.now() + timedelta(minutes=10))
        assert await transport.pause(ten) == ten
        await transport.send([make_message()])
        receiving = asyncio.ensure_future(transport.receive("orders", 10))
        await backend.let_pass(timedelta(minutes=9))
        await assert_waiting(backend, receiving)
        await backend.let_pass(timedelta(minutes=2))
        assert len(await backend.eventually(receiving)) == 1
        assert await transport.pause(_ANN) == _ANN, "what is over does not count as the first"
