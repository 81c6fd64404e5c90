"""A message as a record of Kafka, and any record of Kafka as a message.

Key, value, headers and timestamp are the record's own. What Kafka has no place for (id, tenant, attempt, …) travels in
one JSON header, `redrive-message`; a record without it is taken as it is, and named by its place: `orders[3]@1007`.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct

from redrive.clock import microseconds, moment
from redrive.model import Failure, Headers, Message
from redrive.untrusted import UNREADABLE

ENVELOPE = "redrive-message"
TOMBSTONE = "redrive-tombstone"
"""On a message whose value is null: its body is empty, and it is sent again as null."""
NULLS = "redrive-null-headers"
"""On a message with headers whose value is null: which these are, so that they are sent again as null."""
FAILURES = "redrive-failures"
_NOT_THEIRS = (TOMBSTONE, NULLS, ENVELOPE, FAILURES)
_MOST_HISTORY = 256 << 10
_encode = msgspec.json.Encoder().encode


class Envelope(Struct, frozen=True, omit_defaults=True):
    """What Kafka has no field for."""

    id: str
    at: int  # when it was enqueued, in microseconds: Kafka's own timestamp has milliseconds
    tenant: str | None = None
    correlation_id: str | None = None
    attempt: int = 1
    priority: int = 0
    expires: int | None = None
    origin: str = ""
    due: int | None = None  # on a retry topic: not before


_decode = msgspec.json.Decoder(Envelope).decode
_decode_nulls = msgspec.json.Decoder(set[tuple[str, int]]).decode
_encode_failures = msgspec.msgpack.Encoder().encode
_decode_failures = msgspec.msgpack.Decoder(tuple[Failure, ...]).decode


class Arrived(Struct, frozen=True):
    """A record, read as a message."""

    message: Message
    failures: tuple[Failure, ...] = ()
    due: int | None = None
    at: datetime | None = None  # the record's own timestamp, where the envelope has another


class Reading:
    """Makes messages of the records of one source."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._millis, self._at = -1, moment(0)

    def plain(self, raw: Any, origin: str) -> Message:
        """A record without headers; most are."""
        value = raw.value()
        if value is None:
            return self._message(raw, origin, b"", ((TOMBSTONE, b""),))
        return Message(origin, self._source, value, self._time(raw), (), raw.key(), origin=origin)

    def full(self, raw: Any, headers: list[tuple[str, bytes | None]], origin: str) -> Arrived:
        """A record with headers. One of them that only looks like ours is just a header."""
        value: bytes | None = raw.value()
        kept = _kept(headers)
        if value is None:
            kept = (*kept, (TOMBSTONE, b""))
        envelope = _envelope(kept)
        if envelope is None:
            return Arrived(self._message(raw, origin, value or b"", kept))
        message = Message(
            id=envelope.id,
            source=self._source,
            body=value or b"",
            enqueued_at=moment(envelope.at),
            headers=tuple(pair for pair in kept if pair[0] not in (ENVELOPE, FAILURES)),
            key=raw.key(),
            tenant=envelope.tenant,
            correlation_id=envelope.correlation_id,
            attempt=envelope.attempt,
            priority=envelope.priority,
            expires_at=None if envelope.expires is None else moment(envelope.expires),
            origin=envelope.origin or origin,
        )
        return Arrived(message, _failures(kept), envelope.due, self._time(raw))

    def unread(self, raw: Any, headers: list[tuple[str, bytes | None]], origin: str) -> Message:
        """A record whose headers mean nothing to us, though they stay with it."""
        body, kept = raw.value(), tuple((name, value or b"") for name, value in headers)
        return self._message(raw, origin, body or b"", kept if body is not None else (*kept, (TOMBSTONE, b"")))

    def _message(self, raw: Any, origin: str, value: bytes, headers: Headers) -> Message:
        return Message(origin, self._source, value, self._time(raw), headers, raw.key(), origin=origin)

    def _time(self, raw: Any) -> datetime:
        millis = raw.timestamp()[1]
        if millis != self._millis:
            self._millis, self._at = millis, _moment(millis)
        return self._at


def headers_of(
    message: Message, *, due: datetime | None = None, failures: tuple[Failure, ...] = ()
) -> list[tuple[str, bytes | None]]:
    """The headers that it travels with."""
    envelope = Envelope(
        id=message.id,
        at=microseconds(message.enqueued_at),
        tenant=message.tenant,
        correlation_id=message.correlation_id,
        attempt=message.attempt,
        priority=message.priority,
        expires=None if message.expires_at is None else microseconds(message.expires_at),
        origin=message.origin,
        due=None if due is None else microseconds(due),
    )
    own = own_headers(message.headers)
    story = [(FAILURES, _history(failures))] if failures else []
    return [*own, (ENVELOPE, _encode(envelope)), *story]


def own_headers(headers: Headers) -> list[tuple[str, bytes | None]]:
    """The headers as they came from Kafka, and less what Kafka knows of by itself."""
    own: list[tuple[str, bytes | None]] = [pair for pair in headers if pair[0] not in _NOT_THEIRS]
    nulls = _read_nulls(headers)
    seen: Counter[str] = Counter()
    for place, (name, value) in enumerate(own if nulls else ()):
        if not value and (name, seen[name]) in nulls:
            own[place] = (name, None)
        seen[name] += 1
    return own


def value_of(message: Message) -> bytes | None:
    """Its body; None for a tombstone."""
    return None if not message.body and message.header(TOMBSTONE) is not None else message.body


def _kept(headers: list[tuple[str, bytes | None]]) -> Headers:
    """The headers as a message has them: without null, which is noted beside them."""
    kept = tuple((name, b"" if value is None else value) for name, value in headers)
    if all(value is not None for _, value in headers):
        return kept
    seen: Counter[str] = Counter()
    nulls = []
    for name, value in headers:
        if value is None:
            nulls.append((name, seen[name]))
        seen[name] += 1
    return (*(pair for pair in kept if pair[0] != NULLS), (NULLS, _encode(nulls)))


def without_lost_nulls(headers: Headers) -> Headers:
    """Headers of which some were taken away: what was null among those is not told of any more."""
    nulls = _read_nulls(headers)
    names = {name for name, _ in headers}
    kept = sorted(null for null in nulls if null[0] in names)
    if len(kept) == len(nulls):
        return headers
    others = tuple(pair for pair in headers if pair[0] != NULLS)
    return (*others, (NULLS, _encode(kept))) if kept else others


def _read_nulls(headers: Headers) -> set[tuple[str, int]]:
    """Names of headers that were null, and which of that name."""
    found = next((value for name, value in headers if name == NULLS), None)
    try:
        return set() if found is None else _decode_nulls(found)
    except UNREADABLE:
        return set()


def _history(failures: tuple[Failure, ...]) -> bytes:
    """The failures, or the last ones where they are too many for a header."""
    history: bytes = _encode_failures(failures)
    return history if len(history) <= _MOST_HISTORY else _encode_failures(failures[-1:])


def _envelope(headers: Headers) -> Envelope | None:
    found = next((value for name, value in reversed(headers) if name == ENVELOPE), None)
    if found is None:
        return None
    try:
        envelope = _decode(found)
        moment(envelope.at), moment(envelope.expires or 0)
    except UNREADABLE:
        return None
    return envelope if envelope.attempt >= 1 else None


def _failures(headers: Headers) -> tuple[Failure, ...]:
    found = next((value for name, value in headers if name == FAILURES), None)
    try:
        return () if found is None else _decode_failures(found)
    except UNREADABLE:
        return ()


def _moment(millis: int) -> datetime:
    """The record's time; a nonsensical one (a producer can write any) becomes the epoch."""
    try:
        return datetime.fromtimestamp(millis / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return moment(0)
