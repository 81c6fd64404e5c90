"""What is in hand belongs to one, for as long as its lease lasts."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from redrive.flow.lineage import lineage, sent_back
from redrive.model import Done, Release, Retry
from redrive.testing.builders import make_failure, make_letter, make_message
from redrive.testing.clock import START
from redrive.testing.transports.backend import TransportBackend, assert_waiting, assert_waits, attempting, take
from redrive.transports.base import CountsBegun, Depth, Settlement, Transport


class Leases:
    """Holding, extending, losing and finding again."""

    async def test_a_leased_message_is_not_received_again(
        self, backend: TransportBackend, transport: Transport
    ) -> None:
        await transport.send([make_message()])
        await backend.eventually(transport.receive("orders", 1))
        await assert_waits(backend, transport)

    async def test_an_unsettled_message_comes_back_when_its_lease_ends(
        self, backend: TransportBackend, transport: Transport
    ) -> None:
        await transport.send([make_message(id="held")])
        await attempting(backend, transport)
        await backend.let_pass(backend.lease * 1.1)
        [again] = await backend.eventually(transport.receive("orders", 1))
        assert (again.message.id, again.redelivered) == ("held", True)
        assert again.message.attempt == (2 if transport.features.counts_attempts else 1)

    async def test_what_was_received_and_not_begun_is_not_counted_when_its_lease_ends(
        self, backend: TransportBackend, transport: Transport
    ) -> None:
        """Where the transport counts what begins: its worker died before it came to it, and nobody saw that attempt."""
        if not isinstance(transport, CountsBegun):
            return
        await transport.send([make_message(id="begun"), make_message(id="fetched")])
        deliveries = await take(backend, transport, "orders", 2)
        assert [delivery.is_counted for delivery in deliveries] == [False, False]
        assert await transport.begin(deliveries[:1]) == []
        await backend.let_pass(backend.lease * 1.1)
        after = {delivery.message.id: delivery for delivery in await take(backend, transport, "orders", 2)}
        assert (after["begun"].message.attempt, after["begun"].redelivered) == (2, True)
        assert (after["fetched"].message.attempt, after["fetched"].redelivered) == (1, False)
        assert await transport.begin(deliveries) == list(deliveries), "its lease was lost, and it was begun"
        transport.begin_at_once("orders", True)
        await transport.send([make_message(id="fast")])
        [fast] = await backend.eventually(transport.receive("orders", 1))
        assert fast.is_counted

    async def test_what_is_sent_back_takes_the_place_of_a_copy_that_a_dead_worker_left(
        self, backend: TransportBackend, transport: Transport
    ) -> None:
        """Its letter is written, its ack was not: its outcome must find the letter, and it has all its attempts."""
        letter = make_letter(make_message(id="held"))
        await transport.send([letter.message])
        await backend.eventually(transport.receive("orders", 1))
        await transport.send([sent_back(letter, now=START, replay="r-1")])
        await backend.let_pass(backend.lease * 1.1)
        deliveries = await take(backend, transport, "orders", 1 if transport.features.idempotent_send else 2)
        await assert_waits(backend, transport)
        assert any(lineage(delivery.message) and delivery.message.attempt == 1 for delivery in deliveries)

    async def test_what_is_sent_back_is_not_acknowledged_away_with_the_copy_whose_place_it_takes(
        self, backend: TransportBackend, transport: Transport
    ) -> None:
        """Its letter was written, due and sent back before its worker came to the ack."""
        letter = make_letter(make_message(id="held"))
        await transport.send([letter.message])
        [held] = await backend.eventually(transport.receive("orders", 1))
        await transport.send([sent_back(letter, now=START, replay="r-1")])
        await transport.settle([Settlement(held, Done())])
        await backend.let_pass(backend.lease * 1.1)
        [again] = await backend.eventually(transport.receive("orders", 1))
        assert lineage(again.message) is not None
        assert again.message.attempt == 1

    async def test_a_lease_that_ended_unsettled_is_not_forgotten(
        self, backend: TransportBackend, transport: Transport
    ) -> None:
        """Its message may have a letter already, written by who died: a later success has to resolve it."""
        await transport.send([make_message()])
        await attempting(backend, transport)
        await backend.let_pass(backend.lease * 1.1)
        for outcome in (Retry(timedelta()), Release(), Retry(timedelta())):
            [delivery] = await backend.eventually(transport.receive("orders", 1))
            assert delivery.redelivered
            await transport.settle([Settlement(delivery, outcome, make_failure())])
        [last] = await backend.eventually(transport.receive("orders", 1))
        assert last.redelivered

    async def test_somebody_who_waits_gets_what_a_lease_sets_free(
        self, backend: TransportBackend, transport: Transport
    ) -> None:
        await transport.send([make_message(id="held")])
        await backend.eventually(transport.receive("orders", 1))
        receiving = asyncio.ensure_future(transport.receive("orders", 1))
        await assert_waiting(backend, receiving)
        await backend.let_pass(backend.lease * 1.1)
        assert [delivery.message.id for delivery in await backend.eventually(receiving)] == ["held"]

    async def test_an_extended_lease_is_kept(self, backend: TransportBackend, transport: Transport) -> None:
        await transport.send([make_message(id="long"), make_message(id="short")])
        got = {delivery.message.id: delivery for delivery in await take(backend, transport, "orders", 2)}
        for _ in range(3):
            await backend.let_pass(backend.lease * 0.6)
            assert await transport.extend([got["long"]]) == []
        [only] = await backend.eventually(transport.receive("orders", 10))
        assert only.message.id == "short"
        assert await transport.settle([Settlement(got["long"], Done())]) == []

    async def test_a_lease_that_ended_and_was_extended_all_the_same_is_ours_alone(
        self, backend: TransportBackend, transport: Transport
    ) -> None:
        await transport.send([make_message(id="slow")])
        [held] = await backend.eventually(transport.receive("orders", 1))
        await backend.let_pass(backend.lease * 1.1)
        await transport.depths()
        if await transport.extend([held]):
            [other] = await backend.eventually(transport.receive("orders", 1))
            assert other.message.id == "slow"
            assert await transport.settle([Settlement(held, Done())]) == [held]
        else:
            await assert_waits(backend, transport)
            assert (await transport.depths())["orders"] == Depth(0, 0, 1)
            assert await transport.settle([Settlement(held, Done())]) == []

    async def test_a_lost_lease_is_reported_and_changes_nothing(
        self, backend: TransportBackend, transport: Transport
    ) -> None:
        await transport.send([make_message(id="contested")])
        [lost] = await backend.eventually(transport.receive("orders", 1))
        await backend.let_pass(backend.lease * 1.1)
        [ours] = await backend.eventually(transport.receive("orders", 1))
        assert await transport.extend([lost, ours]) == [lost]
        for outcome in (Done(), Retry(timedelta(hours=1)), Release(timedelta(hours=1))):
            assert await transport.settle([Settlement(lost, outcome, make_failure())]) == [lost]
        assert (await transport.depths())["orders"] == Depth(0, 0, 1)
        assert await transport.settle([Settlement(ours, Release())]) == []
        [after] = await backend.eventually(transport.receive("orders", 1))
        assert after.failures == (), "a failure was kept for who had lost its lease"
        assert after.message.attempt == ours.message.attempt

    async def test_one_lost_among_many_does_not_keep_the_others(
        self, backend: TransportBackend, transport: Transport
    ) -> None:
        await transport.send([make_message(id="early")])
        [early] = await backend.eventually(transport.receive("orders", 1))
        await backend.let_pass(backend.lease * 1.1)
        [retaken] = await backend.eventually(transport.receive("orders", 1))
        await transport.send([make_message(id=f"{n}") for n in range(3)])
        done, retried, released = await take(backend, transport, "orders", 3)
        lost = await transport.settle(
            [
                Settlement(done, Done()),
                Settlement(early, Done()),
                Settlement(retried, Retry(timedelta(hours=1)), make_failure()),
                Settlement(released, Release(timedelta(hours=1))),
            ]
        )
        assert lost == [early]
        assert await transport.settle([Settlement(retaken, Done())]) == []
        assert (await transport.depths())["orders"].total == 2
