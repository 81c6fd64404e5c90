"""What a letter looks like in MongoDB, and the indexes that answer for it.

    _id       the letter's id
    …         the fields of the store's shape; in Redrive's own shape `letter` holds it all, as msgpack
    _store    what is searched, and what changes after the letter was written

`_store.mark` stays when a letter is claimed or moved, and changes with what is written of it; `_store.unsearched` is
there until its text is made (texts.py).

`_store.apart` names fields whose value another document had already in a unique index of the shape: ours has the
letter's id behind it, and the other stays as it is.

Times are whole microseconds: a date of MongoDB ends at milliseconds. What a letter does not have has no field, so
that the sparse indexes hold only those that have it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from bson import encode
from bson.binary import Binary
from bson.objectid import ObjectId
from msgspec.structs import replace
from pymongo import IndexModel

from redrive.clock import microseconds, moment
from redrive.model import Letter, State
from redrive.stores.shape import NATIVE, Shape, dumped, loaded

_PLACE = ("_store.created", "_store.seq")
_SURELY_FITS = 1 << 20  # JSON becomes at most eight times as long in BSON: small integers do
_LARGEST = 15 << 20  # of the shape's fields; a document ends at 16 MiB
log = logging.getLogger("redrive")


def _index(*fields: str, sparse: bool = False) -> IndexModel:
    return IndexModel([(field, 1) for field in fields], sparse=sparse)


HAS_TENANT = {"_store.tenant": {"$exists": True}}
"""Of an index that is read for tenants alone, and of the question that it answers."""
COUNTED = ("group", "state", "source", "first", "last")
"""An index of these answers for groups by itself: no letter is read to be counted."""
COUNTS = [(f"_store.{name}", 1) for name in COUNTED]

INDEXES: dict[str, Sequence[IndexModel]] = {
    "letters": [
        _index("_store.state", "_store.category", *_PLACE),
        _index("_store.source", *_PLACE),
        _index("_store.group", *_PLACE),
        IndexModel(COUNTS),
        _index(*_PLACE),
        _index("_store.message"),
        IndexModel([("_store.group", 1), ("_store.tenant", 1)], partialFilterExpression=HAS_TENANT),
        _index("_store.depends", sparse=True),
        _index("_store.due", sparse=True),
        _index("_store.owner", sparse=True),
        _index("_store.lease", sparse=True),
        _index("_store.expires", sparse=True),
        _index("_store.tenant", *_PLACE, sparse=True),
        _index("_store.unsearched", sparse=True),
    ],
    "texts": [_index("pieces")],
    "bodies": [_index("letter")],
    "versions": [_index("letter")],
    "series": [
        IndexModel([(name, 1) for name in ("step", "group", "at", "source", "category", "outcome")], unique=True),
        _index("step", "at"),
    ],
    "ledger": [_index("frozen", "created", "seq"), _index("frozen", "status", "created", "seq")],
}


def written(letter: Letter, shape: Shape, seq: ObjectId, by: str, parts: int) -> dict[str, Any]:
    """A letter as a document. `parts`: how many pieces its body is in, where it is too large to stand here."""
    message, last = letter.message, letter.failures[-1]
    fields = _fields(letter, shape, parts)
    store = {
        "seq": seq,
        "by": by,
        "mark": by,
        "unsearched": seq,
        "state": letter.state.value,
        "category": last.category.value,
        "source": message.source,
        "group": letter.group,
        "transport": letter.transport,
        "message": message.id,
        "error_type": last.type,
        "error": last.message,
        "priority": message.priority,
        "created": microseconds(letter.created_at),
        "updated": microseconds(letter.updated_at),
        "first": microseconds(letter.failures[0].at),
        "last": microseconds(last.at),
        "retries": letter.retries,
        "resends": letter.resends,
    }
    optional = {
        "code": last.code,
        "first_version": letter.failures[0].version or None,
        "last_version": last.version or None,
        "tenant": message.tenant,
        "replay": letter.replay,
        "owner": letter.owner,
        "lease": letter.lease_until and microseconds(letter.lease_until),
        "due": letter.next_retry_at and microseconds(letter.next_retry_at),
        "expires": letter.expires_at and microseconds(letter.expires_at),
        "depends": letter.depends_on or None,
        "archived_from": letter.archived_from and letter.archived_from.value,
        "parts": parts or None,
        "body": by if parts else None,  # which of the pieces in `bodies` are its own
    }
    store.update((name, value) for name, value in optional.items() if value is not None)
    return {**fields, "_id": letter.id, "_store": store}


def _fields(letter: Letter, shape: Shape, parts: int) -> dict[str, Any]:
    """The fields of the shape: all of them, or fewer where they are more than a document may be."""
    kept = replace(letter, message=replace(letter.message, body=b"")) if parts else letter
    if shape is NATIVE:
        return {"letter": Binary(shape.encode(kept))}
    if len(letter.message.body) <= _SURELY_FITS or not hasattr(shape, "dump_small"):
        return dumped(shape, kept)
    fields = None if parts else dumped(shape, kept)
    size = len(letter.message.body) if fields is None else len(encode(fields))
    if fields is not None and size <= _LARGEST:
        return fields
    why = f"{size / 1e6:.1f} MB, and a document of MongoDB has at most 16 MB: the whole message is in the letter"
    log.warning("letter %s is kept without the fields of its message: as BSON they are %s", letter.id, why)
    small: dict[str, Any] = shape.dump_small(letter, kept, why)
    return small


def read(document: Mapping[str, Any], shape: Shape, body: bytes | None = None) -> Letter:
    """The letter of a document: what the shape loads, and laid over it what changed since it was written."""
    store = document["_store"]
    if shape is NATIVE:
        letter = shape.decode(document["letter"])
    else:
        letter = loaded(shape, {name: value for name, value in document.items() if name not in ("_id", "_store")})
    return replace(
        letter,
        message=letter.message if body is None else replace(letter.message, body=body),
        state=State(store["state"]),
        updated_at=moment(store["updated"]),
        next_retry_at=moment(store["due"]) if "due" in store else None,
        owner=store.get("owner"),
        lease_until=moment(store["lease"]) if "lease" in store else None,
        retries=store["retries"],
        resends=store["resends"],
        replay=store.get("replay"),
        archived_from=State(store["archived_from"]) if "archived_from" in store else None,
    )
