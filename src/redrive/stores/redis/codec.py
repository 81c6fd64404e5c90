"""A letter as Redis keeps it: a short head that every step looks at, and a document that is only read.

The head holds what changes and what is searched or counted; the Lua scripts read it by position (lua/letters.lua).
The document holds the rest. Both are msgpack without names of fields, because memory is what a Redis has least of.
"""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import astuple, replace

from redrive.clock import microseconds, moment
from redrive.model import Category, Edit, Failure, Letter, Message, MessageId, Reason, Stage, State
from redrive.stores.redis.packing import pack, unpack


class Head(Struct, frozen=True, array_like=True, gc=False):
    """The head of a letter. Times are microseconds since 1970. Tables in Lua hold no nil: False stands for None."""

    seq: int  # given by the store: the order in which letters came
    state: State
    category: Category
    source: str
    group: str
    tenant: str | bool
    created_at: int
    updated_at: int | bool  # False: when it was created
    next_retry_at: int | bool
    expires_at: int | bool
    priority: int
    owner: str | bool
    lease_until: int | bool
    retries: int
    resends: int
    replay: str | bool
    transport: str  # empty: default
    depends_on: tuple[MessageId, ...]
    score: float | bool  # of its entry; made unique by the store
    is_body_in_entry: bool
    failures: int  # how many the document has: who rewrites it, changes the head
    version: int = 0  # as a rule this and the next are left out
    archived_from: State | bool = False

    @property
    def place(self) -> tuple[int, int]:
        """Its place in the order of letters."""
        return self.created_at, self.seq


_Failure = tuple[str, str, Category, bool, datetime, int, Stage, str | None, str, tuple[str, ...], str, str, int | None]


_FAILURES = tuple[_Failure, ...]
_FIELDS = len(Failure.__struct_fields__)
_WORTH_PACKING = 400  # bytes


class _Document(Struct, frozen=True, array_like=True, gc=False):
    message_id: str
    body: bytes | tuple[int, int]  # itself, or where in the entry it begins and ends
    enqueued_at: datetime
    headers: tuple[tuple[str, bytes], ...]
    key: bytes | None
    correlation_id: str | None
    attempt: int
    message_expires_at: datetime | None
    origin: str
    not_before: datetime | None
    reason: Reason
    max_retries: int
    failures: list[Any] | bytes  # as `_shortened` makes them; packed, if that is much shorter
    foreign: bool = False  # what was written before it was known lacks it
    edit: tuple[str, datetime, str, str | None, int | None] | None = None  # left out, if there was none


_encode = msgspec.msgpack.Encoder().encode
_decode_head = msgspec.msgpack.Decoder(Head).decode
_decode_document = msgspec.msgpack.Decoder(_Document).decode


class Found(Struct, frozen=True, gc=False):
    """A letter as it was read, with the bytes of its head: a change is made only if they are still there.

    Read without its document, it is a letter as its head tells it: enough for most filters of a query.
    """

    id: str
    raw: bytes
    head: Head
    letter: Letter


def found(id: str, raw: bytes, document: bytes | None, entry: bytes | None) -> Found:
    head = _decode_head(raw)
    letter = _told_by_head(id, head) if document is None else _letter(id, head, document, entry or b"")
    return Found(id, raw, head, letter)


def head_of(
    letter: Letter,
    *,
    seq: int = 0,
    score: float | bool = False,
    is_body_in_entry: bool = False,
    failures: int | None = None,
) -> bytes:
    """The head of a letter; one without a number gets it from the store."""
    message = letter.message
    seldom = (letter.version, _or_false(letter.archived_from)) if letter.version or letter.archived_from else ()
    return _encode(
        (
            seq,
            letter.state,
            letter.failures[-1].category,
            message.source,
            letter.group,
            _or_false(message.tenant),
            microseconds(letter.created_at),
            letter.updated_at != letter.created_at and microseconds(letter.updated_at),
            _micros(letter.next_retry_at),
            _micros(letter.expires_at),
            message.priority,
            _or_false(letter.owner),
            _micros(letter.lease_until),
            letter.retries,
            letter.resends,
            _or_false(letter.replay),
            "" if letter.transport == _DEFAULT else letter.transport,
            letter.depends_on,
            score,
            is_body_in_entry,
            len(letter.failures) if failures is None else failures,
            *seldom,
        )
    )


def changed_head(letter: Letter, before: Head) -> bytes:
    """The head of a letter whose document and entry stay as they are."""
    return head_of(
        letter,
        seq=before.seq,
        score=before.score,
        is_body_in_entry=before.is_body_in_entry,
        failures=before.failures,
    )


def document_of(letter: Letter, body: bytes | tuple[int, int]) -> bytes:
    """The document of a letter: all that its head does not hold."""
    message = letter.message
    return _encode(
        (
            message.id,
            body,
            message.enqueued_at,
            message.headers,
            message.key,
            message.correlation_id,
            message.attempt,
            message.expires_at,
            message.origin,
            message.not_before,
            letter.reason,
            letter.max_retries,
            _packed(_shortened([astuple(failure) for failure in letter.failures])),
            letter.foreign,
            *([] if letter.edit is None else [astuple(letter.edit)]),
        )
    )


def _told_by_head(id: str, head: Head) -> Letter:
    failure = Failure("", "", head.category, False, _NEVER, 0)
    message = Message("", head.source, b"", _NEVER, tenant=_or_none(head.tenant), priority=head.priority)
    return _assembled(id, head, message, (failure,), Reason.ATTEMPTS)


def _letter(id: str, head: Head, document: bytes, entry: bytes) -> Letter:
    rest = _decode_document(document)
    body = rest.body if isinstance(rest.body, bytes) else entry[rest.body[0] : rest.body[1]]
    message = Message(
        rest.message_id,
        head.source,
        body,
        rest.enqueued_at,
        rest.headers,
        rest.key,
        _or_none(head.tenant),
        rest.correlation_id,
        rest.attempt,
        head.priority,
        rest.message_expires_at,
        rest.origin,
        rest.not_before,
    )
    letter = _assembled(id, head, message, _failures(rest.failures), rest.reason, rest.max_retries, rest.foreign)
    return letter if rest.edit is None else replace(letter, edit=Edit(*rest.edit))


def _shortened(failures: list[tuple[Any, ...]]) -> list[Any]:
    """Failures with, after the first, only what differs from the one before: attempts mostly fail alike."""
    pairs = pairwise(failures)
    return [
        failures[0],
        *({n: new for n, (old, new) in enumerate(zip(*pair, strict=True)) if old != new} for pair in pairs),
    ]


def _packed(failures: list[Any]) -> list[Any] | bytes:
    data = _encode(failures)
    return failures if len(data) < _WORTH_PACKING else pack(data)


def _failures(kept: list[Any] | bytes) -> tuple[Failure, ...]:
    shortened = msgspec.msgpack.decode(unpack(kept)) if isinstance(kept, bytes) else kept
    row = shortened[0]
    row += [None] * (_FIELDS - len(row))  # what was written before it had as many
    rows = [row]
    for changed in shortened[1:]:
        row = row.copy()
        for n, value in changed.items():
            row[n] = value
        rows.append(row)
    return tuple([Failure(*fields) for fields in msgspec.convert(rows, _FAILURES)])


def _assembled(
    id: str,
    head: Head,
    message: Message,
    failures: tuple[Failure, ...],
    reason: Reason,
    max_retries: int = 0,
    foreign: bool = False,
) -> Letter:
    return Letter(
        id=id,
        message=message,
        failures=failures,
        state=head.state,
        reason=reason,
        group=head.group,
        created_at=moment(head.created_at),
        updated_at=moment(head.created_at if head.updated_at is False else head.updated_at),
        transport=head.transport or _DEFAULT,
        next_retry_at=_moment(head.next_retry_at),
        retries=head.retries,
        max_retries=max_retries,
        resends=head.resends,
        replay=_or_none(head.replay),
        depends_on=head.depends_on,
        expires_at=_moment(head.expires_at),
        owner=_or_none(head.owner),
        lease_until=_moment(head.lease_until),
        foreign=foreign,
        version=head.version,
        archived_from=_or_none(head.archived_from),
    )


_NEVER = moment(0)
_DEFAULT = "default"


def _or_false(value: str | None) -> str | bool:
    return False if value is None else value


def _or_none(value: Any) -> Any:
    return None if value is False else value


def _micros(at: datetime | None) -> int | bool:
    return False if at is None else microseconds(at)


def _moment(micros: int | bool) -> datetime | None:
    return None if micros is False else moment(micros)
