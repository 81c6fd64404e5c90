"""What is sent arrives, as it was sent."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from redrive.model import Done, Message, Release, Retry
from redrive.testing.builders import make_failure, make_message
from redrive.testing.clock import START
from redrive.testing.transports.backend import EVERY_BYTE, NOTHING, TransportBackend, assert_waits, drain
from redrive.transports.base import ACCEPTED, Settlement, Transport

ROUND_TRIPS = {
    "empty body": make_message(body=b""),
    "every byte": make_message(body=EVERY_BYTE),
    "large body": make_message(body=EVERY_BYTE * 4096),  # as large as the backend takes, 1 MB at most
    "no JSON": make_message(body=b"\xff\xfe{not json"),
    "headers": make_message(headers=(("a", b"1"), ("b", b""), ("a", b"2"), ("A", b"3"))),
    "header that is no text": make_message(headers=(("x-raw", EVERY_BYTE), ("ünïcode 🗝", b"\xff\x00"))),
    "key": make_message(key=b"customer-7"),
    "key that is no text": make_message(key=EVERY_BYTE),
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


class Carrying:
    """Sending, and what becomes of what was sent."""

    @pytest.mark.parametrize("sent", ROUND_TRIPS.values(), ids=ROUND_TRIPS.keys())
    async def test_a_message_arrives_as_it_was_sent(
        self, backend: TransportBackend, transport: Transport, sent: Message
    ) -> None:
        sent = replace(sent, body=sent.body[: backend.largest_body])
        assert [*await transport.send([sent])] == [ACCEPTED]
        [delivery] = await backend.eventually(transport.receive(sent.source, 10))
        assert replace(delivery.message, origin="") == replace(sent, origin="")
        assert (delivery.failures, delivery.redelivered) == ((), False)

    async def test_a_message_is_carried_as_it_is_through_a_retry_and_a_release(
        self, backend: TransportBackend, transport: Transport
    ) -> None:
        sent = make_message(body=EVERY_BYTE, key=b"\xff", headers=(("h", b"\xfe"), ("h", b"")), tenant="t")
        await transport.send([sent])
        [first] = await backend.eventually(transport.receive(sent.source, 1))
        await transport.settle([Settlement(first, Release())])
        [second] = await backend.eventually(transport.receive(sent.source, 1))
        await transport.settle([Settlement(second, Retry(timedelta()), make_failure())])
        [third] = await backend.eventually(transport.receive(sent.source, 1))
        assert replace(third.message, origin="") == replace(sent, origin="", attempt=2)

    async def test_many_messages_are_sent_in_one_call(self, backend: TransportBackend, transport: Transport) -> None:
        sent = [make_message(body=str(n).encode()) for n in range(backend.many)]
        await transport.send(sent)
        got = await drain(backend, transport, "orders", backend.many)
        assert sorted(delivery.message.id for delivery in got) == sorted(message.id for message in sent)
        assert (await transport.depths()).get("orders", NOTHING).total == 0

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
            assert {delivery.message.id for delivery in got} == {f"of {name}"}
            assert {delivery.message.source for delivery in got} == {name}

    async def test_the_same_id_in_two_sources_is_two_messages(
        self, backend: TransportBackend, transport: Transport
    ) -> None:
        await transport.send([make_message(id="x", source="a", body=b"1"), make_message(id="x", source="b", body=b"2")])
        [first] = await backend.eventually(transport.receive("a", 10))
        await transport.settle([Settlement(first, Done())])
        [second] = await backend.eventually(transport.receive("b", 10))
        assert (first.message.body, second.message.body) == (b"1", b"2")

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
            await assert_waits(backend, transport)
            await transport.settle([Settlement(delivery, Done())])
            await assert_waits(backend, transport)
        else:
            more = await backend.eventually(drain(backend, transport, "orders", 2 - len(copies)))
            assert len(copies) + len(more) == 2
        await transport.send([make_message(id="same", body=b"later")])
        [later] = await backend.eventually(transport.receive("orders", 10))
        assert later.message.body == b"later", "an id that was done with is free again"
