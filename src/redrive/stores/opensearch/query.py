"""A Query in the cluster's language, and the orders in which letters are read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any

from redrive.clock import microseconds
from redrive.errors import BadQuery
from redrive.forensics.query import Query, is_short
from redrive.model import Owner, State
from redrive.stores.base import MAY_BECOME, Cursor
from redrive.stores.opensearch.access import Json
from redrive.stores.opensearch.fields import whole

_MOST_TERMS = 65_536  # of one clause
_LONGEST_NAME = 1000
_TERMS = {
    "ids": "id",
    "message_ids": "message_id",
    "states": "state",
    "sources": "source",
    "categories": "category",
    "groups": "group",
    "tenants": "tenant",
    "parents": "depends_on",
    "transports": "transport",
    "code": "code",
    "owner": "owner",
}
_RANGES = {
    "since": ("created_at", "gte"),
    "before": ("created_at", "lt"),
    "due": ("next_retry_at", "lte"),
    "expired": ("expires_at", "lt"),
}
_CURSOR = re.compile(r"(-?\d{1,18})\.(\d{1,19})\.([a-z2-7]{16})", re.ASCII)
_WILD, _ESCAPED = re.compile(r"[\\*?]"), r"\\\g<0>"
_LARGEST = (1 << 63) - 1
NOTHING: Json = {"match_none": {}}


def selected(query: Query, *more: Json) -> Json:
    """The search for letters that the query selects and that meet these clauses."""
    return {"bool": {"filter": [_exists("id"), *_clauses(query), *more]}}


def among(field: str, values: Sequence[str]) -> Json:
    """The clause that a field is one of these, however many."""
    name, wanted = f"redrive.{field}", [whole(value) for value in dict.fromkeys(values)]
    parts = [wanted[start : start + _MOST_TERMS] for start in range(0, len(wanted), _MOST_TERMS)]
    clauses: list[Json] = [{"terms": {name: part}} for part in parts]
    return clauses[0] if len(clauses) == 1 else {"bool": {"should": clauses}} if clauses else NOTHING


def claimable(to: State, owner: Owner) -> Json:
    """The clauses of letters that a claim may take: their state may become `to`; from `to` itself only by its owner."""
    free = among("state", [state for state in MAY_BECOME[to] if state is not to])
    if to not in MAY_BECOME[to]:
        return free
    mine = {"bool": {"filter": [among("state", [to]), among("owner", [owner])]}}
    return {"bool": {"should": [free, mine]}}


def by_age(*, oldest_first: bool) -> list[Json]:
    """The order by creation time, then by arrival, then by id."""
    way = "asc" if oldest_first else "desc"
    return [{f"redrive.{name}": way} for name in ("created_at", "arrival", "id")]


def by_urgency() -> list[Json]:
    """The order by priority, then by when they are due; what has no time comes first."""
    due = {"redrive.next_retry_at": {"order": "asc", "missing": "_first"}}
    return [{"redrive.priority": "asc"}, due, {"redrive.arrival": "asc"}, {"redrive.id": "asc"}]


def cursor_of(sort: Sequence[Any]) -> Cursor:
    return ".".join(map(str, sort))


def position(cursor: Cursor) -> list[Any]:
    """Where the page before ended, as a search takes it."""
    found = _CURSOR.fullmatch(cursor)
    if found is None or int(found[2]) > _LARGEST:
        raise BadQuery(f"{cursor!r} is not a cursor of this store: use `after` as the page before gave it")
    return [int(found[1]), int(found[2]), found[3]]


def _clauses(query: Query) -> Iterator[Json]:
    for name in query.__struct_fields__:
        value = getattr(query, name)
        if value is None or name == "text":  # which is looked for in texts.py
            continue
        if name in _TERMS:
            yield among(_TERMS[name], (value,) if isinstance(value, str) else value)
        elif name in _RANGES:
            yield _range(*_RANGES[name], value)
        else:
            yield from _SPECIAL[name](value)


def _exists(field: str) -> Json:
    return {"exists": {"field": f"redrive.{field}"}}


def _range(field: str, side: str, value: datetime) -> Json:
    return {"range": {f"redrive.{field}": {side: microseconds(value)}}}


def _called(error_type: str) -> Iterator[Json]:
    """Its full name or, where a short one was asked for, whatever ends in it: terms are looked at, and no letter. What
    is longer than any name of a class is looked for as it is: OpenSearch refuses such a pattern."""
    exactly = among("error_type", [error_type])
    if not is_short(error_type) or len(error_type) > _LONGEST_NAME:
        yield exactly
        return
    ends = {"wildcard": {"redrive.error_type": {"value": f"*.{_WILD.sub(_ESCAPED, error_type)}"}}}
    yield {"bool": {"should": [exactly, ends]}}


def _scheduled(wanted: bool) -> Iterator[Json]:
    exists = _exists("next_retry_at")
    yield exists if wanted else {"bool": {"must_not": [exists]}}


def _lapsed(when: datetime) -> Iterator[Json]:
    yield _exists("owner")
    yield _range("lease_until", "lt", when)


_SPECIAL: dict[str, Callable[[Any], Iterator[Json]]] = {
    "id_prefix": lambda prefix: iter([{"prefix": {"redrive.id": prefix}}]),
    "error_type": _called,
    "scheduled": _scheduled,
    "lapsed": _lapsed,
}
