"""A message as its broker gave it to FastStream: its own bytes and headers, whatever FastStream makes of them.

The libraries of the brokers are not imported: a worker has the one that it uses, and its messages are told apart by
what they have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import blake2b
from typing import Any
from uuid import uuid4

import msgspec

from redrive.integrations.faststream.envelope import opened
from redrive.model import Headers, Message

KIND, FORM, PROPERTIES, TOMBSTONE = "faststream-kind", "faststream-form", "faststream-amqp", "faststream-tombstone"
ID = "redrive-id"
"""The header with the id of a message that was sent back: most brokers give it another one."""
_DATA = b"__data__"
_PROPERTIES = ("content_type", "content_encoding", "correlation_id", "reply_to", "priority", "type", "app_id")
_BROKERS = frozenset(("x-death", "x-first-death-exchange", "x-first-death-queue", "x-first-death-reason", "CC", "BCC"))
_REDIS = {"list": "list", "blist": "list", "stream": "stream", "bstream": "stream"}


class Kind(StrEnum):
    """What a message lay in."""

    QUEUE = "queue"  # RabbitMQ
    TOPIC = "topic"  # Kafka
    LIST = "list"  # Redis
    STREAM = "stream"
    CHANNEL = "channel"


def kind_of(raw: Any) -> Kind | None:
    """None for what is of no broker that Redrive knows."""
    first = raw[0] if isinstance(raw, list | tuple) and raw else raw
    if isinstance(first, Mapping) and "channel" in first:
        return Kind(_REDIS.get(str(first.get("type")), "channel"))
    if hasattr(first, "topic"):
        return Kind.TOPIC
    return Kind.QUEUE if hasattr(first, "routing_key") else None


def messages_in(raw: Any, queue: str, now: datetime) -> list[Message]:
    """The message, or each message of a batch.

    queue   of the subscriber, where the message does not say it
    """
    kind = kind_of(raw)
    some = raw if isinstance(raw, list | tuple) else (raw,)
    if kind is Kind.QUEUE:
        return [_of_rabbitmq(message, queue, now) for message in some]
    if kind is Kind.TOPIC:
        return [_of_kafka(record) for record in some]
    return [] if kind is None else [message for entry in some for message in _of_redis(entry, kind, now)]


def _of_rabbitmq(raw: Any, queue: str, now: datetime) -> Message:
    table = {str(name): value for name, value in (raw.headers or {}).items() if name not in _BROKERS}
    known = {name: getattr(raw, name, None) for name in _PROPERTIES}
    kept = {name: value for name, value in known.items() if value is not None}
    at = raw.timestamp if isinstance(raw.timestamp, datetime) else None
    packed = msgspec.msgpack.encode({"properties": kept, "headers": table}, enc_hook=str)
    headers = (*((name, shown(value)) for name, value in table.items()), (KIND, b"queue"), (PROPERTIES, packed))
    id = table.get(ID) or raw.message_id or _made_id(raw.body, kept.get("correlation_id"), at)
    return Message(
        id=str(id),
        source=queue or str(raw.routing_key),
        body=raw.body,
        enqueued_at=_aware(at) or now,
        headers=headers,
        correlation_id=kept.get("correlation_id"),
        origin=f"{raw.exchange or '(default)'} → {raw.routing_key}",
    )


def _made_id(body: bytes, correlation_id: str | None, at: datetime | None) -> str:
    """The same for the same message when it is delivered again, if it says anything that only it says."""
    if correlation_id is None or at is None:
        return str(uuid4())
    said = f"{correlation_id}\0{at.isoformat()}\0".encode()
    return blake2b(said + body, digest_size=16).hexdigest()


def _of_kafka(record: Any) -> Message:
    """A record of aiokafka has attributes where one of confluent-kafka has methods."""

    def said(name: str) -> Any:
        value = getattr(record, name)
        return value() if callable(value) else value

    topic, partition, offset, at, value = (said(n) for n in ("topic", "partition", "offset", "timestamp", "value"))
    headers: Headers = tuple((str(name), _bytes(value)) for name, value in said("headers") or ())
    place = f"{topic}[{partition}]@{offset}"
    named = next((value.decode("utf-8", "replace") for name, value in headers if name == ID), place)
    marks = ((KIND, b"topic"), *(((TOMBSTONE, b"1"),) if value is None else ()))
    return Message(
        id=named,
        source=str(topic),
        body=_bytes(value),
        enqueued_at=_moment(at[1] if isinstance(at, tuple) else at),
        headers=headers + marks,
        key=said("key"),
        origin=place,
    )


def _of_redis(entry: Mapping[str, Any], kind: Kind, now: datetime) -> Iterator[Message]:
    data, ids = entry["data"], entry.get("message_ids") or ()
    some = data if isinstance(data, list) else [data]
    for number, item in enumerate(some):
        place = ids[number].decode() if number < len(ids) and isinstance(ids[number], bytes) else ""
        yield _in_redis(item, str(entry["channel"]), kind, place, now)


def _in_redis(item: bytes | Mapping[bytes, bytes], channel: str, kind: Kind, place: str, now: datetime) -> Message:
    if isinstance(item, Mapping):  # fields of a stream: FastStream's own is one of them, others it reads as JSON
        data = item.get(_DATA)
        if data is None:
            data = msgspec.json.encode({_text(name): _text(value) for name, value in item.items()})
    else:
        data = item
    read = opened(data)
    headers = tuple((name, value.encode()) for name, value in read.headers.items())
    return Message(
        id=read.headers.get(ID) or (f"{channel}@{place}" if place else str(uuid4())),
        source=channel,
        body=read.body,
        enqueued_at=now,
        headers=(*headers, (KIND, kind.encode()), (FORM, read.form.encode())),
        correlation_id=read.headers.get("correlation_id"),
        origin=f"{channel}@{place}" if place else channel,
    )


def shown(value: object) -> bytes:
    """A value of a header as a text; bytes stay what they are."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "backslashreplace")


def own_headers(headers: Headers) -> Iterable[tuple[str, bytes]]:
    """The headers that its sender gave it, and those by which it finds its letter."""
    return (pair for pair in headers if not pair[0].startswith("faststream-"))


def _bytes(value: str | bytes | None) -> bytes:
    return value.encode() if isinstance(value, str) else value or b""


def _text(value: bytes | str) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "backslashreplace")


def _aware(at: datetime | None) -> datetime | None:
    return at if at is None or at.tzinfo is not None else at.replace(tzinfo=UTC)


def _moment(millis: int | None) -> datetime:
    return datetime.fromtimestamp(max(millis or 0, 0) / 1000, UTC)
