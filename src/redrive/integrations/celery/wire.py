"""A message of kombu as one of ours, and back: body, headers, properties, exchange and routing key stay what they were.

A header of Celery may be any JSON value, a header of ours is bytes. A text is kept as it is, unless it would read as
JSON; everything else is kept as JSON, so that people can read it and nothing is lost:

    task     tasks.add          the text
    retries  3                  the number
    shadow   "3"                a text that looks like a number
    stamp    {"$bytes":"AAE="}  what JSON has no value for
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Struct, field

from redrive.flow.lineage import BY_HAND, LETTER, REPLAY, RETRIES
from redrive.model import Headers, Message
from redrive.untrusted import UNREADABLE

ATTEMPTS = "redrive-attempts"
"""On the message of a retry: the attempts before it (attempts.py)."""
DELIVERY = "celery-delivery"
"""On a letter's message: how it was published, as JSON."""
LINEAGE = (LETTER, REPLAY, RETRIES, BY_HAND)
_LONGEST_NAME = 200
_NOT_KEPT = b"(this header could not be kept)"
_OF_ONE_DELIVERY = {
    *("delivery_tag", "delivery_info", "body_encoding", "application_headers", "headers"),
    *("content_type", "content_encoding"),
    *("user_id", "expiration"),  # a broker believes a user only of himself; what expired once must not expire again
}


class Delivery(Struct, frozen=True, kw_only=True):
    """How a message was published."""

    exchange: str = ""
    routing_key: str = ""
    content_type: str | None = None
    content_encoding: str | None = None
    compressed: bool = False  # the body of the letter is what the header `compression` was applied to
    properties: dict[str, Any] = field(default_factory=dict)


class Publication(Struct, frozen=True):
    """A message as it is published again."""

    delivery: Delivery
    body: bytes
    headers: dict[str, Any]


def kept(message: Any, *, task: str, id: str, now: datetime) -> Message:
    """That message of kombu, of a task of that name and id."""
    headers = message.headers or {}
    info = message.delivery_info or {}
    routing_key = str(info.get("routing_key") or "")
    return Message(
        id=id,
        source=(task or routing_key or "celery")[:_LONGEST_NAME],
        body=as_bytes(message.body),
        enqueued_at=now,
        headers=_kept_headers(headers, delivery_of(message)),
        correlation_id=_text(headers.get("root_id")),
        origin=routing_key,
    )


def delivery_of(message: Any) -> Delivery:
    """How that message of kombu came."""
    info = message.delivery_info or {}
    properties = {name: value for name, value in (message.properties or {}).items() if name not in _OF_ONE_DELIVERY}
    return Delivery(
        exchange=str(info.get("exchange") or ""),
        routing_key=str(info.get("routing_key") or ""),
        content_type=message.content_type,
        content_encoding=message.content_encoding,
        compressed="compression" in (message.headers or {}) and not message.errors,
        properties=properties,
    )


def identity(message: Any) -> tuple[str, str]:
    """The name and the id of the task that a message is for, as far as it says so; nothing is unpickled for it."""
    headers = message.headers or {}
    told = headers if "task" in headers else _json_body(message)
    task, id = _text(told.get("task")), _text(told.get("id"))
    return task or "", id or _text((message.properties or {}).get("message_id")) or _digest(message)


def published(message: Message) -> Publication:
    """A letter's message as it is published again. ValueError, saying why, if it does not say where it came from.

    It is attempted anew: with all its retries, at once, and without the time limit that it may have missed.
    """
    told = message.header(DELIVERY)
    if told is None:
        raise ValueError(f"it has no header {DELIVERY!r}, which says where it was published: is it a task of Celery?")
    try:
        delivery = msgspec.convert(read(told), Delivery)
    except UNREADABLE as error:
        raise ValueError(f"its header {DELIVERY!r} cannot be read: {error}") from error
    headers = {name: _read_header(name, value) for name, value in message.headers if name not in (DELIVERY, ATTEMPTS)}
    anew = {name: value for name, value in {"retries": 0, "eta": None, "expires": None}.items() if name in headers}
    return Publication(delivery, message.body, {**headers, **anew})


def lineage_of(message: Any, *, task: str, id: str, now: datetime) -> Message:
    """Only what says which letter a message was sent back from."""
    headers = message.headers or {}
    ours = tuple((name, _ascii(headers[name])) for name in LINEAGE if name in headers)
    return Message(id, task[:_LONGEST_NAME], b"", now, ours)


def as_bytes(body: Any) -> bytes:
    """The body of a message of kombu, which is a text where its transport knows no bytes."""
    if isinstance(body, str):
        return body.encode("utf-8", "surrogatepass")
    return b"" if body is None else bytes(body)


def written(value: Any) -> bytes:
    """The value of a header as bytes; `read` makes it again."""
    if isinstance(value, str) and not _is_json(value):
        return value.encode("utf-8", "surrogatepass")
    return msgspec.json.encode(_plain(value))


def read(value: bytes) -> Any:
    """The value that `written` was given."""
    try:
        return _valued(msgspec.json.decode(value))
    except UNREADABLE:
        return value.decode("utf-8", "surrogatepass")


def _kept_headers(headers: Mapping[str, Any], delivery: Delivery) -> Headers:
    mine = [(str(name), value) for name, value in headers.items() if name != ATTEMPTS and name != DELIVERY]
    return (*((name, _kept_header(name, value)) for name, value in mine), (DELIVERY, _kept_delivery(delivery)))


def _kept_header(name: str, value: Any) -> bytes:
    try:
        return _ascii(value) if name in LINEAGE else written(value)
    except (*UNREADABLE, TypeError):  # nested too deeply, or of a type that no message brings
        return _NOT_KEPT


def _kept_delivery(delivery: Delivery) -> bytes:
    try:
        return written(msgspec.structs.asdict(delivery))
    except (*UNREADABLE, TypeError):
        return written(msgspec.structs.asdict(msgspec.structs.replace(delivery, properties={})))


def _read_header(name: str, value: bytes) -> Any:
    return value.decode("ascii", "replace") if name in LINEAGE else read(value)


def _plain(value: Any) -> Any:
    match value:
        case dict():
            plain = {str(name): _plain(each) for name, each in value.items()}
            return {"$dict": plain} if len(plain) == 1 and next(iter(plain)).startswith("$") else plain
        case list() | tuple():
            return [_plain(each) for each in value]
        case bytes() | bytearray() | memoryview():
            return {"$bytes": b64encode(value).decode()}
        case datetime():
            return {"$datetime": value.isoformat()}
        case Decimal():
            return {"$decimal": str(value)}
        case _:
            return value


def _valued(value: Any) -> Any:
    match value:
        case {"$dict": dict(inner), **rest} if not rest:
            return {name: _valued(each) for name, each in inner.items()}
        case {"$bytes": str(text), **rest} if not rest:
            return b64decode(text)
        case {"$datetime": str(text), **rest} if not rest:
            return datetime.fromisoformat(text)
        case {"$decimal": str(text), **rest} if not rest:
            return Decimal(text)
        case dict():
            return {name: _valued(each) for name, each in value.items()}
        case list():
            return [_valued(each) for each in value]
        case _:
            return value


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text.encode("utf-8", "surrogatepass"))
    except UNREADABLE:
        return False
    return True


def _json_body(message: Any) -> dict[str, Any]:
    """The body of a message of protocol 1; empty if it is no JSON."""
    if message.content_type != "application/json":
        return {}
    try:
        return msgspec.json.decode(as_bytes(message.body), type=dict[str, Any])
    except UNREADABLE:
        return {}


def _text(value: Any) -> str | None:
    return value[:_LONGEST_NAME].encode("utf-8", "replace").decode() if isinstance(value, str) and value else None


def _ascii(value: Any) -> bytes:
    return str(value).encode("ascii", "replace")


def _digest(message: Any) -> str:
    """An id for what has none: the same bytes are the same message."""
    return blake2b(as_bytes(message.body), digest_size=12).hexdigest()
