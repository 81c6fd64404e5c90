"""The trail proves itself: each line has the hash of the one before, so none is changed, removed or moved unseen.

A line is canonical JSON, hashed as it stands; lines lie in blocks, since whoever has to wait writes all that has come
meanwhile at once. Order is by sequence, never by time: clocks are set back. Pure: nothing here asks a store.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import islice
from typing import Any

import msgspec
from msgspec import Struct

from redrive.access.actors import EVERYTHING, Actor, Scope, Via
from redrive.errors import UsageError

START = "0" * 64
"""What the first line says of the one before it."""
LONGEST = 2000  # characters of a text
_MOST_ABOUT = 50


class Phase(StrEnum):
    """What a line says of an act."""

    BEGAN = "began"  # written before the act; without another line of it the outcome is not known
    DONE = "done"
    REFUSED = "refused"
    WAITS = "waits"  # for a second person
    FAILED = "failed"
    INTERRUPTED = "interrupted"


class Said(Struct, frozen=True, kw_only=True):
    """What is to be written: a line without its place."""

    at: str
    actor: str
    id: str  # of the actor
    via: Via
    action: str
    outcome: Phase
    detail: str = ""
    reason: str = ""
    scope: Scope = EVERYTHING
    about: tuple[str, ...] = ()  # letters, replays, tokens: what it was done to
    of: int | None = None  # the line with which the act began


class Line(Said, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the trail."""

    seq: int
    prev: str  # the hash of the line before


class Written(Struct, frozen=True, array_like=True):
    """A line as it is kept: its text, and the hash of that."""

    text: str
    hash: str


class Head(Struct, frozen=True):
    """A place in the chain, and with it all that is before."""

    seq: int = 0
    hash: str = START


class Checkpoint(Struct, frozen=True, kw_only=True):
    """A signed head, to be kept where whoever has the database cannot reach it."""

    seq: int
    hash: str
    at: str
    key: str  # which key signed it, never the key itself
    signature: str


class Broken(Struct, frozen=True):
    """Where the chain does not hold, and what was found there."""

    seq: int
    why: str


def said(
    actor: Actor,
    action: str,
    outcome: Phase,
    *,
    at: str,
    detail: str = "",
    reason: str = "",
    about: Iterable[str] = (),
    of: int | None = None,
) -> Said:
    """What an actor did, bounded: a trail is no place for a body."""
    return Said(
        at=at,
        actor=_bounded(actor.name, 200),
        id=_bounded(actor.id, 200),
        via=actor.via,
        action=action,
        outcome=outcome,
        detail=_bounded(detail),
        reason=_bounded(reason),
        scope=actor.scope,
        about=tuple(_bounded(id, 200) for id in islice(about, _MOST_ABOUT)),
        of=of,
    )


def chained(head: Head, lines: Sequence[Said]) -> tuple[list[Written], Head]:
    """These lines behind that head, and the head that they make."""
    written = []
    for line in lines:
        fields = {name: getattr(line, name) for name in Said.__struct_fields__}
        text = msgspec.json.encode(Line(seq=head.seq + 1, prev=head.hash, **fields), order="sorted").decode()
        written.append(Written(text, hash_of(text)))
        head = Head(head.seq + 1, written[-1].hash)
    return written, head


def hash_of(text: str) -> str:
    """SHA-256 of a line as it stands."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def read_line(text: str) -> Line:
    """The line of a text. Raises msgspec.DecodeError for what is none."""
    return msgspec.json.decode(text, type=Line)


class _Link(Struct):
    """What the proof needs of a line."""

    seq: int
    prev: str


_LINKS = msgspec.json.Decoder(_Link)


class Proof:
    """Follows the chain, line by line, and names the first that is not as it was written.

    head     behind which it begins: nothing, or what retention left of older lines
    against  places that are known from elsewhere, by sequence: checkpoints
    """

    def __init__(self, head: Head, against: Iterable[Head] = ()) -> None:
        self.head = head
        self.broken: Broken | None = None
        self._against = {place.seq: place.hash for place in against}

    def follow(self, block: int, lines: Sequence[Written]) -> bool:
        """Take the lines of a block that stands at that sequence; whether all holds so far."""
        if self.broken is None and block != self.head.seq + 1:
            self._break(self.head.seq + 1, _missing(self.head.seq + 1, block))
        for line in lines:
            if self.broken is not None:
                return False
            self._follow(line)
        return self.broken is None

    def end(self) -> Broken | None:
        """What is wrong, if anything, now that nothing follows."""
        last = max(self._against, default=0)
        if self.broken is None and last > self.head.seq:
            self._break(self.head.seq + 1, f"removed: the trail ends at {self.head.seq:,}, the checkpoint at {last:,}")
        return self.broken

    def _follow(self, line: Written) -> None:
        here = self.head.seq + 1
        try:
            link = _LINKS.decode(line.text)
        except msgspec.DecodeError:
            return self._break(here, "changed: it is no line of a trail any more")
        if hash_of(line.text) != line.hash:
            return self._break(here, "changed: its text is not what was hashed")
        if link.seq != here:
            moved = f"reordered or removed: line {link.seq:,} stands in its place"
            return self._break(here, moved)
        if link.prev != self.head.hash:
            if self.head.seq == 0:
                return self._break(here, "changed: it is not the first line that was written")
            return self._break(self.head.seq, f"changed: line {here:,} was written behind another")
        if self._against.get(here, line.hash) != line.hash:
            return self._break(here, "changed: it, or a line before it, is not what the checkpoint has")
        self.head = Head(here, line.hash)
        return None

    def _break(self, seq: int, why: str) -> None:
        self.broken = Broken(seq, why)


def sign(head: Head, key: bytes, *, at: str) -> Checkpoint:
    """That head, signed (HMAC-SHA-256)."""
    signature = hmac.digest(key, _signed(head, at), "sha256").hex()
    return Checkpoint(seq=head.seq, hash=head.hash, at=at, key=name_of(key), signature=signature)


def check_signature(checkpoint: Checkpoint, key: bytes) -> None:
    """Raise UsageError for a checkpoint that was not signed with that key, or was changed since."""
    if checkpoint.key != name_of(key):
        raise UsageError(
            f"this checkpoint was signed with the key {checkpoint.key}, and the one here is {name_of(key)}: "
            f"set access.trail_key to the key that signed it"
        )
    wanted = hmac.digest(key, _signed(Head(checkpoint.seq, checkpoint.hash), checkpoint.at), "sha256").hex()
    if not hmac.compare_digest(wanted, checkpoint.signature):
        raise UsageError("this checkpoint was changed since it was signed: its signature does not fit")


def read_checkpoint(text: bytes) -> Checkpoint:
    """The checkpoint of a file. Raises UsageError for what is none."""
    try:
        return msgspec.json.decode(text, type=Checkpoint)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(
            f"this is no checkpoint ({error}): `redrive audit checkpoint > head.json` writes one"
        ) from None


def name_of(key: bytes) -> str:
    """By what a key is known: it tells nothing of the key."""
    return hashlib.sha256(b"redrive trail key\0" + key).hexdigest()[:16]


def body_of(lines: Sequence[Written]) -> dict[str, Any]:
    """A block as a document has it."""
    return {"lines": [[line.text, line.hash] for line in lines]}


def _signed(head: Head, at: str) -> bytes:
    return f"redrive trail\n{head.seq}\n{head.hash}\n{at}".encode()


def _missing(wanted: int, found: int) -> str:
    if found < wanted:
        return f"reordered: what stood at {found:,} stands here"
    return "removed" if found == wanted + 1 else f"removed, and those up to {found - 1:,}"


def _bounded(text: str, longest: int = LONGEST) -> str:
    whole = text.encode("utf-8", "replace").decode()  # half a surrogate pair is no JSON
    return whole if len(whole) <= longest else f"{whole[: longest - 1]}…"
