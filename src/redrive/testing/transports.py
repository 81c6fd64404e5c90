"""The promises of a transport, as tests. Whoever writes one gets them all by five lines:

    class TestMyTransport(TransportSuite):
        @pytest.fixture
        def backend(self) -> TransportBackend:
            return MyBackend()

Nothing is skipped: where `features` say that a promise is not made, what holds instead is asserted.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import pytest
import pytest_asyncio
from msgspec.structs import replace

from redrive.flow.lineage import lineage, sent_back
from redrive.model import Done, Message, Release, Retry
from redrive.testing.builders import make_failure, make_letter, make_message
from redrive.testing.clock import START
from redrive.testing.waiting import until
from redrive.transports.base import Delivery, Depth, Settlement, Transport

T = TypeVar("T")
_EVERY_BYTE = bytes(range(256))
_NOTHING = Depth(0, 0, 0)

ROUND_TRIPS = {
    "empty body": make_message(body=b""),
    "every byte": make_message(body=_EVERY_BYTE),
    "1 MB": make_message(body=_EVERY_BYTE * 4096),
    "no JSON": make_message(body=b"\xff\xfe{not json"),
    "headers": make_message(headers=(("a", b"1"), ("b", b""), ("a", b"2"), ("A", b"3"))),
    "header that is no text": make_message(headers=(("x-raw", _EVERY_BYTE), ("ünïcode 🗝", b"\xff\x00"))),
    "key": make_message(key=b"customer-7"),
    "key that is no text": make_message(key=_EVERY_BYTE),
    "empty key": make_message(key=b""),
    "tenant": make_message(tenant="acme"),
    "correlation id": make_message(correlation_id="c-1"),
    "priority": make_message(priority=-3),
    "expiry": make_message(expires_at=START + timedelta(days=365, microseconds=1)),
    "unicode": make_message(id="Grüße-🚚-\u202e", source="straße/🚏", tenant="テナント", correlation_id="\x00\n"),
    "attempt": make_message(attempt=4),
    "all of it": make_message(
        id="'; DROP TABLE queue; --",
        body=b"\x00",
        headers=(("h", b"\x80"),),
        key=b"\x00",
        tenant=" ",
        correlation_id='"',
        priority=7,
        expires_at=START,
        origin="elsewhere[3]@1007",
    ),
}


class TransportBackend:
    """How the suite gets at a transport, and how time passes for it. Subclass it for yours."""

    lease = timedelta(seconds=30)

    async def open(self) -> Transport:
        """Another instance: on the same queue if it can be shared, and otherwise on one of its own."""
        raise NotImplementedError

    def now(self) -> datetime:
        """What time it is for the transport."""
        return datetime.now(UTC)

    async def let_pass(self, span: timedelta) -> None:
        """Wait that long; a backend with a clock of its own moves it instead."""
        await asyncio.sleep(span.total_seconds())

    async def eventually(self, awaitable: Awaitable[T]) -> T:
        """Its result, however long it takes."""
        return await asyncio.wait_for(awaitable, 30)

    async def aclose(self) -> None:
        """Take away what the backend made."""


class TransportSuite:
    """Every promise in redrive.transports.base, tested on what the fixture `backend` gives."""

    pytestmark = pytest.mark.asyncio

    @pytest.fixture
    def backend(self) -> TransportBackend:
        raise NotImplementedError("give the suite a fixture `backend`")

    @pytest_asyncio.fixture
    async def transport(self, backend: TransportBackend) -> AsyncIterator[Transport]:
        transport = await backend.open()
        yield transport
        await transport.aclose()
        await backend.aclose()

    # -- carrying ------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("sent", ROUND_TRIPS.values(), ids=ROUND_TRIPS.keys())
    async def test_a_message_arrives_as_it_was_sent(
        self, backend: TransportBackend, transport: Transport, sent: Message
    ) -> None:
        await transport.send([sent])
        [delivery] = await backend.eventually(transport.receive(sent.source, 10))
        assert replace(delivery.message, origin="") == replace(sent, origin="")
        assert (delivery.failures, delivery.redelivered) == ((), False)

    async def test_a_message_is_carried_as_it_is_through_a_retry_and_a_release(
        self, backend: TransportBackend, transport: Transport
    ) -> None:
        sent = make_message(body=_EVERY_BYTE, key=b"\xff", headers=(("h", b"\xfe"), ("h", b"")), tenant="t")
        await transport.send([sent])
        [first] = await backend.eventually(transport.receive(sent.source, 1))
        await transport.settle([Settlement(first, Release())])
        [second] = await backend.eventually(transport.receive(sent.source, 1))
        await transport.settle([Settlement(second, Retry(timedelta()), make_failure())])
        [third] = await backend.eventually(transport.receive(sent.source, 1))
        assert replace(third.message, origin="") == replace(sent, origin="", attempt=2)

    async def test_a_thousand_messages_are_sent_in_one_call(
        self, backend: TransportBackend, transport: Transport
    ) -> None:
        sent = [make_message(body=str(n).encode()) for n in range(1000)]
        await transport.send(sent)
        got = await drain(backend, transport, "orders", 1000)
        assert sorted(one.message.id for one in got) == sorted(one.id for one in sent)
        assert (await transport.depths()).get("orders", _NOTHING).total == 0

    async def test_sending_nothing_does_nothing(self, transport: Transport) -> None:
        await transport.send([])
        await transport.settle([])
        assert await transport.extend([]) == []
        assert sum(depth.total for depth in (await transport.depths()).values()) == 0

    async def test_sources_do_not_mix(self, backend: TransportBackend, transport: Transport) -> None:
        names = ["a", "A", "a ", "a/b", "b"]
        await transport.send([make_message(id=f"of {name}", source=name) for name in names for _ in "12"])
        for name in names:
            got = await backend.eventually(transport.receive(name, 10))
            assert {one.message.id for one in got} == {f"of {name}"}
            assert {one.message.source for one in got} == {name}

    async def test_the_same_id_in_two_sources_is_two_messages(
        self, backend: TransportBackend, transport: Transport
    ) -> None:
        await transport.send([make_message(id="x", source="a", body=b"1"), make_message(id="x", source="b", body=b"2")])
        [one] = await backend.eventually(transport.receive("a", 10))
        await transport.settle([Settlement(one, Done())])
        [two] = await backend.eventually(transport.receive("b", 10))
        assert (one.message.body, two.message.body) == (b"1", b"2")

    async def test_sending_an_id_again_while_it_is_queued(
        self, backend: TransportBackend, transport: Transport
    ) -> None:
        first, again = make_message(id="same", body=b"first"), make_message(id="same", body=b"again")
        await transport.send([first, again])
        [delivery, *copies] = await backend.eventually(transport.receive("orders", 10))
        await transport.send([again])
        if transport.features.idempotent_send:
            assert not copies, "one id was delivered twice"
            assert delivery.message.body == b"first"
            await self._assert_waits(backend, transport)
            await transport.settle([Settlement(delivery, Done())])
            await self._assert_waits(backend, transport)
        else:
            more = await backend.eventually(drain(backend, transport, "orders", 2 - len(copies)))
            assert len(copies) + len(more) == 2
        await transport.send([make_message(id="same", body=b"later")])
        [later] = await backend.eventually(transport.receive("orders", 10))
        assert later.message.body == b"later", "an id that was done with is free again"

    # -- receiving -----------------------------------------------------------------------------------------------

    async def test_receive_waits_and_a_send_wakes_it(self, backend: TransportBackend, transport: Transport) -> None:
        receiving = asyncio.ensure_future(transport.receive("orders", 10))
        await self._assert_waiting(backend, receiving)
        await transport.send([make_message(id="awaited")])
        assert [one.message.id for one in await backend.eventually(receiving)] == ["awaited"]

    async def test_a_send_through_another_instance(self, backend: TransportBackend, transport: Transport) -> None:
        other = await backend.open()
        try:
            receiving = asyncio.ensure_future(transport.receive("orders", 10))
            await self._assert_waiting(backend, receiving)
            await other.send([make_message(id="from elsewhere")])
            if transport.features.shared:
                assert [one.message.id for one in await backend.eventually(receiving)] == ["from elsewhere"]
            else:
                await self._assert_waiting(backend, receiving)
                await _cancelled(receiving)
                assert [one.message.id for one in await other.receive("orders", 1)] == ["from elsewhere"]
        finally:
            await other.aclose()

    async def test_a_source_that_nobody_knows_is_simply_empty(
        self, backend: TransportBackend, transport: Transport
    ) -> None:
        await transport.send([make_message()])
        await self._assert_waits(backend, transport, source="no such source")

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
        names = [one.message.id for one in got]
        match transport.features.ordered_by:
            case "source":
                assert names == [one.id for one in sent]
            case "key":
                for key in {one.key for one in sent}:
                    assert [one.message.id for one in got if one.message.key == key] == [
                        one.id for one in sent if one.key == key
                    ]
            case "none":
                assert sorted(names) == [one.id for one in sent]
            case other:
                pytest.fail(f"features.ordered_by is {other!r}: it is 'source', 'key' or 'none'")

    async def test_the_most_urgent_come_first(self, backend: TransportBackend, transport: Transport) -> None:
        urgencies = [5, 0, -2, 5, 9, 0, -2]
        await transport.send([make_message(id=f"{n}", priority=urgency) for n, urgency in enumerate(urgencies)])
        got = await drain(backend, transport, "orders", len(urgencies), limit=2)
        expected = sorted(urgencies) if transport.features.urgent_first else urgencies
        assert [one.message.priority for one in got] == expected

    async def test_two_consumers_never_share_a_message(self, backend: TransportBackend, transport: Transport) -> None:
        other = await backend.open() if transport.features.shared else transport
        await transport.send([make_message(id=f"{n}") for n in range(300)])
        consumers = [asyncio.ensure_future(_consume(one)) for one in (transport, other, transport, other)]
        counts: Counter[str] = Counter()
        try:
            await backend.eventually(until(lambda: _is_empty(transport), what="the queue is empty"))
        finally:
            for consumer in consumers:
                names = await _cancelled(consumer)
                counts.update(names or [])
            if other is not transport:
                await other.aclose()
        assert counts == Counter(f"{n}" for n in range(300))

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
            for delivery in await _cancelled(receiving) or []:
                await transport.settle([Settlement(delivery, Release())])
        await backend.eventually(until(lambda: _has_ready(transport, 40), what="all 40 are ready, none leased"))
        got = await drain(backend, transport, "orders", 40)
        assert {one.message.attempt for one in got} == {1}

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
        await self._assert_waits(backend, transport)
        assert (await transport.depths())["orders"] == Depth(0, 1, 0)
        await backend.let_pass(timedelta(minutes=10))
        [later] = await backend.eventually(transport.receive("orders", 10))
        assert replace(later.message, origin="") == replace(sent, not_before=None)
        assert (later.failures, later.redelivered) == ((), False)

    # -- leases --------------------------------------------------------------------------------------------------

    async def test_a_leased_message_is_not_received_again(
        self, backend: TransportBackend, transport: Transport
    ) -> None:
        await transport.send([make_message()])
        await backend.eventually(transport.receive("orders", 1))
        await self._assert_waits(backend, transport)

    async def test_an_unsettled_message_comes_back_when_its_lease_ends(
        self, backend: TransportBackend, transport: Transport
    ) -> None:
        await transport.send([make_message(id="held")])
        await backend.eventually(transport.receive("orders", 1))
        await backend.let_pass(backend.lease * 1.1)
        [again] = await backend.eventually(transport.receive("orders", 1))
        assert (again.message.id, again.redelivered) == ("held", True)
        assert again.message.attempt == (2 if transport.features.counts_attempts else 1)

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
        await self._assert_waits(backend, transport)
        assert any(lineage(one.message) and one.message.attempt == 1 for one in deliveries)

    async def test_a_lease_that_ended_unsettled_is_not_forgotten(
        self, backend: TransportBackend, transport: Transport
    ) -> None:
        """Its message may have a letter already, written by who died: a later success has to resolve it."""
        await transport.send([make_message()])
        await backend.eventually(transport.receive("orders", 1))
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
        await self._assert_waiting(backend, receiving)
        await backend.let_pass(backend.lease * 1.1)
        assert [one.message.id for one in await backend.eventually(receiving)] == ["held"]

    async def test_an_extended_lease_is_kept(self, backend: TransportBackend, transport: Transport) -> None:
        await transport.send([make_message(id="long"), make_message(id="short")])
        got = {one.message.id: one for one in await take(backend, transport, "orders", 2)}
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
            await self._assert_waits(backend, transport)
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

    # -- settling ------------------------------------------------------------------------------------------------

    async def test_done_is_gone(self, backend: TransportBackend, transport: Transport) -> None:
        await transport.send([make_message()])
        [delivery] = await backend.eventually(transport.receive("orders", 1))
        assert await transport.settle([Settlement(delivery, Done())]) == []
        await backend.let_pass(backend.lease * 1.1)
        await self._assert_waits(backend, transport)
        assert (await transport.depths()).get("orders", _NOTHING).total == 0

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
        got = {one.message.id: one for one in await drain(backend, transport, "orders", 2)}
        assert (got["b"].message.attempt, got["c"].message.attempt) == (2, 1)
        if transport.features.keeps_history:
            assert [failure.message for failure in got["b"].failures] == ["once"]

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
                await self._assert_waits(backend, transport)
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
        await transport.send([make_message(id="paused"), make_message(id="other")])
        [paused] = await backend.eventually(transport.receive("orders", 1))
        await transport.settle([Settlement(paused, Release(timedelta(minutes=10)))])
        if transport.features.native_delay:
            got = await backend.eventually(transport.receive("orders", 10))
            assert [one.message.id for one in got] == ["other"], "it came back before its pause was over"
            await transport.settle([Settlement(one, Done()) for one in got])
        await backend.let_pass(timedelta(minutes=10))
        names = [one.message.id for one in await drain(backend, transport, "orders", 1)]
        assert "paused" in names

    async def test_a_retry_does_not_hold_up_the_others(self, backend: TransportBackend, transport: Transport) -> None:
        if not transport.features.native_delay:
            return await self._assert_a_parked_message_leaves_the_queue(backend, transport)
        await transport.send([make_message(id="bad", priority=-1), make_message(id="good")])
        [bad] = await backend.eventually(transport.receive("orders", 1))
        await transport.settle([Settlement(bad, Retry(timedelta(hours=1)), make_failure())])
        [good] = await backend.eventually(transport.receive("orders", 10))
        assert good.message.id == "good"
        return None

    # -- the rest ------------------------------------------------------------------------------------------------

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
        [one] = await backend.eventually(transport.receive("orders", 1))
        assert one.message.id == "still here", "closing one instance twice closed another"

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
            assert {one.message.id for one in got} == {"kept", "held"}
        finally:
            await second.aclose()

    # -- helpers -------------------------------------------------------------------------------------------------

    async def _assert_waits(self, backend: TransportBackend, transport: Transport, source: str = "orders") -> None:
        """Nothing is to be had now."""
        receiving = asyncio.ensure_future(transport.receive(source, 10))
        await self._assert_waiting(backend, receiving)
        await _cancelled(receiving)

    async def _assert_waiting(self, backend: TransportBackend, receiving: asyncio.Future[Sequence[Delivery]]) -> None:
        for _ in range(5):
            await backend.let_pass(timedelta(milliseconds=20))
            await asyncio.wait([receiving], timeout=0.005)
        if receiving.done():
            pytest.fail(f"nothing should have been received, but this was: {receiving.result()}")

    async def _assert_a_parked_message_leaves_the_queue(self, backend: TransportBackend, transport: Transport) -> None:
        """What the core does where there is no delay: it parks the message in the store, and this is done with."""
        await transport.send([make_message(id="bad", priority=-1), make_message(id="good")])
        [bad] = await backend.eventually(transport.receive("orders", 1))
        await transport.settle([Settlement(bad, Done())])
        await transport.send([replace(bad.message, attempt=2)])
        got = {one.message.id: one for one in await drain(backend, transport, "orders", 2)}
        assert got["bad"].message.attempt == 2, "a parked message goes on counting"
        assert got["good"].message.attempt == 1


async def take(backend: TransportBackend, transport: Transport, source: str, number: int) -> list[Delivery]:
    """So many, in hand: what was sent at once need not come at once."""
    got: list[Delivery] = []
    while len(got) < number:
        some = await backend.eventually(transport.receive(source, number - len(got)))
        assert len(some) <= number - len(got), "more than the limit was received"
        got += some
    return got


async def drain(
    backend: TransportBackend, transport: Transport, source: str, number: int, *, limit: int = 100
) -> list[Delivery]:
    """Receive and finish so many."""
    got: list[Delivery] = []
    while len(got) < number:
        some = await backend.eventually(transport.receive(source, limit))
        await transport.settle([Settlement(one, Done()) for one in some])
        got += some
    return got


async def _consume(transport: Transport) -> list[str]:
    """Receive, hold for a moment, finish; the ids when it is cancelled."""
    got: list[str] = []
    try:
        while True:
            some = await transport.receive("orders", 7)
            got += [one.message.id for one in some]
            await asyncio.sleep(0)
            await transport.settle([Settlement(one, Done()) for one in some])
    except asyncio.CancelledError:
        return got


async def _depth(transport: Transport) -> Depth:
    return (await transport.depths()).get("orders", _NOTHING)


async def _is_empty(transport: Transport) -> bool:
    return (await _depth(transport)).total == 0


async def _has_ready(transport: Transport, number: int) -> bool:
    depth = await _depth(transport)
    return depth.leased == 0 and depth.ready == number


async def _cancelled(task: asyncio.Future[T]) -> T | None:
    """Its result, if it had one before it could be cancelled."""
    task.cancel()
    try:
        return await task
    except asyncio.CancelledError:
        return None
