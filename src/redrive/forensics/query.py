"""Which letters: the one vocabulary that CLI, API, replay and upkeep select with.

`matches` is the reference: every store answers as it does (redrive.testing holds them to it).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from msgspec import Struct
from msgspec.structs import asdict, replace

from redrive.forensics.scope import Scope
from redrive.forensics.searchable import DEFAULT, Searchable
from redrive.model import Category, Letter, LetterId, MessageId, Owner, State

_OF_MESSAGES = ("message_ids", "tenants", "parents", "code", "text")


class Query(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Every field that is given narrows; an empty query is every letter."""

    ids: tuple[LetterId, ...] | None = None
    id_prefix: str | None = None  # the letter's id begins with this
    message_ids: tuple[MessageId, ...] | None = None
    states: tuple[State, ...] | None = None
    sources: tuple[str, ...] | None = None
    categories: tuple[Category, ...] | None = None
    groups: tuple[str, ...] | None = None
    tenants: tuple[str, ...] | None = None
    parents: tuple[MessageId, ...] | None = None  # it waits for one of these messages
    transports: tuple[str, ...] | None = None
    error_type: str | None = None  # of the last failure: its full name, or the last part of it where it has no dot
    code: str | None = None
    since: datetime | None = None  # it died, the last time, at or after
    before: datetime | None = None  # it died, the last time, before
    text: str | None = None  # in what is shown of ids, key, error or body (searchable.py); ASCII case aside
    scheduled: bool | None = None  # whether a retry of it is planned
    due: datetime | None = None  # its next retry is due by then
    lapsed: datetime | None = None  # it has an owner whose lease ended before then
    expired: datetime | None = None  # its time to live ended before then
    owner: Owner | None = None
    scope: Scope | None = None  # of whoever asks; its systems are to be told as transports before a store is asked

    @property
    def is_empty(self) -> bool:
        """Whether the asker narrowed nothing; who asks is not what they asked for."""
        return all(value is None for name, value in asdict(self).items() if name != "scope")


def shown_query(query: Query, mask: Callable[[str], str]) -> Query:
    """The query as others may see it: somebody may have asked for what is masked for them."""
    given = {name: getattr(query, name) for name in _OF_MESSAGES}
    masked = {
        name: mask(value) if isinstance(value, str) else tuple(map(mask, value))
        for name, value in given.items()
        if value is not None
    }
    return replace(query, **masked)


def is_short(error_type: str) -> bool:
    """Whether the name of an error type says nothing of its module: then it stands for that name in every module."""
    return "." not in error_type


def matches(query: Query, letter: Letter, searchable: Searchable = DEFAULT) -> bool:
    """Whether the query selects the letter. A text is looked for in what is shown of it."""
    return all(
        wanted is None or test(wanted, letter)
        for wanted, test in ((getattr(query, name), test) for name, test in _TESTS.items())
    ) and (not query.text or searchable.has(query.text, letter))


def _is_called(name: str, kind: str) -> bool:
    """Whether an error type has that name: `Declined` is the name of `shop.errors.Declined`, too."""
    return kind == name or (is_short(name) and kind.endswith(f".{name}"))


def _before(limit: datetime, value: datetime | None) -> bool:
    return value is not None and value < limit


_TESTS: dict[str, Callable[..., bool]] = {
    "ids": lambda wanted, letter: letter.id in wanted,
    "id_prefix": lambda wanted, letter: letter.id.startswith(wanted),
    "message_ids": lambda wanted, letter: letter.message.id in wanted,
    "states": lambda wanted, letter: letter.state in wanted,
    "sources": lambda wanted, letter: letter.message.source in wanted,
    "categories": lambda wanted, letter: letter.category in wanted,
    "groups": lambda wanted, letter: letter.group in wanted,
    "tenants": lambda wanted, letter: letter.message.tenant in wanted,
    "parents": lambda wanted, letter: any(parent in wanted for parent in letter.depends_on),
    "transports": lambda wanted, letter: letter.transport in wanted,
    "error_type": lambda wanted, letter: _is_called(wanted, letter.last.type),
    "code": lambda wanted, letter: letter.last.code == wanted,
    "since": lambda wanted, letter: letter.created_at >= wanted,
    "before": lambda wanted, letter: letter.created_at < wanted,
    "scheduled": lambda wanted, letter: (letter.next_retry_at is not None) == wanted,
    "due": lambda wanted, letter: letter.next_retry_at is not None and letter.next_retry_at <= wanted,
    "lapsed": lambda wanted, letter: letter.owner is not None and _before(wanted, letter.lease_until),
    "expired": lambda wanted, letter: _before(wanted, letter.expires_at),
    "owner": lambda wanted, letter: letter.owner == wanted,
    "scope": lambda wanted, letter: wanted.has(source=letter.message.source, tenant=letter.message.tenant),
}
