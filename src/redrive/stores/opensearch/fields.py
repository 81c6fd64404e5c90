"""What a letter is searched by, beside the document that its shape makes of it."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable
from datetime import datetime
from functools import partial
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Struct

from redrive.clock import microseconds
from redrive.model import Letter
from redrive.stores.opensearch.access import Action, Json, Op, Version
from redrive.stores.pieces import pieces
from redrive.stores.shape import Shape, dumped, loaded

_LONGEST = 2000  # characters of what is compared as a whole; the cluster refuses more than 32 KB
_encode = msgspec.json.Encoder().encode


class Fields(Struct, frozen=True, omit_defaults=True, gc=False, kw_only=True):
    """The fields of a letter, as schema.LETTER lists them."""

    id: str
    arrival: int
    state: str
    reason: str
    category: str
    source: str
    group: str
    transport: str
    message_id: str
    error_type: str
    error_message: str
    priority: int
    created_at: int
    updated_at: int
    first_at: int
    last_at: int
    tenant: str | None = None
    code: str | None = None
    first_version: str | None = None
    last_version: str | None = None
    next_retry_at: int | None = None
    expires_at: int | None = None
    owner: str | None = None
    lease_until: int | None = None
    replay: str | None = None
    depends_on: tuple[str, ...] = ()
    version: int = 0  # of its message; the older ones are documents
    shown: str | None = None
    pieces: tuple[str, ...] | None = None
    shown_by: str | None = None
    shape: Any = None


class Shown(Struct, frozen=True, gc=False):
    """What is shown of a letter, as it is kept, and by which rules it was made."""

    value: str
    rules: str

    @property
    def text(self) -> str:
        return b64decode(self.value).decode()


class Held(Struct, frozen=True, gc=False):
    """A letter as it was read, and what a write over it has to know."""

    letter: Letter
    arrival: int
    version: Version
    shown: Shown | None = None


def fields_of(letter: Letter, arrival: int, shape: Any = None, shown: Shown | None = None) -> Fields:
    message, last = letter.message, letter.failures[-1]
    return Fields(
        id=letter.id,
        arrival=arrival,
        state=letter.state.value,
        reason=letter.reason.value,
        category=last.category.value,
        source=whole(message.source),
        group=whole(letter.group),
        transport=whole(letter.transport),
        message_id=whole(message.id),
        error_type=whole(last.type),
        error_message=last.message,
        priority=message.priority,
        created_at=microseconds(letter.created_at),
        updated_at=microseconds(letter.updated_at),
        first_at=microseconds(letter.failures[0].at),
        last_at=microseconds(last.at),
        tenant=None if message.tenant is None else whole(message.tenant),
        code=None if last.code is None else whole(last.code),
        first_version=letter.failures[0].version or None,
        last_version=last.version or None,
        next_retry_at=_micros(letter.next_retry_at),
        expires_at=_micros(letter.expires_at),
        owner=None if letter.owner is None else whole(letter.owner),
        lease_until=_micros(letter.lease_until),
        replay=None if letter.replay is None else whole(letter.replay),
        depends_on=tuple(map(whole, letter.depends_on)),
        version=letter.version,
        shown=None if shown is None else shown.value,
        pieces=None if shown is None else tuple(pieces(shown.text)),
        shown_by=None if shown is None else shown.rules,
        shape=shape,
    )


def create(letter: Letter, arrival: int, shape: Shape) -> Action:
    """The write of a new letter."""
    return _action(Op.CREATE, letter, arrival, shape)


def replacement(held: Held, letter: Letter, shape: Shape) -> Action:
    """The write of that letter over what was read, in all its fields: who reads the index by hand sees it, too."""
    same = (letter.message, letter.failures) == (held.letter.message, held.letter.failures)
    return _action(Op.INDEX, letter, held.arrival, shape, held.version, held.shown if same else None)


def _action(
    op: Op, letter: Letter, arrival: int, shape: Shape, version: Version | None = None, shown: Shown | None = None
) -> Action:
    forms = [partial(dumped, shape), *getattr(shape, "simpler", ())]
    first, *simpler = [partial(_source, letter, arrival, shown, form) for form in forms]
    return Action(op, letter.id, first(), version, tuple(simpler))


def _source(letter: Letter, arrival: int, shown: Shown | None, dump: Callable[[Letter], Json]) -> bytes:
    document = dump(letter)
    document["redrive"] = fields_of(letter, arrival, document.get("redrive"), shown)
    return _encode(document)


def held(hit: Json, shape: Shape) -> Held:
    """The letter of a hit, or of a document that was read."""
    ours = hit["_source"]["redrive"]
    shown = Shown(ours["shown"], ours["shown_by"]) if ours.get("shown_by") else None
    return Held(letter_in(hit, shape), ours["arrival"], (hit["_seq_no"], hit["_primary_term"]), shown)


def shown_in(hit: Json) -> str:
    """What is shown of the letter of a hit, as searches look into it."""
    return b64decode(hit["_source"]["redrive"].get("shown", "")).decode()


def letter_in(hit: Json, shape: Shape) -> Letter:
    """The letter that the shape loads from its document."""
    document = {**hit["_source"]}
    ours = document.pop("redrive")
    if "shape" in ours:
        document["redrive"] = ours["shape"]
    return loaded(shape, document)


def whole(text: str) -> str:
    """The text as it is compared: itself, or its beginning and a digest if it is very long."""
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_LONGEST]}…{blake2b(text.encode(), digest_size=16).hexdigest()}"


def _micros(at: datetime | None) -> int | None:
    return None if at is None else microseconds(at)
