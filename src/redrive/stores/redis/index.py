"""Which index answers a query: the sorted sets to read, and between which scores."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import Struct

from redrive.clock import microseconds
from redrive.errors import BadQuery
from redrive.forensics.query import Query
from redrive.stores.redis.codec import Head

_CURSOR = re.compile(r"(-?\d{1,18})\.(\d{1,18})", re.ASCII)
_COUNTED = ("states", "sources", "categories", "groups")


class Index(Struct, frozen=True):
    """Sorted sets whose union has every letter that a query selects, and maybe others."""

    arms: dict[str, Any]  # as lua/page.lua takes them
    least: str = "-inf"
    greatest: str = "+inf"

    @property
    def packed(self) -> bytes:
        return msgspec.msgpack.encode(self.arms)


def narrow_index(query: Query) -> Index | None:
    """An index of the few letters that are due, leased or expired, if the query asks for such."""
    if query.due is not None or query.scheduled:
        greatest = "+inf" if query.due is None else str(microseconds(query.due))
        return Index({"due": [False, _listed(query.sources)]}, greatest=greatest)
    if query.lapsed is not None or query.owner is not None:
        greatest = "+inf" if query.lapsed is None else f"({microseconds(query.lapsed)}"
        return Index({"keys": [":leases"]}, greatest=greatest)
    if query.expired is not None:
        return Index({"keys": [":expiry"]}, greatest=f"({microseconds(query.expired)}")
    return None


def wide_index(query: Query) -> Index:
    """An index in order of time: of the groups or tenants that are named, otherwise by state, category and source."""
    least = "-inf" if query.since is None else str(microseconds(query.since))
    greatest = "+inf" if query.before is None else f"({microseconds(query.before)}"
    return Index(_arms(query), least=least, greatest=greatest)


def _arms(query: Query) -> dict[str, Any]:
    for kind, names in ((":group:", query.groups), (":tenant:", query.tenants)):
        if names is not None:
            return {"keys": [_text(kind + name) for name in dict.fromkeys(names)]}
    return {"at": [_listed(query.states), _listed(query.categories), _listed(query.sources)]}


def due_index(query: Query, priority: str) -> Index:
    """The index of what is due with that priority, the longest due first."""
    assert query.due is not None
    arms = {"due": [[priority], _listed(query.sources)]}
    return Index(arms, greatest=str(microseconds(query.due)))


def is_counted(query: Query) -> bool:
    """Whether the counters can answer the query."""
    given = [name for name in query.__struct_fields__ if getattr(query, name) is not None]
    return all(name in _COUNTED for name in given)


def is_answered(query: Query) -> bool:
    """Whether its wide index has nothing but what the query selects."""
    given = {name for name in query.__struct_fields__ if getattr(query, name) is not None} - {"since", "before"}
    return given <= {"states", "categories", "sources"} or given in ({"groups"}, {"tenants"})


def needs_documents(query: Query) -> bool:
    """Whether the query asks for what no head holds."""
    return query.text is not None or query.error_type is not None or query.code is not None


def cursor_of(head: Head) -> str:
    return f"{head.created_at}.{head.seq}"


def position(cursor: str) -> tuple[int, int]:
    """Where the page before ended, from its cursor."""
    found = _CURSOR.fullmatch(cursor)
    if found is None:
        raise BadQuery(f"{cursor!r} is not a cursor of this store: use `after` as the page before gave it")
    return int(found[1]), int(found[2])


def _listed(names: tuple[str, ...] | None) -> list[str] | bool:
    return False if names is None else [_text(name) for name in names]


def _text(name: str) -> str:
    """A text as part of a key; what is no text has no letters."""
    return name.encode("utf-8", "replace").decode()
