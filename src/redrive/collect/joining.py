"""Finds the letter of a message that was sent back to somebody else's consumer and died there again.

By our header on it, if the letter that it names is really its own; else by its id, which is made of its source and of
where it lay or what it is called. A message that dies again after a replay is *failed* in that replay's ledger, as it
would be if a worker of ours had told so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from hashlib import blake2b

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from redrive.flow.lineage import LETTER, REPLAY, believed, named, unsent
from redrive.forensics.query import Query
from redrive.model import (
    DEAD_HEADER,
    Letter,
    LetterId,
    Message,
    State,
    is_anothers,
    letter_id,
    merge_failures,
    rejoined,
    set_apart,
)
from redrive.stores.base import Entry, EntryStatus, Letters

FOUND_DEAD = "collected.Dead"
"""The type of a failure of which only the dead message is known, and not what was raised. Whoever made the attempt may
have told of it himself: `join` sees whether it is known already."""
_AWAY = (State.REPLAYING, State.SENT)
_LETTER_ID, _REPLAY_ID = re.compile(r"[a-z2-7]{16}"), re.compile(rb"[\w.:-]{1,100}")
_LONGEST_NOTE = 200


class Joined(Struct, frozen=True):
    """Letters as they are to be recorded, in the order they were given, and what the ledgers are to say before that."""

    letters: list[Letter]
    entries: list[Entry]

    @property
    def in_order(self) -> list[Letter]:
        """The letters by the time of their deaths: what is recorded last says where a letter stands."""
        return sorted(self.letters, key=lambda letter: letter.last.at)


async def join(store: Letters, found: Sequence[Letter], now: datetime) -> Joined:
    """Let each join the letter that it was sent back from, if there is one."""
    if not found:
        return Joined([], [])
    ids = {letter.id for letter in found} | {other for letter in found if (other := _named(letter.message)) is not None}
    page = await store.search(Query(ids=tuple(ids)), limit=len(ids))
    known = {letter.id: letter for letter in page.letters}
    joined: dict[int, Letter] = {}
    entries: list[Entry] = []
    # of several deaths of one message the first comes first: the others name its letter
    for number, letter in sorted(enumerate(found), key=lambda pair: pair[1].last.at):
        made, entry = _joined(letter, known, now)
        joined[number] = made
        entries += [entry] if entry else []
        known[made.id] = (rejoined(known[made.id], made) or known[made.id]) if made.id in known else made
    return Joined([joined[number] for number in range(len(found))], entries)


def _joined(letter: Letter, known: Mapping[LetterId, Letter], now: datetime) -> tuple[Letter, Entry | None]:
    if (here := known.get(letter.id)) is not None and is_anothers(here, letter):
        letter = set_apart(letter)
    claimed = _named(letter.message)
    origin = None if claimed is None else known.get(claimed)
    told = known.get(letter.id)
    if told is not None and letter.last.type == FOUND_DEAD and _has_told(told, letter):
        return replace(letter, failures=told.failures, message=told.message), None
    if origin is not None and _is_same(origin, letter) and _is_proven(origin, letter):
        failures = tuple(replace(failure, edition=origin.version) for failure in letter.failures)
        same = replace(letter, id=origin.id, message=origin.message, failures=failures)
        return _again(origin, same, _replay(letter.message), now)
    if claimed == letter.id and origin is not None:  # another message, with copied headers: both are kept
        letter = _apart(letter)
    old = known.get(letter.id)
    if old is not None and _claims_to_be_ours(letter):
        return (letter if _is_same(old, letter) and _is_known(old, letter) else _apart(letter)), None
    if old is not None and old.state in _AWAY:
        return _again(old, letter, None, now)
    return letter, None


def _has_told(old: Letter, letter: Letter) -> bool:
    """Whether the worker has told itself of the death that is only found here: it made the same attempt, after what
    came before that, or after the message was sent back."""
    last, since = letter.last, max([letter.message.enqueued_at, *(each.at for each in letter.failures[:-1])])
    return any(
        failure.attempt == last.attempt and failure.at >= since and failure.type != FOUND_DEAD
        for failure in old.failures
    )


def _again(old: Letter, letter: Letter, replay: str | None, now: datetime) -> tuple[Letter, Entry | None]:
    """A letter whose message came back dead; nothing new, if that death is known already."""
    if _is_known(old, letter):
        return letter, None
    if letter.next_retry_at is None:
        letter = replace(letter, state=State.EXHAUSTED, retries=old.retries, expires_at=old.expires_at)
    replay = replay or old.replay
    if replay is None or not old.resends:
        return letter, None
    note = f"{letter.last.type}: {letter.last.message}"[:_LONGEST_NOTE]
    return letter, Entry(replay, old.id, EntryStatus.FAILED, now, note)


def _is_known(old: Letter, letter: Letter) -> bool:
    """Whether nothing of how it died is new."""
    return len(merge_failures(old.failures, letter.failures)) == len(old.failures)


def _named(message: Message) -> LetterId | None:
    """The letter that our header names; anybody can write anything there."""
    value = message.header(LETTER)
    letter = "" if value is None else named(value)
    return letter if _LETTER_ID.fullmatch(letter) else None


def _replay(message: Message) -> str | None:
    value = message.header(REPLAY)
    return value.decode() if value is not None and _REPLAY_ID.fullmatch(value) else None


def _is_same(old: Letter, new: Letter) -> bool:
    """Whether both are of one message: headers are copied by user code, from one message to another, too."""
    before, after = old.message, new.message
    return (old.transport, before.source, before.key) == (new.transport, after.source, after.key) and (
        before.body == after.body or _is_same_json(before.body, after.body)
    )


def _is_proven(old: Letter, new: Letter) -> bool:
    """Whether we sent it back: anybody can copy a body and name a letter."""
    return believed(new.message.headers, old.id, old.message.source, old.message.id) is not None


def _claims_to_be_ours(letter: Letter) -> bool:
    """Whether its record says that we wrote it, and nothing proves that."""
    return letter.foreign and letter.message.header(DEAD_HEADER) is not None


def _is_same_json(body: bytes, other: bytes) -> bool:
    """Whether both are the same JSON: a consumer may have decoded a body, and encoded it anew for its dead letter."""
    try:
        return bool(msgspec.json.decode(body) == msgspec.json.decode(other))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False


def _apart(letter: Letter) -> Letter:
    """The letter under an id of its own, always the same one for the same message."""
    digest = blake2b(letter.message.body, digest_size=6).hexdigest()
    message = replace(unsent(letter.message), id=f"{letter.message.id}#{digest}")
    return replace(letter, id=letter_id(message.source, message.id), message=message)
