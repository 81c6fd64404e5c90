"""A Query as SQL for SQLite: the conditions, and the ways in which an index can answer it in order."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import lru_cache
from itertools import product
from typing import Any

import msgspec

from redrive.clock import microseconds
from redrive.errors import BadQuery
from redrive.forensics.query import Query
from redrive.forensics.searchable import folded
from redrive.model import Category, State

_COLUMNS = {
    "ids": "id",
    "states": "state",
    "sources": "source",
    "categories": "category",
    "groups": "group_id",
    "tenants": "tenant",
    "transports": "transport",
}
_CONDITIONS = {
    # a letter's id follows from source and message id, so messages need no index of their own
    "message_ids": "id IN (SELECT letter_id(s.source, m.value) FROM (SELECT DISTINCT source FROM tallies) AS s, "
    "json_each(:message_ids) AS m)",
    "parents": "id IN (SELECT letter_id FROM dependencies WHERE message_id IN (SELECT value FROM json_each(:parents)))",
    "id_prefix": "id >= :id_prefix AND id < :id_prefix || char(1114111)",  # a range, which an index answers
    # as bytes, because SQLite's length() of a text ends at a NUL
    "error_type": "(error_type = :error_type OR (instr(:error_type, '.') = 0 AND substr(CAST(error_type AS BLOB), "
    "-1 - length(CAST(:error_type AS BLOB))) = CAST('.' || :error_type AS BLOB)))",
    "code": "code = :code",
    "text": "instr((SELECT c0 FROM searchable_content WHERE id = letters.seq), :text) > 0",  # too short for the index
    "since": "created_at >= :since",
    "before": "created_at < :before",
    "scheduled": "(next_retry_at IS NOT NULL) = :scheduled",
    "due": "next_retry_at <= :due",
    "lapsed": "owner IS NOT NULL AND lease_until < :lapsed",
    "expired": "expires_at < :expired",
    "owner": "owner = :owner AND lease_until IS NOT NULL",
}
_NARROW = ("due", "lapsed", "expired", "owner")  # few letters have these, and each has an index of only those
_NAMED = ("ids", "id_prefix", "message_ids", "parents")  # each names few letters by itself
_FEW = ("groups", "tenants", "sources")  # the narrowest first; each has an index that is in order of time
_MOST_ARMS = 50
_LOOKED_FOR = ("text", "error_type", "code", "transports", "scheduled")  # no index has these
TRIGRAM = 3
"""Characters: a shorter text has no entry in the index."""
_BY_INDEX = "seq IN (SELECT rowid FROM searchable WHERE searchable MATCH :text)"
COUNTED = frozenset({"states", "sources", "categories", "groups"})
"""The filters that the counters know."""

_CURSOR = re.compile(r"(-?\d{1,18})\.(\d{1,18})", re.ASCII)

Condition = tuple[str, dict[str, Any]]


def where(query: Query) -> Condition:
    """The condition and its parameters; `1` where nothing narrows.

    A `+` before a column keeps SQLite from its index: beside one of the narrow filters the wide ones only test.
    """
    wide = "+" if is_narrow(query) else ""
    parts: list[str] = []
    parameters: dict[str, Any] = {}
    for name, value in given(query):
        if name in _COLUMNS:
            parts.append(f"{wide}{_COLUMNS[name]} IN (SELECT value FROM json_each(:{name}))")  # noqa: S608
        else:
            parts.append(_BY_INDEX if name == "text" and has_trigram(value) else _CONDITIONS[name])
        parameters[name] = _parameter(name, value)
    return " AND ".join(parts) or "1", parameters


def _parameter(name: str, value: Any) -> Any:
    if isinstance(value, tuple):
        return msgspec.json.encode(value).decode()
    if name == "text":
        return phrase(value) if has_trigram(value) else folded(value)
    return microseconds(value) if isinstance(value, datetime) else value


def has_trigram(text: str) -> bool:
    """Whether the index of texts can find it."""
    return len(folded(text)) >= TRIGRAM


def phrase(text: str) -> str:
    """The text as FTS5 is asked for it: its trigrams, one behind the other."""
    return '"' + folded(text).replace('"', '""') + '"'


def arms(query: Query) -> Iterator[Condition]:
    """The query as a union of parts that an index answers newest first, without sorting what it leaves out.

    `state IN (…)` cannot be read in order of time from an index on (state, category, created_at); one arm for
    each state and category can, and there are 36 of them at most. So that index serves the whole table, too.
    """
    few = _narrowest(query)
    if is_narrow(query) or any(getattr(query, name) is not None for name in (*_NAMED, "text")):
        yield where(query)  # with a text: the index of texts would be asked once for each arm
    elif few is not None:
        yield from (_arm(query, {few: (value,)}) for value in dict.fromkeys(getattr(query, few)))
    else:
        for state, category in product(_or_all(query.states, State), _or_all(query.categories, Category)):
            yield _arm(query, {"states": (state,), "categories": (category,)})


def _narrowest(query: Query) -> str | None:
    """The filter that few letters have, as far as can be told without looking: a group, or what has fewer values."""
    named = [name for name in _FEW if 0 < len(getattr(query, name) or ()) <= _MOST_ARMS]
    return min(named, key=lambda name: 0 if name == "groups" else len(getattr(query, name)), default=None)


def numbered(condition: str, parameters: dict[str, Any], number: int) -> Condition:
    """The same condition with parameters of its own, so that several can stand in one statement."""
    renamed = re.sub(r":(\w+)", rf":\1_{number}", condition)
    return renamed, {f"{name}_{number}": value for name, value in parameters.items()}


def given(query: Query) -> Iterator[tuple[str, Any]]:
    """The filters that are set."""
    for name in query.__struct_fields__:
        value = getattr(query, name)
        if value is not None:
            yield name, value


def is_narrow(query: Query) -> bool:
    """Whether the query asks for what only few letters have."""
    return any(getattr(query, name) is not None for name in _NARROW)


def is_indexed(query: Query) -> bool:
    """Whether a page of it is read by an index; if not, every letter may have to be looked at."""
    if is_narrow(query) or any(getattr(query, name) is not None for name in _NAMED):
        return True
    return all(getattr(query, name) is None for name in _LOOKED_FOR)


def is_counted(query: Query) -> bool:
    """Whether the counters can answer the query."""
    return all(name in COUNTED for name, _ in given(query))


def cursor_of(created_at: int, seq: int) -> str:
    return f"{created_at}.{seq}"


def position(cursor: str) -> tuple[int, int]:
    """Where the page before ended, from its cursor."""
    found = _CURSOR.fullmatch(cursor)
    if found is None:
        raise BadQuery(f"{cursor!r} is not a cursor of this store: use `after` as the page before gave it")
    return int(found[1]), int(found[2])


def ordered(query: Query, after: str | None, limit: int, oldest_first: bool) -> Condition:
    """A select of time and seq of the first letters: of one condition, or of several that an index answers in order."""
    select = _selected if query.ids is None and query.message_ids is None else _selected.__wrapped__
    statement, fixed = select(query, oldest_first, after is not None)
    parameters = {**fixed, "limit": limit}
    if after is not None:
        parameters["after_time"], parameters["after_seq"] = position(after)
    return statement, parameters


@lru_cache(256)  # to write one of many arms takes as long as to answer it, and pages ask for the same again and again
def _selected(query: Query, oldest_first: bool, is_next: bool) -> Condition:
    way, side = ("ASC", ">") if oldest_first else ("DESC", "<")
    order = f"ORDER BY created_at {way}, seq {way} LIMIT :limit"
    parameters: dict[str, Any] = {}
    selects = []
    for number, (condition, more) in enumerate(arms(query)):
        condition, renamed = numbered(condition, more, number)
        parameters |= renamed
        if is_next:
            condition += f" AND (created_at, seq) {side} (:after_time, :after_seq)"
        selects.append(f"SELECT * FROM (SELECT created_at, seq FROM letters WHERE {condition} {order})")  # noqa: S608
    return f"SELECT created_at, seq FROM ({' UNION ALL '.join(selects) or _NONE} {order})", parameters  # noqa: S608


_NONE = "SELECT created_at, seq FROM letters WHERE 0"


def _or_all(wanted: tuple[Any, ...] | None, all: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(all if wanted is None else dict.fromkeys(wanted))  # an arm twice would give its letters twice


def _arm(query: Query, equal: dict[str, Sequence[Any]]) -> Condition:
    """One arm: the rest of the query, and equality on these, written so that SQLite sees a constant, not a subquery."""
    rest = msgspec.structs.replace(query, **dict.fromkeys(equal))
    condition, parameters = where(rest)
    for name, (value,) in equal.items():
        condition = f"{_COLUMNS[name]} = :only_{name} AND {condition}"
        parameters[f"only_{name}"] = str(value)
    return condition, parameters
