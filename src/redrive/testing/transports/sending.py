"""Every message that is sent gets an answer of its own, and the answer is true."""

from __future__ import annotations

from redrive.testing.builders import make_message
from redrive.testing.transports.backend import TransportBackend, assert_waits, drain
from redrive.transports.base import ACCEPTED, SendStatus, Transport


class Sending:
    """What `send` says of each message."""

    async def test_each_message_is_answered_for(self, backend: TransportBackend, transport: Transport) -> None:
        assert list(await transport.send([])) == []
        for number in (1, 7, min(backend.many, 300)):
            sent = [make_message(source=f"s-{n % 3}") for n in range(number)]
            assert list(await transport.send(sent)) == [ACCEPTED] * number
            for source in sorted({message.source for message in sent}):
                wanted = {message.id for message in sent if message.source == source}
                got = await drain(backend, transport, source, len(wanted))
                assert {delivery.message.id for delivery in got} == wanted

    async def test_what_is_accepted_is_there_for_others(self, backend: TransportBackend, transport: Transport) -> None:
        """Accepted means durable: it does not need its sender any more."""
        sender = await backend.open()
        results = await sender.send([make_message(id="kept"), make_message(id="kept too")])
        await sender.aclose()
        assert list(results) == [ACCEPTED] * 2
        if transport.features.shared:
            got = await drain(backend, transport, "orders", 2)
            assert {delivery.message.id for delivery in got} == {"kept", "kept too"}

    async def test_what_is_not_taken_does_not_hide_that_those_beside_it_are(
        self, backend: TransportBackend, transport: Transport
    ) -> None:
        """However often it is tried, those beside it are sent once."""
        for bad, status in await backend.not_taken(transport):
            good = [make_message(), make_message(), make_message(source="other")]
            results = await transport.send([good[0], bad, good[1], good[2]])
            assert [result.status for result in results] == [
                SendStatus.ACCEPTED,
                status,
                SendStatus.ACCEPTED,
                SendStatus.ACCEPTED,
            ]
            assert results[1].why, "it does not say why"
            [again] = await transport.send([bad])
            assert again.status is status
            for source, wanted in (("orders", good[:2]), ("other", good[2:])):
                got = await drain(backend, transport, source, len(wanted))
                assert {delivery.message.id for delivery in got} == {message.id for message in wanted}
                await assert_waits(backend, transport, source)
