"""Messages as rows of the queue, and back. What few messages have is packed into one column."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, TypeAlias

import msgspec

from redrive.clock import microseconds, moment
from redrive.model import Failure, Headers, Message
from redrive.transports.base import Delivery, Settlement
from redrive.untrusted import UNREADABLE

Row: TypeAlias = tuple[Any, ...]


class Rest(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The fields that few messages have; written only where there are some."""

    headers: Headers = ()
    key: bytes | None = None
    tenant: str | None = None
    correlation_id: str | None = None
    expires_at: int | None = None
    origin: str = ""


_NO_REST = Rest()
_encode = msgspec.msgpack.Encoder().encode
_decode_rest = msgspec.msgpack.Decoder(Rest).decode
_decode_failures = msgspec.msgpack.Decoder(tuple[Failure, ...]).decode
_LOWEST, _HIGHEST = -(1 << 31), (1 << 31) - 1


def as_bytes(text: str) -> bytes:
    """An id or a name as its column has it."""
    try:
        return text.encode()
    except UnicodeEncodeError:  # half a character, which somebody sent all the same
        return text.encode("utf-8", "surrogatepass")


def as_text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def digest(name: bytes) -> int:
    """A key or a tenant as a number of 64 bits. Two that share one only share their turn."""
    return int.from_bytes(blake2b(name, digest_size=8).digest(), "big", signed=True) or 1


def row(message: Message, delay: int) -> Row:
    """id, priority, delay, attempts made, time, tenant, its name, key, body, rest."""
    if not _LOWEST <= message.priority <= _HIGHEST:
        raise ValueError(f"priority {message.priority} does not fit into 32 bits")
    tenant = None if message.tenant is None else as_bytes(message.tenant)
    return (
        as_bytes(message.id),
        message.priority,
        delay,
        message.attempt - 1,
        microseconds(message.enqueued_at),
        None if tenant is None else digest(tenant),
        tenant,
        None if message.key is None else digest(message.key),
        message.body,
        _rest(message),
    )


def _rest(message: Message) -> bytes | None:
    if (
        not message.headers
        and message.key is None
        and message.tenant is None
        and message.correlation_id is None
        and message.expires_at is None
        and not message.origin
    ):
        return None  # as of most
    expires_at = None if message.expires_at is None else microseconds(message.expires_at)
    return _encode(
        Rest(message.headers, message.key, message.tenant, message.correlation_id, expires_at, message.origin)
    )


def deliveries(source: str, token: int, rows: Iterable[Row]) -> list[Delivery]:
    """What `queue_fetch` leased. One whose row somebody else wrote, or broke, is marked, and holds up no other."""
    rows = list(rows)
    try:
        return [_delivery(source, token, row) for row in rows]
    except UNREADABLE:  # one of them: each by itself
        return [_readable(source, token, row) for row in rows]


def _readable(source: str, token: int, row: Row) -> Delivery:
    try:
        return _delivery(source, token, row)
    except UNREADABLE as error:
        id, attempt, begun, lapsed, priority, _, body, *_ = row
        shown = id.decode("utf-8", "backslashreplace")
        message = Message(shown, source, body, moment(0), attempt=attempt, priority=priority)
        why = f"to unpack its row failed: {type(error).__name__}: {error}"
        return Delivery(message, (token, id), (), lapsed, unreadable=why, is_counted=begun)


def _delivery(source: str, token: int, row: Row) -> Delivery:
    id, attempt, begun, lapsed, priority, enqueued_at, body, packed, failures, _ = row
    rest = _NO_REST if packed is None else _decode_rest(packed)
    message = Message(
        as_text(id),
        source,
        body,
        moment(enqueued_at),
        rest.headers,
        rest.key,
        rest.tenant,
        rest.correlation_id,
        attempt,
        priority,
        None if rest.expires_at is None else moment(rest.expires_at),
        rest.origin,
    )
    history = () if failures is None else _decode_failures(failures)
    return Delivery(message, (token, id), history, lapsed, is_counted=begun)


def history(settlement: Settlement) -> bytes | None:
    """Every failure of a message so far; None: as they are."""
    if settlement.failure is None:
        return None
    return _encode((*settlement.delivery.failures, settlement.failure))
