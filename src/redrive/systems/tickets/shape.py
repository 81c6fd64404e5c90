"""A dead ticket as a document of MongoDB: its own fields, why it died, and Redrive's letter under one key."""

from __future__ import annotations

from typing import Any

import msgspec
from bson.binary import Binary

from redrive.model import Letter
from redrive.stores.shape import NATIVE, Document, DocumentShape
from redrive.systems.tickets.metadata import METADATA
from redrive.systems.tickets.ticket import fields_of, metadata_of, task_type, ticket_id

OURS = "redrive"
_RESERVED = ("_id", "_store", OURS)
_DEEPEST = 60  # MongoDB ends at 100
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


class TicketShape(DocumentShape):
    """The contract's document of a dead ticket. `ticket_id` is unique: one that dies again rejoins its document."""

    name = "tickets"

    def dump(self, letter: Letter) -> Document:
        fields = fields_of(letter.message.body)
        own = {_key(name): _value(value) for name, value in (fields or {}).items() if name not in _RESERVED}
        return {
            **own,
            "ticket_id": ticket_id(letter.message.body) or letter.message.id,
            "task_type": task_type(fields),
            METADATA: metadata_of(letter),
            "processed_at": letter.updated_at,
            OURS: Binary(NATIVE.encode(letter)),
        }

    def load(self, document: Document) -> Letter:
        return NATIVE.decode(document[OURS])

    def encode(self, letter: Letter) -> bytes:
        return NATIVE.encode(letter)

    def decode(self, data: bytes) -> Letter:
        return NATIVE.decode(data)


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
