"""A message as SQS carries it, and back.

    body         as it is, if it is a text that SQS takes; else base64, and the attribute `redrive-body` says so
    attributes   the headers, each as an attribute of its own where its name and value can be one, ten at most
    redrive      an attribute with the rest, as MessagePack: id, key, attempts, the story of its failures, …

What somebody else sent has no such attribute: its id is that of SQS, its key its group. Whoever reads what we sent sees
the plain body and the plain headers.
"""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from redrive.model import Failure, Headers, Message
from redrive.untrusted import UNREADABLE

OURS, ENCODING, TYPES, TRACE = "redrive", "redrive-body", "redrive-sqs-types", "AWSTraceHeader"
MOST_ATTRIBUTES = 10
_LONGEST_STORY = 64_000  # bytes of failures that travel with a message: older ones are left out first
_EMPTY = "(empty)"  # SQS takes no message without a body
_NAME = re.compile(
    r"(?!aws\.|amazon\.|redrive$|redrive-body$|redrive-sqs-types$|awstraceheader$)[\w-]+(?:\.[\w-]+)*", re.ASCII | re.I
)
_LONGEST_NAME = 256
_UNSAFE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SQS_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NUMBER = re.compile(r"[+-]?\d{1,38}(\.\d{1,38})?")


class State(Struct, omit_defaults=True):
    """What of a message has no place of its own in SQS."""

    id: str
    sent: datetime
    headers: tuple[tuple[str, bytes | None], ...] = ()  # in order; without a value: it is an attribute
    key: bytes | None = None
    tenant: str | None = None
    correlation: str | None = None
    attempt: int = 1
    priority: int = 0
    expires: datetime | None = None
    origin: str = ""
    redelivered: bool = False  # an earlier copy of it was held by somebody who did not settle it
    not_before: datetime | None = None
    failures: tuple[Failure, ...] = ()


class Packed(Struct, frozen=True):
    """What a request says of a message, and how large SQS thinks that is."""

    fields: dict[str, Any]
    size: int


class Unpacked(Struct, frozen=True):
    """A record of SQS, read."""

    message: Message
    failures: tuple[Failure, ...] = ()
    redelivered: bool = False
    not_before: datetime | None = None
    unreadable: str = ""


_encoder, _decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(State)


def pack(
    message: Message,
    *,
    attempt: int | None = None,
    failures: Sequence[Failure] = (),
    redelivered: bool = False,
    not_before: datetime | None = None,
) -> Packed:
    """The message for a request. Raises ValueError, TypeError or OverflowError for what nothing can carry."""
    body, encoding = _text(message.body)
    attributes: dict[str, dict[str, str]] = _all_theirs(message) if message.was_sent_back and not encoding else {}
    if attributes:
        return Packed({"MessageBody": body, "MessageAttributes": attributes}, _weight(body, attributes))
    if encoding:
        attributes[ENCODING] = _attribute(encoding.encode(), "String")
    headers = _spread(message.headers, attributes)
    state = State(
        message.id,
        message.enqueued_at,
        headers,
        message.key,
        message.tenant,
        message.correlation_id,
        message.attempt if attempt is None else attempt,
        message.priority,
        message.expires_at,
        message.origin,
        redelivered,
        not_before,
        _story(failures),
    )
    attributes[OURS] = _attribute(_encoder.encode(state), "Binary")
    fields: dict[str, Any] = {"MessageBody": body, "MessageAttributes": attributes}
    trace = message.header(TRACE)
    if trace:
        fields["MessageSystemAttributes"] = {TRACE: _attribute(trace, "String")}
    return Packed(fields, _weight(body, attributes))


def unpack(record: Mapping[str, Any], source: str, queue: str, now: datetime) -> Unpacked:
    """A record that was received. Whatever is in it, it is a message."""
    attributes, system = record.get("MessageAttributes") or {}, record.get("Attributes") or {}
    body, unreadable = _bytes(record.get("Body") or "", attributes)
    state = _state(attributes)
    if state is None:
        return Unpacked(_foreign(record, body, attributes, system, source, queue, now), unreadable=unreadable)
    message = Message(
        id=state.id,
        source=source,
        body=body,
        enqueued_at=state.sent,
        headers=_gathered(state.headers, attributes) if state.headers or len(attributes) > 1 else (),
        key=state.key,
        tenant=state.tenant,
        correlation_id=state.correlation,
        attempt=state.attempt,
        priority=state.priority,
        expires_at=state.expires,
        origin=state.origin or f"{queue}/{record.get('MessageId', '')}",
    )
    return Unpacked(message, state.failures, state.redelivered, state.not_before, unreadable)


# -- bodies ------------------------------------------------------------------------------------------------------------


def _text(body: bytes) -> tuple[str, str]:
    """A body as a text that SQS takes, and how it is encoded; empty: not at all."""
    if not body:
        return _EMPTY, "empty"
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return base64.b64encode(body).decode(), "base64"
    return (text, "") if _UNSAFE.search(text) is None else (base64.b64encode(body).decode(), "base64")


def _bytes(text: str, attributes: Mapping[str, Any]) -> tuple[bytes, str]:
    """The bytes of a body, and why they could not be read."""
    encoding = attributes.get(ENCODING)
    said = encoding.get("StringValue") if isinstance(encoding, dict) else None
    raw = text.encode("utf-8", "surrogatepass")
    if said is None:
        return raw, ""
    if said == "empty":
        return b"", ""
    try:
        if said != "base64":
            raise ValueError(f"{said!r} is no encoding of a body")
        return base64.b64decode(text, validate=True), ""
    except ValueError as error:
        return raw, f"its attribute {ENCODING} says {said}, and its body is not: {error}"


# -- headers and attributes --------------------------------------------------------------------------------------------


def _spread(headers: Headers, attributes: dict[str, dict[str, str]]) -> tuple[tuple[str, bytes | None], ...]:
    """Make attributes of the headers that can be some; returns all of them, with the values of those that cannot."""
    if not headers:
        return ()
    types, names = _types(headers), Counter(name for name, _ in headers)
    kept: list[tuple[str, bytes | None]] = []
    for name, value in headers:
        if name == TYPES and types:
            continue  # it is made anew of the attributes
        fits = len(attributes) + 1 < MOST_ATTRIBUTES
        if fits and value and names[name] == 1 and len(name) <= _LONGEST_NAME and _NAME.fullmatch(name):
            attributes[name] = _attribute(value, _type(types.pop(name, ""), value))
            kept.append((name, None))
        else:
            kept.append((name, value))
    if types:  # of what has become no attribute
        kept.append((TYPES, ",".join(f"{name}={type}" for name, type in types.items()).encode()))
    return tuple(kept)


def _gathered(named: Sequence[tuple[str, bytes | None]], attributes: Mapping[str, Any]) -> Headers:
    """The headers in order: those that travelled as attributes, and those that did not."""
    given = dict(_headers(attributes))
    types = given.pop(TYPES, b"")
    found = [(name, given.pop(name, b"") if value is None else value) for name, value in named]
    inline = next((value for name, value in named if name == TYPES and value), b"")
    if types and inline:
        found = [pair for pair in found if pair[0] != TYPES]
        types = inline + b"," + types
    return (*found, *given.items(), *([(TYPES, types)] if types else []))


def _headers(attributes: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
    """Attributes as headers, by name; where the type of one cannot be seen from its value, a header says it."""
    types: list[str] = []
    for name in sorted(attributes):
        if name in (OURS, ENCODING):
            continue
        value, type = _value(attributes[name])
        yield name, value
        if type != _type("", value):
            types.append(f"{name}={type}")
    if types:
        yield TYPES, ",".join(types).encode()


def _value(attribute: Any) -> tuple[bytes, str]:
    if not isinstance(attribute, dict):
        return b"", "String"
    type = str(attribute.get("DataType") or "String")
    if (binary := attribute.get("BinaryValue")) is not None:
        try:
            return base64.b64decode(binary), type
        except ValueError:
            return str(binary).encode(), type
    return str(attribute.get("StringValue") or "").encode("utf-8", "surrogatepass"), type


def _type(said: str, value: bytes) -> str:
    """The type of an attribute: as it was, if the value still is of that type; else text, where it is some."""
    try:
        text: str | None = value.decode()
    except UnicodeDecodeError:
        text = None
    if text is None or _UNSAFE.search(text):
        return said if said.startswith("Binary") else "Binary"
    if said.startswith("Number") and not _NUMBER.fullmatch(text):
        return "String"
    return said or "String"


def _types(headers: Headers) -> dict[str, str]:
    """The types of attributes, as the header about them says."""
    said = next((value for name, value in headers if name == TYPES), b"")
    pairs = (pair.partition("=") for pair in said.decode("utf-8", "replace").split(","))
    return {name: type for name, _, type in pairs if re.fullmatch(r"(String|Number|Binary)(\.[\w.-]{1,200})?", type)}


def _attribute(value: bytes, type: str) -> dict[str, str]:
    if type.startswith("Binary"):
        return {"DataType": type, "BinaryValue": base64.b64encode(value).decode()}
    return {"DataType": type, "StringValue": value.decode()}


def _all_theirs(message: Message) -> dict[str, dict[str, str]]:
    """The attributes of a message that somebody else sent with as many as SQS takes: it goes back exactly as it was,
    and there is no place for ours. Nothing, for any other message."""
    theirs = tuple(pair for pair in message.headers if not pair[0].startswith("redrive-"))
    types = _types(message.headers)
    made = {name: _attribute(value, _type(types.get(name, ""), value)) for name, value in theirs if value}
    is_theirs = len(theirs) == len(made) == MOST_ATTRIBUTES and all(map(_NAME.fullmatch, made))
    return made if is_theirs and _SQS_ID.fullmatch(message.id) and not (message.tenant or message.expires_at) else {}


def _weight(body: str, attributes: Mapping[str, dict[str, str]]) -> int:
    return len(body.encode()) + sum(map(_size, attributes.items()))


def _size(attribute: tuple[str, dict[str, str]]) -> int:
    """As SQS counts: name, type and value."""
    name, said = attribute
    value = len(said["BinaryValue"]) * 3 // 4 if "BinaryValue" in said else len(said["StringValue"].encode())
    return len(name) + len(said["DataType"]) + value


# -- state -------------------------------------------------------------------------------------------------------------


def _state(attributes: Mapping[str, Any]) -> State | None:
    """What we wrote of a message that we sent; None, if somebody else sent it."""
    said = attributes.get(OURS)
    if not isinstance(said, dict) or "BinaryValue" not in said:
        return None
    try:
        return _decoder.decode(base64.b64decode(said["BinaryValue"]))
    except (*UNREADABLE, TypeError):
        return None


def _foreign(
    record: Mapping[str, Any],
    body: bytes,
    attributes: Mapping[str, Any],
    system: Mapping[str, Any],
    source: str,
    queue: str,
    now: datetime,
) -> Message:
    group, trace = system.get("MessageGroupId"), system.get(TRACE)
    headers = [*_headers(attributes)]
    if OURS in attributes:  # it says nothing that we would understand, so it is a header as any other
        headers.append((OURS, _value(attributes[OURS])[0]))
    if trace:
        headers.append((TRACE, str(trace).encode()))
    return Message(
        id=str(record.get("MessageId") or ""),
        source=source,
        body=body,
        enqueued_at=_sent_at(system, now),
        headers=tuple(headers),
        key=None if group is None else str(group).encode(),
        origin=f"{queue}/{record.get('MessageId', '')}",
    )


def _sent_at(system: Mapping[str, Any], otherwise: datetime) -> datetime:
    millis = str(system.get("SentTimestamp") or "")
    if not millis.isdecimal() or not 0 < int(millis[:16]) < 1 << 47:
        return otherwise
    return datetime.fromtimestamp(int(millis) / 1000, UTC)


def _story(failures: Sequence[Failure]) -> tuple[Failure, ...]:
    """The latest failures that fit; of one that is too long by itself, the beginning of its texts."""
    kept: list[Failure] = []
    left = _LONGEST_STORY
    for failure in reversed(failures):
        size = len(_encoder.encode(failure))
        if size > left and not kept:
            failure, size = (
                replace(failure, stack=failure.stack[:8000], message=failure.message[:4000], frames=()),
                left,
            )
        if size > left:
            break
        left -= size
        kept.append(failure)
    return tuple(reversed(kept))
