"""Which keys are held: a message of each is dead, and those behind it wait as letters until their turn comes.

    m1 dies ─▶ [m1]      a document of the store, one for each held key, written before the letter is
    m2 comes ─▶ [m1 m2]   it is set aside: its letter depends on that of m1
    m1 is resolved ─▶ [m2]   upkeep (upkeep/holding.py) takes out what is closed, and sends the first that waits
    m2 is resolved ─▶ []   the document is deleted: the key is free

The document is written first, so that a worker which dies between the two writes leaves a key that is held, and its
message unacknowledged: it comes again, and is recorded then. Only the store decides who is behind whom; what a worker
knows is a copy, which it looks at before each attempt.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from redrive.clock import Clock
from redrive.model import Letter, LetterId, Message, MessageId, letter_id
from redrive.policy import HoldKey
from redrive.stores.base import Document, Documents
from redrive.untrusted import UNREADABLE

KIND = "held-key"
MOST_LISTED = 100_000
_FRESH = 0.1  # seconds for which a look at the store is new enough, where order is not exact anyway
_SPARING = 10  # a look that takes long is repeated after so many times its duration


class HeldKey(Struct, frozen=True, kw_only=True):
    """A key of which a message is dead."""

    transport: str
    source: str
    key: bytes
    members: tuple[MessageId, ...]  # the one that is dead, or whose turn it is; then those behind it, in order
    since: datetime  # since when the first of them is the first
    longest: timedelta  # how long it may be that

    @property
    def head(self) -> LetterId:
        """The letter that all others of the key wait for."""
        return letter_id(self.source, self.members[0])

    @property
    def behind(self) -> int:
        """How many wait for it."""
        return len(self.members) - 1

    def around(self, id: MessageId) -> tuple[LetterId | None, int]:
        """The letter that this message waits for, and how many wait for this one, directly or not."""
        if id not in self.members:
            return None, 0
        place = self.members.index(id)
        return self.head if place else None, len(self.members) - place - 1

    @property
    def until(self) -> datetime:
        """When it is waited for no longer."""
        return self.since + self.longest


class Death(NamedTuple):
    """A message that is to become a letter."""

    id: MessageId
    is_behind: bool  # it was not attempted, because its key was held


class Verdict(Enum):
    """What the store says of such a message."""

    DEAD = "dead"
    BEHIND = "behind"
    FREE = "free"  # its key is not held any more, or it is its turn: it may be attempted
    FULL = "full"  # a bound is met: it stays in the broker


class Place(NamedTuple):
    """The verdict, and after which message it comes."""

    verdict: Verdict
    after: MessageId | None = None


class Plan(NamedTuple):
    """The members of a key, and where each of some messages stands."""

    members: tuple[MessageId, ...]
    places: dict[MessageId, Place]


def plan(members: Sequence[MessageId], deaths: Iterable[Death], most: int) -> Plan:
    """Pure: let them join the members of their key, in order. Repeating it changes nothing."""
    joined = list(members)
    places: dict[MessageId, Place] = {}
    for death in deaths:
        if death.is_behind and (not joined or joined[0] == death.id):
            places[death.id] = Place(Verdict.FREE)
            continue
        if death.id not in joined:
            if len(joined) > most:
                places[death.id] = Place(Verdict.FULL)
                continue
            joined.append(death.id)
        at = joined.index(death.id)
        places[death.id] = Place(Verdict.BEHIND, joined[at - 1]) if death.is_behind else Place(Verdict.DEAD)
    return Plan(tuple(joined), places)


class KeyHolds:
    """The held keys of one source, as one worker knows them, and the way to change them.

    always_fresh   look at the store before each batch: a key may be held by another worker a moment ago
    """

    def __init__(
        self,
        documents: Documents,
        clock: Clock,
        *,
        transport: str,
        source: str,
        rule: HoldKey,
        always_fresh: bool = False,
    ) -> None:
        self.keys: dict[bytes | None, tuple[MessageId, ...]] = {}  # as far as we know, in one object for good
        self.rule = rule
        self._documents = documents
        self._clock = clock
        self._transport = transport
        self._source = source
        self._fresh = 0.0 if always_fresh else _FRESH
        self._dead: dict[bytes, list[MessageId]] = {}  # of each key: what died here and is not written down yet
        self._changes = 0
        self._moves = 0
        self._again_at: float | None = None  # not looked before; None: not looked yet

    # -- what is known -------------------------------------------------------------------------------------------

    def is_behind(self, message: Message) -> bool:
        """Whether another message of its key has to be resolved first, as far as we know."""
        members = self.keys.get(message.key)
        return members is not None and members[0] != message.id

    def died(self, message: Message) -> None:
        """It is decided that this one is to be buried: from now on its key is held here."""
        if message.key is None:
            return
        known = self.keys.get(message.key, ())
        if message.id not in known:
            self.keys[message.key] = (*known, message.id)
            self._dead.setdefault(message.key, []).append(message.id)
            self._changes += 1

    def spared(self, message: Message) -> None:
        """It was given back, and not buried after all."""
        dead = self._dead.get(message.key, []) if message.key is not None else []
        if message.key is not None and message.id in dead:
            dead.remove(message.id)
            if not dead:
                del self._dead[message.key]
            self._learn(message.key, [id for id in self.keys.get(message.key, ()) if id != message.id])

    @property
    def is_known(self) -> bool:
        """Whether the store was asked once."""
        return self._again_at is not None

    def is_due(self, moves: int) -> bool:
        """Whether the store has to be asked before the next attempt.

        moves   how often keys have come to us from another worker
        """
        return self._again_at is None or moves != self._moves or self._clock.elapsed() >= self._again_at

    async def look(self, moves: int = 0) -> None:
        """Ask the store what is held. Raises StoreUnavailable: what was known is known."""
        began = self._clock.elapsed()
        while True:
            changes = self._changes
            found = await held_keys(self._documents, transport=self._transport, source=self._source)
            if changes == self._changes:
                break
        self.keys.clear()
        self.keys.update((held.key, held.members) for held in found)
        for key, dead in self._dead.items():
            known = self.keys.get(key, ())
            self.keys[key] = (*known, *(id for id in dead if id not in known))
        now = self._clock.elapsed()
        self._again_at, self._moves = now + max(self._fresh, _SPARING * (now - began) if self._fresh else 0.0), moves

    # -- what is written -----------------------------------------------------------------------------------------

    async def write_down(self, deaths: Sequence[tuple[bytes, Death]]) -> dict[MessageId, Place]:
        """Write into the store who waits for whom; where each of them stands. Repeating it changes nothing."""
        by_key: dict[bytes, list[Death]] = defaultdict(list)
        for key, death in deaths:
            by_key[key].append(death)
        places: dict[MessageId, Place] = {}
        for key, some in by_key.items():
            places |= await self._write_down(key, some)
        return places

    async def _write_down(self, key: bytes, deaths: Sequence[Death]) -> dict[MessageId, Place]:
        name = held_id(self._transport, self._source, key)
        while True:
            document = await self._documents.get(KIND, name)
            held = None if document is None else read(document)
            members = () if held is None else held.members
            dead = [Death(id, False) for id in self._dead.get(key, ())]
            if not members and not (dead or any(not death.is_behind for death in deaths)):
                planned = plan((), deaths, self.rule.most)
                break
            if not members and await self._is_full():
                return {death.id: Place(Verdict.FULL) for death in deaths}
            planned = plan(members, [*dead, *deaths], self.rule.most)
            if planned.members == members:
                break
            since = self._clock.now() if held is None or not members else held.since
            body = self._body(key, planned.members, since)
            if await self._documents.put(KIND, name, body, expect=0 if document is None else document.version):
                break
        self._dead.pop(key, None)
        self._learn(key, planned.members)
        return planned.places

    def _body(self, key: bytes, members: tuple[MessageId, ...], since: datetime) -> dict[str, Any]:
        held = HeldKey(
            transport=self._transport,
            source=self._source,
            key=key,
            members=members,
            since=since,
            longest=self.rule.longest,
        )
        return body_of(held)

    async def _is_full(self) -> bool:
        """Whether so many keys are held that no other may be: the copy says it as a rule, and the store where not."""
        if len(self.keys) - len(self._dead) < self.rule.keys:
            return False
        found = await held_keys(self._documents, transport=self._transport, source=self._source)
        return len(found) >= self.rule.keys

    def _learn(self, key: bytes, members: Sequence[MessageId]) -> None:
        self._changes += 1
        if members:
            self.keys[key] = tuple(members)
        else:
            self.keys.pop(key, None)


async def held_keys(documents: Documents, *, transport: str | None = None, source: str | None = None) -> list[HeldKey]:
    """The keys that are held: of all sources, or of that one of that transport."""
    found = [read(document) for document in await documents.list(KIND, limit=MOST_LISTED)]
    return [
        held
        for held in found
        if held is not None and held.members and transport in (None, held.transport) and source in (None, held.source)
    ]


async def held_key_of(documents: Documents, letter: Letter) -> HeldKey | None:
    """The key of that letter, if it is held."""
    message = letter.message
    if message.key is None:
        return None
    document = await documents.get(KIND, held_id(letter.transport, message.source, message.key))
    held = None if document is None else read(document)
    return held if held is not None and held.members else None


def held_id(transport: str, source: str, key: bytes) -> str:
    """The name of its document: short and plain, whatever source and key are called."""
    return letter_id(f"{transport}\0{source}", key.hex())


def read(document: Document) -> HeldKey | None:
    """The held key of that document; None: it cannot be read."""
    try:
        return msgspec.convert(document.body, HeldKey)
    except UNREADABLE:
        return None


def body_of(held: HeldKey) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.to_builtins(held)
    return body
