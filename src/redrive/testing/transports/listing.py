"""How messages stand can be seen without taking them, where the transport says that it can (`Lists`). What its broker
does not tell is said in words, and then neither leases nor delays are promised here."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from redrive.errors import UsageError
from redrive.model import Retry
from redrive.testing.builders import make_failure, make_message
from redrive.testing.transports.backend import TransportBackend, attempting, drain
from redrive.transports.base import Listing, Lists, Queued, QueueState, Settlement, Transport


async def _pages(transport: Lists, limit: int, state: QueueState | None = None) -> list[Queued]:
    """Every message of `orders`, in pages of so many."""
    found: list[Queued] = []
    after: str | None = None
    while True:
        page = await transport.listing("orders", state=state, after=after, limit=limit)
        assert len(page.messages) <= limit
        found += page.messages
        after = page.after
        if after is None:
            return found


class Listed:
    """Looking at a queue."""

    async def test_a_queue_is_listed_without_being_touched(
        self, backend: TransportBackend, transport: Transport
    ) -> None:
        sent = [make_message(id=f"m{number}", body=b"%d" % number, key=b"k%d" % number) for number in range(5)]
        await transport.send([*sent, make_message(id="other", source="others")])
        if not isinstance(transport, Lists):
            assert not hasattr(transport, "listing"), "it has a `listing` that is not the one of the protocol"
            return
        before = await transport.depths()
        for limit in (2, 5, 100):
            found = await _pages(transport, limit)
            if not found:
                assert (await transport.listing("orders")).notes, "it shows nothing, and does not say why"
                continue
            assert sorted(item.message.id for item in found) == [message.id for message in sent]
            assert {item.state for item in found} == {QueueState.READY}
            shown = {item.message.id: replace(item.message, origin="") for item in found}
            assert shown == {message.id: message for message in sent}
        assert await transport.depths() == before
        got = await drain(backend, transport, "orders", 5)
        assert {(item.message.attempt, item.redelivered) for item in got} == {(1, False)}, "looking has changed it"
        empty: Listing = await transport.listing("others", state=QueueState.LEASED)
        assert empty.messages == ()

    async def test_what_is_in_hand_and_what_waits_is_told_apart(
        self, backend: TransportBackend, transport: Transport
    ) -> None:
        await transport.send([make_message(id=id) for id in ("first", "second", "third")])
        if not isinstance(transport, Lists) or (await transport.listing("orders")).notes:
            return
        failed, held = await attempting(backend, transport, 2)
        failure = make_failure(message="it broke")
        is_delayed = transport.features.native_delay
        if is_delayed:
            await transport.settle([Settlement(failed, Retry(timedelta(hours=1)), failure)])
        by_state = {state: await _pages(transport, 10, state) for state in QueueState}
        [ready] = by_state[QueueState.READY]
        leased = {item.message.id: item for item in by_state[QueueState.LEASED]}
        assert (ready.message.id, ready.message.attempt, ready.holder) == ("third", 1, "")
        assert leased.keys() == ({held.message.id} if is_delayed else {failed.message.id, held.message.id})
        in_hand = leased[held.message.id]
        assert in_hand.until is not None
        assert in_hand.until > backend.now()
        assert in_hand.message.attempt == 1
        assert in_hand.holder
        if transport.holder:
            assert in_hand.holder == transport.holder, "nobody could say whose it is"
        if is_delayed:
            [delayed] = by_state[QueueState.DELAYED]
            assert (delayed.message.id, delayed.message.attempt) == (failed.message.id, 2)
            assert delayed.failures[-1].message == "it broke"
            assert delayed.until is not None
            wait = delayed.until - backend.now()
            assert timedelta(minutes=59) < wait < timedelta(minutes=61)
        assert len(await _pages(transport, 1)) == 3

    async def test_a_place_that_no_page_gave_is_refused(self, transport: Transport) -> None:
        await transport.send([make_message()])
        if isinstance(transport, Lists) and (await transport.listing("orders")).messages:
            for nonsense in ("x", "-1", "१", "9" * 40, ""):
                with pytest.raises(UsageError, match="no place in this queue"):
                    await transport.listing("orders", after=nonsense)
