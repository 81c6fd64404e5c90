"""A dead ticket as a document of MongoDB: its own fields, why it died, and Redrive's letter under one key."""

from __future__ import annotations

from typing import Any

import msgspec
from bson.binary import Binary

from redrive.model import Letter
from redrive.stores.shape import NATIVE, Document, DocumentShape
from redrive.systems.tickets.metadata import METADATA
from redrive.systems.tickets.ticket import fields_of, id_in, metadata_of, task_type

OURS, LEFT_OUT = "redrive", "fields_left_out"
_RESERVED = ("_id", "_store", OURS)
_DEEPEST = 60  # MongoDB ends at 100
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


class TicketShape(DocumentShape):
    """The contract's document of a dead ticket. `ticket_id` is unique: one that dies again rejoins its document."""

    name = "tickets"

    def dump(self, letter: Letter) -> Document:
        fields = fields_of(letter.message.body)
        own = {_key(name): _value(value) for name, value in (fields or {}).items() if name not in _RESERVED}
        return {**own, **_contract(letter, fields), OURS: Binary(NATIVE.encode(letter))}

    def dump_small(self, letter: Letter, kept: Letter, why: str) -> Document:
        """The contract's fields without the ticket's other ones, which are more than MongoDB takes."""
        contract = _contract(letter, fields_of(letter.message.body))
        return {**contract, LEFT_OUT: why, OURS: Binary(NATIVE.encode(kept))}

    def load(self, document: Document) -> Letter:
        return NATIVE.decode(document[OURS])

    def encode(self, letter: Letter) -> bytes:
        return NATIVE.encode(letter)

    def decode(self, data: bytes) -> Letter:
        return NATIVE.decode(data)


def _contract(letter: Letter, fields: dict[str, Any] | None) -> Document:
    id = id_in(letter.message.body)
    return {
        "ticket_id": letter.message.id if id is None else _value(id),
        "task_type": task_type(fields),
        METADATA: metadata_of(letter),
        "processed_at": letter.updated_at,
    }


def _value(value: Any, depth: int = 0) -> Any:
    """The value for BSON: what only JSON can say becomes a text; the letter has it as it was."""
    match value:
        case dict() | list() if depth >= _DEEPEST:
            return msgspec.json.encode(value).decode()
        case dict():
            return {_key(name): _value(item, depth + 1) for name, item in value.items()}
        case list():
            return [_value(item, depth + 1) for item in value]
        case int() if not isinstance(value, bool) and not _LEAST <= value <= _MOST:
            return str(value)
    return value


def _key(name: str) -> str:
    """The name for MongoDB: one that it would read as an operator or a path is written with look-alikes."""
    plain = name.replace("\0", "").replace(".", "．")
    return "＄" + plain[1:] if plain.startswith("$") else plain
