"""A Query as a filter of MongoDB."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

from bson.objectid import ObjectId
from bson.regex import Regex

from redrive.clock import microseconds
from redrive.errors import BadQuery
from redrive.forensics.query import Query, is_short
from redrive.stores.base import Cursor

_CURSOR = re.compile(r"(-?\d{1,18})\.([0-9a-f]{24})", re.ASCII)
_LAST_CHARACTER = chr(0x10FFFF)


def _among(field: str) -> Callable[[Any], dict[str, Any]]:
    return lambda values: {field: {"$in": [str(value) for value in values]}}


def _compared(field: str, operator: str) -> Callable[[datetime], dict[str, Any]]:
    return lambda at: {field: {operator: microseconds(at)}}


def _names(error_type: str) -> list[Any]:
    """The names an error type may have: the one that was asked for and, if that is short, whatever ends in it."""
    if not is_short(error_type) or "\0" in error_type:  # which no pattern of MongoDB can have
        return [error_type]
    return [error_type, Regex(rf"\.{re.escape(error_type)}$(?!\n)")]


_CONDITIONS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "ids": _among("_id"),
    "id_prefix": lambda prefix: {"_id": {"$gte": prefix, "$lt": prefix + _LAST_CHARACTER}},
    "message_ids": _among("_store.message"),
    "states": _among("_store.state"),
    "sources": _among("_store.source"),
    "categories": _among("_store.category"),
    "groups": _among("_store.group"),
    "tenants": _among("_store.tenant"),
    "parents": _among("_store.depends"),
    "transports": _among("_store.transport"),
    "error_type": lambda wanted: {"_store.error_type": {"$in": _names(wanted)}},
    "code": lambda wanted: {"_store.code": wanted},
    "since": _compared("_store.created", "$gte"),
    "before": _compared("_store.created", "$lt"),
    "scheduled": lambda wanted: {"_store.due": {"$exists": wanted}},
    "due": _compared("_store.due", "$lte"),
    "lapsed": lambda at: {"_store.owner": {"$exists": True}, "_store.lease": {"$lt": microseconds(at)}},
    "expired": _compared("_store.expires", "$lt"),
    "owner": lambda wanted: {"_store.owner": wanted},
}
"""Every filter but `text`: letters with a text are named by their ids (texts.py)."""


_COUNTED = ("groups", "states", "sources")


def where(query: Query) -> dict[str, Any]:
    """The query as a filter; an empty one selects everything."""
    given = ((name, getattr(query, name)) for name in _CONDITIONS)
    conditions = [_CONDITIONS[name](value) for name, value in given if value is not None]
    return {"$and": conditions} if conditions else {}


def is_counted(query: Query) -> bool:
    """Whether the index of counts can answer the query by itself."""
    return all(getattr(query, name) is None for name in query.__struct_fields__ if name not in _COUNTED)


def beyond(cursor: Cursor, oldest_first: bool, fields: tuple[str, str]) -> dict[str, Any]:
    """The condition of what comes after the page that ended there."""
    (time, seq), (created, number) = fields, position(cursor)
    side = "$gt" if oldest_first else "$lt"
    edge = "$gte" if oldest_first else "$lte"  # said twice, so that an index begins at the edge
    return {time: {edge: created}, "$or": [{time: {side: created}}, {time: created, seq: {side: number}}]}


def cursor_of(created: int, seq: ObjectId) -> Cursor:
    return f"{created}.{seq}"


def position(cursor: Cursor) -> tuple[int, ObjectId]:
    """Where the page before ended, from its cursor."""
    found = _CURSOR.fullmatch(cursor)
    if found is None:
        raise BadQuery(f"{cursor!r} is not a cursor of this store: use `after` as the page before gave it")
    return int(found[1]), ObjectId(found[2])
