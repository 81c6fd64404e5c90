"""Writes what a batch needs before its ack, step by step; what could not be written is given back."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from msgspec.structs import replace

from redrive.errors import TransportUnavailable, Unavailable
from redrive.flow.context import Context
from redrive.flow.decision import Decision
from redrive.flow.held import Death, KeyHolds, Place, Verdict
from redrive.flow.lineage import Lineage, lineage, said_version
from redrive.flow.storms import StormGuard
from redrive.model import (
    UNRESOLVED,
    WAITING,
    Bury,
    Letter,
    LetterId,
    MessageId,
    Reason,
    Release,
    Stage,
    State,
    letter_id,
)
from redrive.stores.base import Entry, EntryStatus
from redrive.stores.recording import record_each
from redrive.telemetry.events import BackendDown, KeyHoldFull, LetterRefused, LetterResolved
from redrive.transports.base import DeadLetterPlace, SendResult, SendStatus, refused

_REFUSED = timedelta(minutes=1)
log = logging.getLogger("redrive")


class Burial(NamedTuple):
    """A decision that takes a letter, and the letter."""

    decision: Decision
    letter: Letter

    @property
    def is_dead(self) -> bool:
        """Whether it is dead, and does not only wait in the store for its turn."""
        return self.letter.reason not in WAITING


class Writing:
    """One batch. What is recorded is never given back: its next success would not know that it has a letter.

    pause   how long what cannot be written now is given back for
    """

    def __init__(self, context: Context, pause: timedelta) -> None:
        self.given_back: dict[int, Decision] = {}  # by the id of the decision: what becomes of it instead
        self.unwritten: list[Decision] = []  # those decisions
        self.is_down = False  # a backend is
        self._context = context
        self._pause = pause
        self._published: set[LetterId] = set()
        self._store_is_down = False
        self._full: list[Burial] = []  # more than may be held

    # -- letters -------------------------------------------------------------------------------------------------

    async def spare(self, burials: Sequence[Burial], done: int, guard: StormGuard) -> list[Burial]:
        """Give back what is to be buried beyond the rule: its source is in a storm, which is not its fault. Returns
        what is left to be recorded."""
        dead = [burial for burial in burials if burial.is_dead]
        try:
            allowed = await guard.allowance(done, len(dead))
        except Unavailable as error:
            self._store_down(error)
            self._give_back(burials, self._pause)
            return []
        for burial in dead[allowed:]:
            self.given_back[id(burial.decision)] = replace(burial.decision, outcome=Release())
            if self._context.holds is not None:
                self._context.holds.spared(burial.decision.delivery.message)
        return self._left(burials)

    async def hold(self, burials: Sequence[Burial], holds: KeyHolds) -> list[Burial]:
        """Write down whose key is held, and who follows whom: before any letter, so that a crash leaves the key held.
        Returns what is to be recorded."""
        keyed = [burial for burial in burials if _key(burial) and burial.letter.reason is not Reason.PARKED]
        deaths = [(_key(burial), Death(burial.letter.message.id, not burial.is_dead)) for burial in keyed]
        try:
            places = await holds.write_down(deaths)
        except Unavailable as error:
            self._store_down(error)
            self._give_back(burials, self._pause)
            return []
        wanted = [burial if not _key(burial) else self._in_place(burial, places) for burial in burials]
        full = [burial.letter for burial in self._full]
        if full:
            self._give_back(self._full, _REFUSED)
            why = f"as many are held as the policy allows ({holds.rule!r})"
            self._context.events.emit(KeyHoldFull(source=self._context.source, messages=len(full), why=why))
        return [burial for burial in wanted if burial is not None]

    def _in_place(self, burial: Burial, places: Mapping[MessageId, Place]) -> Burial | None:
        """The burial as it is to be recorded; None: it is given back instead."""
        match places.get(burial.letter.message.id):
            case Place(Verdict.FREE):
                self.given_back[id(burial.decision)] = replace(burial.decision, outcome=Release())
            case Place(Verdict.FULL):
                self._full.append(burial)
            case Place(Verdict.BEHIND, after) if after is not None:
                letter = replace(burial.letter, depends_on=(after, *burial.letter.depends_on))
                return Burial(burial.decision, letter)
            case _:
                return burial
        return None

    async def announce(self, burials: Sequence[Burial]) -> Sequence[Burial]:
        """Write into the ledgers of replays which of their letters died again. Returns what is to be recorded."""
        try:
            crashed = {burial.letter.id for burial in burials if burial.letter.reason is Reason.CRASHED}
            known = await self._at_rest(crashed) if crashed and self._context.records_letters else set()
            dead = [burial.decision for burial in burials if burial.is_dead]
            await self._mark(dead, EntryStatus.FAILED)
        except Unavailable as error:
            self._store_down(error)
            self._give_back(burials, self._pause)
            return ()
        return [burial for burial in burials if burial.letter.id not in known] if known else burials

    def _outside(self, letter: Letter) -> Letter:
        mask = self._context.mask
        return letter if mask is None else mask.letter(letter)

    async def publish(self, burials: Sequence[Burial]) -> Sequence[Burial]:
        """Publish them to the transport's own dead-letter place, where it has one. Returns those that it refuses for
        good: they are in the store only."""
        place = self._context.dead_letter_place
        dead = [burial for burial in burials if burial.is_dead]
        if place is None or not dead:
            return ()
        try:
            answers = await _buried(place, [self._outside(burial.letter) for burial in dead])
        except Unavailable as error:
            self._down(error)
            self._give_back(dead, self._pause)
            return ()
        kept_out, late = [], []
        for burial, answer in zip(dead, answers, strict=True):
            if answer.status is SendStatus.REFUSED:
                kept_out.append(burial)
            elif answer.status is not SendStatus.ACCEPTED:
                late.append((burial, answer))
            elif place.replaces_store:
                self._published.add(burial.letter.id)
        if late:
            self._down(TransportUnavailable(place.name, late[0][1].why))
            self._give_back([burial for burial, _ in late], self._pause)
        return kept_out

    async def record(self, burials: Sequence[Burial]) -> None:
        """Record them in the store: last, because it counts."""
        wanted = [burial for burial in self._left(burials) if burial.letter.id not in self._published]
        if not wanted:
            return
        try:
            refusals = await self._record(wanted)
        except Unavailable as error:
            self._store_down(error)
            self._give_back(wanted, self._pause)
        else:
            self._give_back(refusals, _REFUSED)

    async def _record(self, burials: Sequence[Burial]) -> Sequence[Burial]:
        """Record the letters. Returns those that the store refuses: as a rule none, and one holds up no other."""
        errors = await record_each(self._context.store.letters, [burial.letter for burial in burials])
        for burial in (refusals := [burial for burial in burials if burial.letter.id in errors]):
            self._log_refused(burial.letter, errors[burial.letter.id])
        return refusals

    def _log_refused(self, letter: Letter, error: Exception) -> None:
        source, id = self._context.source, letter.message.id
        log.error("the store refuses the letter of message %r: it stays in %s", id, source, exc_info=error)
        why = f"{type(error).__name__}: {error}"
        self._context.events.emit(LetterRefused(source=source, message=id, why=why))

    async def refer(self, kept_out: Sequence[Burial]) -> None:
        """Tell the dead-letter place where the letters are that it refused. If it cannot now, the whole batch is
        carried out again: they are recorded, and recording them twice changes nothing."""
        place = self._context.dead_letter_place
        recorded = self._left(kept_out)
        if place is not None and recorded:
            await place.refer([burial.letter for burial in recorded])

    def buried(self, burials: Iterable[Burial]) -> list[Letter]:
        """The letters of those that are dead, and durable."""
        return [burial.letter for burial in self._left(burials) if burial.is_dead]

    # -- resolutions ---------------------------------------------------------------------------------------------

    async def resolve(self, returned: Sequence[Decision]) -> None:
        """A success of a message that has a letter resolves it."""
        if self._store_is_down:
            self._release(returned, self._pause)
            return
        try:
            await self._resolve(returned)
        except Unavailable as error:
            self._store_down(error)
            self._release(returned, self._pause)

    async def _resolve(self, returned: Sequence[Decision]) -> None:
        context = self._context
        ids = {letter_id(item.delivery.message.source, item.delivery.message.id): item for item in returned}
        await self._mark(returned, EntryStatus.RESOLVED)
        moved = await context.store.letters.move(
            list(ids), expect=UNRESOLVED, to=State.RESOLVED, now=context.clock.now()
        )
        for id in moved:
            origin = lineage(ids[id].delivery.message)
            replay = origin.replay if origin else None
            context.events.emit(LetterResolved(source=context.source, letter=id, replay=replay))

    # -- inside --------------------------------------------------------------------------------------------------

    async def _at_rest(self, ids: set[LetterId]) -> set[LetterId]:
        """Letters that a worker recorded before it died, unable to ack: the crash adds nothing to their story."""
        found = [await self._context.store.letters.get(id) for id in ids]
        return {letter.id for letter in found if letter and letter.state in (State.PENDING, State.EXHAUSTED)}

    async def _mark(self, items: Sequence[Decision], status: EntryStatus) -> None:
        """Write the outcome into the ledger of the replay that sent each back."""
        now = self._context.clock.now()
        origins = [lineage(item.delivery.message) for item in items]
        entries = [_entry(origin, status, item, now) for origin, item in zip(origins, items, strict=True) if origin]
        if replayed := [entry for entry in entries if entry.replay]:
            await self._context.store.ledger.mark(replayed)

    def _store_down(self, error: Unavailable) -> None:
        if self._context.one_store:  # giving it back is a write, too: the decision is kept, and carried out later
            raise TransportUnavailable(error.name, error.why) from error
        self._store_is_down = True
        self._down(error)

    def _down(self, error: Unavailable) -> None:
        self.is_down = True
        self._context.events.emit(BackendDown(backend=error.name, why=str(error), pause=self._pause))

    def _left(self, burials: Iterable[Burial]) -> list[Burial]:
        return [burial for burial in burials if id(burial.decision) not in self.given_back]

    def _give_back(self, burials: Iterable[Burial], pause: timedelta) -> None:
        self._release((burial.decision for burial in burials), pause)

    def _release(self, items: Iterable[Decision], pause: timedelta) -> None:
        for item in items:
            self.unwritten.append(item)
            self.given_back[id(item)] = replace(item, outcome=Release(pause), is_spent=self._is_spent(item))

    def _is_spent(self, item: Decision) -> bool:
        """Whether it was attempted for the last time, and not counted yet: then nobody else need attempt it either."""
        failure = item.failure
        return (
            isinstance(item.outcome, Bury)
            and failure is not None
            and failure.stage is not Stage.DELIVERY
            and failure.attempt == item.delivery.message.attempt
            and self._context.transport.features.native_delay
            and not self._context.one_store  # there the letter itself counts its attempts
        )


def _key(burial: Burial) -> bytes:
    return burial.letter.message.key or b""


async def _buried(place: DeadLetterPlace, letters: Sequence[Letter]) -> Sequence[SendResult]:
    """The answer of the place for each letter. One that it cannot even put into its form holds up no other: it is
    refused, and in the store only."""
    try:
        return await place.bury(letters)
    except Unavailable:
        raise
    except Exception as error:
        if len(letters) > 1:
            return [answer for letter in letters for answer in await _buried(place, [letter])]
        log.error("a letter has no form for its dead-letter place, and is in the store only", exc_info=error)
        return [refused(f"{type(error).__name__}: {error}")]


def _entry(origin: Lineage, status: EntryStatus, item: Decision, now: datetime) -> Entry:
    failed = f"{item.failure.type}: {item.failure.message}" if item.failure else ""
    note = "; ".join(filter(None, (said_version(origin.version), failed)))[:200]
    return Entry(origin.replay or "", origin.letter, status, now, note)
