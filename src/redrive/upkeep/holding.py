"""Held keys: when the first of a key is resolved or archived, the next one follows (flow/held.py).

Any number of processors may run: who waits for whom is changed only over the version that was read, and a letter is
claimed before it is sent. One letter of a key is on its way at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import timedelta

from msgspec.structs import replace

from redrive.clock import Clock
from redrive.flow.fits import Fits
from redrive.flow.held import KIND, MOST_LISTED, HeldKey, body_of, read
from redrive.flow.resend import Resend
from redrive.forensics.query import Query
from redrive.model import Failure, Letter, LetterId, MessageId, Owner, Reason, Stage, State, letter_id
from redrive.stores.base import Document, Store
from redrive.telemetry.events import Events, KeyReleased, LettersMoved, LettersRetried
from redrive.transports.base import SendStatus, Transport

_CLOSED = (State.RESOLVED, State.ARCHIVED)
_AT_ONCE = 500  # letters that are looked up in one query
_OF_ONE = 50  # members of a key that are looked at in one round
_SOON = 0.05
_SPARING = 10  # a round that takes long is repeated after so many times its duration
log = logging.getLogger("redrive")


class Holding:
    """Lets keys go on.

    patience   how long a letter that is not in the store is waited for: its worker may have died before it wrote it,
               and whoever gets its message writes it. After that it was purged
    """

    def __init__(
        self,
        store: Store,
        transports: Mapping[str, Transport],
        events: Events,
        clock: Clock,
        *,
        owner: Owner,
        lease: timedelta,
        patience: timedelta,
        fits: Fits = lambda message: None,
    ) -> None:
        self.soon = 1e9  # seconds after which another round is worth it, because something moves
        self._store = store
        self._transports = transports
        self._events = events
        self._clock = clock
        self._owner = owner
        self._patience = patience.total_seconds()
        self._way = Resend(store, transports, clock, to=State.RETRYING, owner=owner, lease=lease, fits=fits)
        self._missing: dict[LetterId, float] = {}  # letters that are not there, since when
        self._known_missing: dict[LetterId, float] = {}  # those of the round before

    async def cycle(self) -> int:
        """One round; how many letters were sent."""
        self.soon, began = 1e9, self._clock.elapsed()
        found = await self._store.documents.list(KIND, limit=MOST_LISTED)
        held = [(document, key) for document in found if (key := read(document)) is not None]
        heads = await self._letters([key.head for _, key in held if key.members])
        self._known_missing, self._missing = self._missing, {}
        next_ones: list[LetterId] = []
        for document, key in held:
            next_ones += await self._look_at(document, key, heads)
        sent = await self._send(next_ones)
        if self.soon < 1e9:
            self.soon = max(_SOON, _SPARING * (self._clock.elapsed() - began))
        return sent

    async def _look_at(self, document: Document, held: HeldKey, heads: Mapping[LetterId, Letter]) -> list[LetterId]:
        """Take out what is closed; the letter that is to be sent now, if there is one."""
        first = heads.get(held.head) if held.members else None
        if held.members and first is not None and first.state not in _CLOSED:
            if first.state in (State.RETRYING, State.REPLAYING):
                self.soon = 0  # somebody waits for its outcome
            elif self._waits_its_turn(first):
                return [first.id]
            elif self._clock.now() >= held.until:
                await self._give_up(document, held)
            return []
        if held.members and first is None and not self._is_gone(held.head):
            return []
        await self._take_out(document, held)
        self.soon = 0
        return []

    async def _take_out(self, document: Document, held: HeldKey) -> None:
        looked_at = held.members[:_OF_ONE]
        ids = {member: letter_id(held.source, member) for member in looked_at}
        letters = await self._letters(list(ids.values()))
        closed = {
            member
            for member, id in ids.items()
            if (letters[id].state in _CLOSED if id in letters else self._is_gone(id))
        }
        await self._keep(document, held, tuple(member for member in held.members if member not in closed))

    async def _keep(self, document: Document, held: HeldKey, members: tuple[MessageId, ...]) -> bool:
        """Only over the version that was read: what has come meanwhile is looked at in the next round."""
        documents = self._store.documents
        if not members:
            return await documents.delete(KIND, document.id, expect=document.version)
        since = held.since if members[0] == held.members[0] else self._clock.now()
        body = body_of(replace(held, members=members, since=since))
        return await documents.put(KIND, document.id, body, expect=document.version)

    async def _give_up(self, document: Document, held: HeldKey) -> None:
        """It was waited for long enough: those behind it follow without it."""
        if not await self._keep(document, held, held.members[1:]):
            return
        log.warning("letter %s held its key for %s: %d follow without it", held.head, held.longest, held.behind)
        self._events.emit(KeyReleased(source=held.source, letter=held.head, behind=held.behind))
        self.soon = 0
        if held.behind:
            await self._depend_no_more(letter_id(held.source, held.members[1]))

    async def _depend_no_more(self, id: LetterId) -> None:
        letter = await self._store.letters.get(id)
        if letter is None or not self._waits_its_turn(letter):
            return
        now = self._clock.now()
        why = "the letter before it was waited for long enough: it follows without it"
        failure = Failure(
            type=letter.last.type,
            message=why,
            category=letter.category,
            retryable=True,
            at=now,
            attempt=letter.message.attempt,
            stage=Stage.DELIVERY,
        )
        await self._store.letters.record([replace(letter, failures=(failure,), depends_on=(), updated_at=now)])

    async def _send(self, ids: Sequence[LetterId]) -> int:
        """Claim, send, confirm; undo what was not sent."""
        sent = 0
        for start in range(0, len(ids), _AT_ONCE):
            some = tuple(ids[start : start + _AT_ONCE])
            letters = await self._way.claim(Query(ids=some, states=(State.PENDING,)), len(some))
            results = await self._way.send(letters)
            accepted = [letter for letter in letters if results[letter.id].status is SendStatus.ACCEPTED]
            refused = [letter for letter in letters if results[letter.id].status is SendStatus.REFUSED]
            for letter in accepted:
                self._events.emit(LettersRetried(source=letter.message.source, count=1))
            if refused:
                log.warning("%d letters cannot go back: %s", len(refused), results[refused[0].id].why)
                await self._way.undo(refused, State.EXHAUSTED)
                self._events.emit(LettersMoved(to=State.EXHAUSTED, count=len(refused), actor=self._owner))
            done = {letter.id for letter in (*accepted, *refused)}
            late = [letter for letter in letters if letter.id not in done]
            await self._way.undo([letter for letter in late if not self._way.may_double(letter, results[letter.id])])
            sent += len(accepted)
        if sent:
            self.soon = 0
        return sent

    async def _letters(self, ids: Sequence[LetterId]) -> dict[LetterId, Letter]:
        found: dict[LetterId, Letter] = {}
        for start in range(0, len(ids), _AT_ONCE):
            some = tuple(ids[start : start + _AT_ONCE])
            page = await self._store.letters.search(Query(ids=some), limit=len(some))
            found |= {letter.id: letter for letter in page.letters}
        return found

    def _is_gone(self, id: LetterId) -> bool:
        """Whether a letter that is not in the store was not there for so long that nobody will write it."""
        now = self._clock.elapsed()
        since = self._missing[id] = self._known_missing.get(id, now)
        return now - since >= self._patience

    def _waits_its_turn(self, letter: Letter) -> bool:
        return letter.state is State.PENDING and letter.reason is Reason.BEHIND
