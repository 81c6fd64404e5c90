"""The way back to FastStream's handlers: the same bytes and headers, into the queue, topic, list, stream or channel
that they came from.

    faststream+amqp://user:password@host/vhost    faststream+amqps://…
    faststream+kafka://host:9092                  faststream+kafka+ssl://…
    faststream+redis://host:6379/0                faststream+rediss://…, faststream+redis+cluster://…
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec
from msgspec import Struct

from redrive.clock import Clock
from redrive.integrations.faststream.envelope import Form, sealed
from redrive.integrations.faststream.reading import FORM, ID, KIND, PROPERTIES, TOMBSTONE, Kind, own_headers, shown
from redrive.integrations.over_redis import OverRedis
from redrive.integrations.send_only import SendOnly
from redrive.model import Message
from redrive.transports.base import ACCEPTED, SendResult, busy, refused
from redrive.untrusted import UNREADABLE

_SCHEME = "faststream+"
_NO_STREAM = "there is no stream {!r} now: start a worker, which makes it, first"
_NOBODY = "nobody listens to {!r} now: start a worker first"
_ELSEWHERE = "it died in a {} of another broker: set `transport=` of its middleware to the name of a way back to that"


class _Amqp(Struct):
    """What came with a message of RabbitMQ."""

    properties: dict[str, Any] = {}
    headers: dict[str, Any] = {}


def kind_of(message: Message) -> Kind | None:
    """What its worker said that it lay in."""
    said = (message.header(KIND) or b"").decode("ascii", "replace")
    return Kind(said) if said in set(Kind) else None


def elsewhere(message: Message) -> SendResult:
    return refused(_ELSEWHERE.format(kind_of(message) or "queue"))


class FastStreamRedis(OverRedis):
    """Into a list, a stream or a channel, as the key itself says; where there is none, as its worker said."""

    name = "FastStream on Redis"

    async def send(self, messages: Sequence[Message]) -> Sequence[SendResult]:
        types = await self.types_of([message.source for message in messages])
        commands = [_command(_place(message, types[message.source]), message) for message in messages]
        answers = iter(await self.link.commands([command for command in commands if command]))
        return [
            _answered(message, str(command[0]), next(answers)) if command else elsewhere(message)
            for message, command in zip(messages, commands, strict=True)
        ]


def _place(message: Message, type: str) -> str:
    return type if type in ("list", "stream") else str(kind_of(message) or "") if type == "none" else ""


def _command(place: str, message: Message) -> tuple[str | bytes, ...]:
    match place:
        case Kind.LIST:
            return ("RPUSH", message.source, envelope_of(message))
        case Kind.STREAM:
            return ("XADD", message.source, "NOMKSTREAM", "*", "__data__", envelope_of(message))
        case Kind.CHANNEL:
            return ("PUBLISH", message.source, envelope_of(message))
    return ()


def _answered(message: Message, command: str, answer: Any) -> SendResult:
    if command == "XADD" and answer is None:
        return busy(_NO_STREAM.format(message.source))
    if command == "PUBLISH" and not answer:
        return busy(_NOBODY.format(message.source))
    return ACCEPTED


def envelope_of(message: Message) -> bytes:
    """Body and headers as FastStream carries them through Redis."""
    headers = {name: value.decode("utf-8", "replace") for name, value in own_headers(message.headers)}
    said = (message.header(FORM) or b"").decode("ascii", "replace")
    form = Form.JSON if said == Form.JSON else Form.BINARY
    return sealed(form, message.body, {**headers, ID: message.id})


def open_redis(url: str, *, clock: Clock, lease: timedelta) -> SendOnly:
    return FastStreamRedis(url.removeprefix(_SCHEME))


def open_amqp(url: str, *, clock: Clock, lease: timedelta) -> SendOnly:
    from redrive.integrations.over_amqp import OverAmqp
    from redrive.transports.rabbitmq.properties import Properties
    from redrive.transports.rabbitmq.publisher import Parcel

    class FastStreamAmqp(OverAmqp):
        """Into the queue that it came from, and no other that its exchange would find."""

        name = "FastStream on RabbitMQ"

        def parcel_of(self, message: Message) -> Parcel:
            came = amqp_of(message)
            properties = Properties(
                **came.properties,
                message_id=message.id,
                headers=came.headers,
                delivery_mode=2,
                timestamp=int(message.enqueued_at.timestamp()),
            )
            return Parcel("", message.source, properties, message.body)

    return FastStreamAmqp(url.removeprefix(_SCHEME))


def amqp_of(message: Message) -> _Amqp:
    """Properties and headers as they came; a header that somebody has edited since is a text."""
    try:
        came = msgspec.msgpack.decode(message.header(PROPERTIES) or b"\x80", type=_Amqp)
    except UNREADABLE:
        came = _Amqp()
    table: dict[str, Any] = {}
    for name, value in own_headers(message.headers):
        is_same = name in came.headers and shown(came.headers[name]) == value
        table[name] = came.headers[name] if is_same else value.decode("utf-8", "replace")
    return _Amqp(came.properties, {**table, ID: message.id})


def open_kafka(url: str, *, clock: Clock, lease: timedelta) -> SendOnly:
    from redrive.integrations.faststream.over_kafka import OverKafka

    return OverKafka(url.removeprefix(_SCHEME))


def record_headers(message: Message) -> list[tuple[str, bytes | None]]:
    """The headers of a record of Kafka."""
    own: list[tuple[str, bytes | None]] = [pair for pair in own_headers(message.headers) if pair[0] != ID]
    return [*own, (ID, message.id.encode())]


def record_value(message: Message) -> bytes | None:
    """Its body; None for a tombstone."""
    return None if not message.body and message.header(TOMBSTONE) is not None else message.body
