"""What a transport holds can be looked at without taking it, where it says that it can (`Finds`)."""

from __future__ import annotations

from datetime import timedelta

from redrive.model import Message
from redrive.testing.builders import make_message
from redrive.testing.clock import START
from redrive.testing.transports.backend import TransportBackend
from redrive.transports.base import Finds, Transport


def _messages() -> list[Message]:
    late = START + timedelta(minutes=5)
    return [
        make_message(id="a", body=b"\x00one"),
        make_message(id="b", body=b"two", headers=(("h", b"1"),), key=b"k"),
        make_message(id="c", body=b"\x00one more", enqueued_at=late),
        make_message(id="a", source="others", body=b"\x00one"),
    ]


class Finding:
    """Looking, by id, by what a body contains and by time."""

    async def test_what_is_held_is_found_without_being_taken(
        self, backend: TransportBackend, transport: Transport
    ) -> None:
        await transport.send(_messages())
        if not isinstance(transport, Finds):
            assert not hasattr(transport, "find"), "it has a `find` that is not the one of the protocol"
            return
        assert await transport.find("orders") == _messages()[:3]
        assert [message.id for message in await transport.find("orders", ids=["c", "a", "z"])] == ["a", "c"]
        assert [message.id for message in await transport.find("orders", containing=b"\x00one")] == ["a", "c"]
        since = START + timedelta(minutes=5)
        assert [message.id for message in await transport.find("orders", since=since)] == ["c"]
        assert [message.id for message in await transport.find("orders", ids=["b"], containing=b"one")] == []
        assert len(await transport.find("orders", limit=2)) == 2
        assert await transport.find("nothing") == []
        taken = await backend.eventually(transport.receive("orders", 10))
        assert {delivery.message.id for delivery in taken} == {"a", "b", "c"}, "nobody had taken them"
        assert len(await transport.find("orders")) == 3, "what is leased is still held"
