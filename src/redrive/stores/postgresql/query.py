"""A Query as SQL for PostgreSQL: the conditions, and the ways in which an index can answer it in order."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import product
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from redrive.clock import microseconds
from redrive.errors import BadQuery
from redrive.forensics.query import Query
from redrive.forensics.searchable import folded
from redrive.model import Category, State
from redrive.stores.postgresql.codec import clean, keyed

_KEYED = {"sources": "source", "groups": "group_id", "tenants": "tenant"}
_LISTS = {
    "ids": "id",
    "message_ids": "message_id",
    "states": "state",
    "categories": "category",
    "transports": "transport",
    **_KEYED,
}
_CONDITIONS = {
    "text": "EXISTS (SELECT FROM {schema}.texts AS t WHERE t.id = l.id AND t.text LIKE %(text)s)",
    "parents": "l.depends_on && %(parents)s::text[]",
    "id_prefix": "starts_with(l.id, %(id_prefix)s)",
    "error_type": "(l.error_type = %(error_type)s OR (strpos(%(error_type)s::text, '.') = 0 "
    "AND right(l.error_type, length(%(error_type)s::text) + 1) = '.' || %(error_type)s::text))",
    "code": "l.code = %(code)s",
    "since": "l.created_at >= %(since)s",
    "before": "l.created_at < %(before)s",
    "scheduled": "(l.next_retry_at IS NOT NULL) = %(scheduled)s",
    "due": "l.next_retry_at <= %(due)s",
    "lapsed": "l.owner IS NOT NULL AND l.lease_until < %(lapsed)s",
    "expired": "l.expires_at < %(expired)s",
    "owner": "l.owner = %(owner)s AND l.lease_until IS NOT NULL",
}
_NARROW = ("due", "lapsed", "expired", "owner")  # few letters have these, and each has an index of only those
_NAMED = ("ids", "id_prefix", "message_ids", "parents")  # each names few letters by itself
_FEW = ("groups", "tenants", "sources")  # the narrowest first; each has an index that is in order of time
_COUNTED = frozenset({"states", "sources", "categories", "groups"})
_CURSOR = re.compile(r"(-?\d{1,18})\.(\d{1,18})", re.ASCII)
_ANY = "(VALUES (1)) AS k"


class Condition(Struct, frozen=True):
    """A condition on letters `l`, and its parameters; `keys` are what an index is read in order for."""

    sql: str
    parameters: dict[str, Any]
    keys: str = _ANY


def where(query: Query) -> Condition:
    """The whole query as one condition; its scope is told as sources and tenants by now."""
    parts: list[str] = []
    parameters: dict[str, Any] = {}
    for name, value in _given(query):
        if name in _LISTS:
            parts.append(f"l.{_LISTS[name]} = ANY(%({name})s::text[])")
            write = keyed if name in _KEYED else clean
            parameters[name] = [write(str(wanted)) for wanted in value]
        else:
            parts.append(_CONDITIONS[name])
            parameters[name] = pattern(value) if name == "text" else _parameter(value)
    return Condition(" AND ".join(parts) or "true", parameters)


def in_order(query: Query) -> Condition:
    """The query in parts that an index answers in order of time, without sorting what it leaves out.

    Letters of several states cannot be read in order of time from an index on (state, category, created_at); those of
    each state and category can, and there are 42 of them at most. So that index serves the whole table, too.
    """
    few = next((name for name in _FEW if 0 < len(getattr(query, name) or ()) <= 50), None)
    if any(getattr(query, name) is not None for name in (*_NARROW, *_NAMED)):
        return where(query)
    if few is not None:
        rest = where(replace(query, **{few: None}))
        only = list(dict.fromkeys(map(keyed, getattr(query, few))))
        condition = f"l.{_KEYED[few]} = k.value AND {rest.sql}"
        return Condition(condition, {**rest.parameters, "only": only}, "unnest(%(only)s::text[]) AS k (value)")
    rest = where(replace(query, states=None, categories=None))
    kinds = list(product(_or_all(query.states, State), _or_all(query.categories, Category)))
    names = {"only_states": [str(state) for state, _ in kinds], "only_categories": [str(kind) for _, kind in kinds]}
    keys = "unnest(%(only_states)s::text[], %(only_categories)s::text[]) AS k (state, category)"
    condition = f"l.state = k.state AND l.category = k.category AND {rest.sql}"
    return Condition(condition, {**rest.parameters, **names}, keys)


def pattern(text: str) -> str:
    """The text as LIKE is asked for it."""
    escaped = folded(text).replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{escaped}%"


def is_counted(query: Query) -> bool:
    """Whether the counters can answer the query."""
    return all(name in _COUNTED for name, _ in _given(query))


def beyond(cursor: str | None, oldest_first: bool) -> Condition:
    """The condition of what comes after the page that ended there."""
    if cursor is None:
        return Condition("", {})
    found = _CURSOR.fullmatch(cursor)
    if found is None:
        raise BadQuery(f"{cursor!r} is not a cursor of this store: use `after` as the page before gave it")
    side = ">" if oldest_first else "<"
    parameters = {"after_time": int(found[1]), "after_seq": int(found[2])}
    return Condition(f" AND (l.created_at, l.seq) {side} (%(after_time)s, %(after_seq)s)", parameters)


def cursor_of(created_at: int, seq: int) -> str:
    return f"{created_at}.{seq}"


def _given(query: Query) -> Iterator[tuple[str, Any]]:
    """The filters that are set."""
    for name in query.__struct_fields__:
        value = getattr(query, name)
        if value is not None:
            yield name, value


def _parameter(value: Any) -> Any:
    if isinstance(value, datetime):
        return microseconds(value)
    if isinstance(value, tuple):
        return [clean(part) for part in value]
    return clean(value) if isinstance(value, str) else value


def _or_all(wanted: tuple[Any, ...] | None, all: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(all if wanted is None else dict.fromkeys(wanted))  # a key twice would give its letters twice
