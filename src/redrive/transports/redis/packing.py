"""Packs messages as Redis keeps them: one value for each, what few have at its end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from hashlib import blake2b

import msgspec
from msgspec.structs import replace

from redrive.clock import microseconds, moment
from redrive.model import Failure, Headers, Message
from redrive.transports.base import Delivery, Queued, QueueState, Settlement
from redrive.untrusted import UNREADABLE


class Parcel(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A message without its id, source and attempt, which are elsewhere."""

    body: bytes
    enqueued_at: int
    priority: int = 0
    tenant: str | None = None
    headers: Headers = ()
    key: bytes | None = None
    correlation_id: str | None = None
    expires_at: int | None = None
    origin: str = ""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Parcel).decode
_decode_failures = msgspec.msgpack.Decoder(tuple[Failure, ...]).decode
_ZERO, _LAPSED, _BEGUN = ord("0"), 1, 2  # lua/shared.lua says what they mean
_NOBODY = "-" * 16
_FIRST = b"-" * 16 + b"2000001"  # the state of a first attempt that has begun, where it is left out
Group = tuple[bool, str | None, int, int, int]  # sent back, tenant, priority, milliseconds to wait, attempts made


def packed(message: Message) -> bytes:
    """The value that is kept under a message's id."""
    return _encode(
        Parcel(
            message.body,
            microseconds(message.enqueued_at),
            message.priority,
            message.tenant,
            message.headers,
            message.key,
            message.correlation_id,
            None if message.expires_at is None else microseconds(message.expires_at),
            message.origin,
        )
    )


def digest(tenant: str | None) -> str:
    """A tenant as part of a key: short, whatever its name; empty for no tenant."""
    return "" if tenant is None else blake2b(tenant.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def delivered(
    source: str, token: bytes, ids: Iterable[bytes], parcels: Iterable[bytes | None], states: Iterable[bytes]
) -> list[Delivery]:
    """The deliveries that `fetch.lua` leased. One whose message is gone is left to its lease, which forgets it."""
    rows = [
        (id.decode("utf-8", "surrogatepass"), parcel, state)
        for id, parcel, state in zip(ids, parcels, states, strict=True)
        if parcel is not None
    ]
    try:
        return [_delivery(source, token, id, _decode(parcel), state) for id, parcel, state in rows]
    except UNREADABLE:  # one of them: each by itself
        return [_readable(source, token, *row) for row in rows]


def _readable(source: str, token: bytes, id: str, packed: bytes, state: bytes) -> Delivery:
    """The delivery; one whose value somebody else wrote, or broke, is marked, and holds up no other."""
    try:
        return _delivery(source, token, id, _decode(packed), state)
    except UNREADABLE as error:
        state = state or _FIRST
        message = Message(id, source, packed, moment(0), attempt=int(state[17:23]))
        why = f"to unpack what Redis has under its id failed: {type(error).__name__}: {error}"
        marks = state[16] - _ZERO
        counted = bool(marks & _BEGUN)
        return Delivery(message, token, (), bool(marks & _LAPSED), unreadable=why, is_counted=counted)


def _delivery(source: str, token: bytes, id: str, parcel: Parcel, state: bytes) -> Delivery:
    """The delivery; an empty state is that of a first attempt, which has begun."""
    message = Message(
        id,
        source,
        parcel.body,
        moment(parcel.enqueued_at),
        parcel.headers,
        parcel.key,
        parcel.tenant,
        parcel.correlation_id,
        int(state[17:23]) if state else 1,
        parcel.priority,
        None if parcel.expires_at is None else moment(parcel.expires_at),
        parcel.origin,
    )
    if not state:  # as almost all are
        return Delivery(message, token)
    failures, marks = state.split(b":", 2)[2], state[16] - _ZERO
    return Delivery(
        message,
        token,
        _decode_failures(failures) if failures else (),
        bool(marks & _LAPSED),
        is_counted=bool(marks & _BEGUN),
    )


def queued(source: str, now: datetime, id: bytes, kind: bytes, wait: bytes, parcel: bytes, state: bytes) -> Queued:
    """A message as `listing.lua` shows it. One without a state was never taken."""
    stands = QueueState(kind.decode())
    first = f"{_NOBODY}0000000::".encode()
    delivery = _readable(source, b"", id.decode("utf-8", "surrogatepass"), parcel, state or first)
    is_leased = stands is QueueState.LEASED
    made = delivery.message.attempt
    message = replace(delivery.message, attempt=made if is_leased else made + 1)
    until = None if stands is QueueState.READY else now + timedelta(milliseconds=int(wait))
    return Queued(message, stands, delivery.failures, until, state[:8].decode("latin-1") if is_leased else "")


def history(settlement: Settlement) -> bytes:
    """Every failure of a message so far, as they are kept beside it."""
    failures: Sequence[Failure] = settlement.delivery.failures
    if settlement.failure is not None:
        failures = (*failures, settlement.failure)
    return _encode(failures) if failures else b""
