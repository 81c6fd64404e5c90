"""A letter as a row, and a row as a letter.

PostgreSQL's text holds every character but NUL and halves of surrogate pairs, and a message may carry those. What is
compared is written with escapes then. The letter itself is in `document` and `body`, which are bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any

from msgspec.structs import replace

from redrive.clock import microseconds, moment
from redrive.model import Letter, State
from redrive.stores.shape import Shape, decoded, encoded

Row = Sequence[Any]

INSERTED = {
    "id": "text",
    "state": "text",
    "category": "text",
    "source": "text",
    "group_id": "text",
    "created_at": "int8",
    "updated_at": "int8",
    "next_retry_at": "int8",
    "expires_at": "int8",
    "lease_until": "int8",
    "priority": "int8",
    "retries": "int8",
    "resends": "int8",
    "owner": "text",
    "transport": "text",
    "tenant": "text",
    "message_id": "text",
    "error_type": "text",
    "error_message": "text",
    "code": "text",
    "replay": "text",
    "archived_from": "text",
    "depends_on": "text[]",
    "body": "bytea",
    "document": "bytea",
}
"""The columns that are written, in their order, and their types."""
_READ = (
    *("seq", "created_at", "state", "updated_at", "next_retry_at", "expires_at", "owner", "lease_until"),
    *("retries", "resends", "replay", "archived_from", "body", "document"),
)
COLUMNS = ", ".join(f"l.{name}" for name in _READ)
"""The columns that are read, of a table that is called `l`."""

_UNFIT = re.compile("[\0\x1a\ud800-\udfff]")
_ESCAPED = re.compile("\x1a([0-9a-f]{4})")
_LONGEST_KEY = 300  # characters; an entry of an index has 2,700 bytes at most
_LARGEST, _SMALLEST = (1 << 63) - 1, -(1 << 63)


def clean(text: str) -> str:
    """The text as PostgreSQL can hold it; two texts never become one."""
    return _UNFIT.sub(lambda found: f"\x1a{ord(found[0]):04x}", text) if _UNFIT.search(text) else text


def unclean(text: str) -> str:
    """What `clean` was given."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text) if "\x1a" in text else text


def keyed(text: str) -> str:
    """The same for what has an index: what is longer than an entry may be ends in its digest."""
    cleaned = clean(text)
    if len(cleaned) <= _LONGEST_KEY:
        return cleaned
    return f"{cleaned[: _LONGEST_KEY - 70]}\x1a#{sha256(cleaned.encode()).hexdigest()}"


def row_of(letter: Letter, shape: Shape) -> Row:
    """The values of INSERTED. The body has a column of its own; it is not written twice."""
    message, last = letter.message, letter.failures[-1]
    texts = _texts(letter)
    if not _are_plain(texts):
        texts = [None if text is None else write(text) for text, write in zip(texts, _WRITES, strict=True)]
    source, group, tenant, message_id, error_type, error_message, transport, code, owner, replay = texts
    return (
        letter.id,
        letter.state.value,
        last.category.value,
        source,
        group,
        microseconds(letter.created_at),
        microseconds(letter.updated_at),
        _micros(letter.next_retry_at),
        _micros(letter.expires_at),
        _micros(letter.lease_until),
        min(max(message.priority, _SMALLEST), _LARGEST),
        letter.retries,
        letter.resends,
        owner,
        transport,
        tenant,
        message_id,
        error_type,
        error_message,
        code,
        replay,
        letter.archived_from and letter.archived_from.value,
        cleaned_all(letter.depends_on) or None,
        message.body,
        encoded(shape, replace(letter, message=replace(message, body=b""))),
    )


def _texts(letter: Letter) -> list[str | None]:
    """The texts that are compared, those with an index first; _WRITES is how each is written."""
    message, last = letter.message, letter.failures[-1]
    indexed = (message.source, letter.group, message.tenant)
    return [*indexed, message.id, last.type, last.message, letter.transport, last.code, letter.owner, letter.replay]


def _are_plain(texts: Sequence[str | None]) -> bool:
    """Whether all of them can be written as they are: one look, since as a rule they can."""
    return _UNFIT.search("".join(filter(None, texts))) is None and all(
        text is None or len(text) <= _LONGEST_KEY for text in texts[:3]
    )


def letter_of(row: Row, shape: Shape) -> Letter:
    """The letter of a row: what the shape loads, and over it what changed since."""
    _, _, state, updated, due, expires, owner, lease, retries, resends, replay, archived_from, body, document = row
    letter = decoded(shape, document)
    return replace(
        letter,
        message=replace(letter.message, body=body),
        state=State(state),
        updated_at=moment(updated),
        next_retry_at=_moment(due),
        expires_at=_moment(expires),
        owner=None if owner is None else unclean(owner),
        lease_until=_moment(lease),
        retries=retries,
        resends=resends,
        replay=None if replay is None else unclean(replay),
        archived_from=archived_from and State(archived_from),
    )


def cleaned_all(texts: Iterable[str]) -> list[str]:
    return [clean(text) for text in texts]


_WRITES = (keyed, keyed, keyed, *(clean for _ in range(7)))


def _micros(at: datetime | None) -> int | None:
    return None if at is None else microseconds(at)


def _moment(at: int | None) -> datetime | None:
    return None if at is None else moment(at)
