"""Carry outcomes out, a whole batch in one step: durable write first, ack last.

What cannot be written is given back: a failing failure path keeps the message and slows down.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from redrive.errors import TransportUnavailable, Unavailable
from redrive.flow.bury import letter_of, parked
from redrive.flow.context import Context
from redrive.flow.lineage import Lineage, lineage
from redrive.model import OPEN, Bury, Done, Failure, Letter, Outcome, Reason, Release, Retry, State, letter_id
from redrive.stores.base import Entry, EntryStatus
from redrive.telemetry.events import (
    BackendDown,
    BatchSettled,
    LeaseLost,
    LetterRefused,
    LetterResolved,
    MessageBuried,
    MessageRetried,
)
from redrive.transports.base import Delivery, Settlement

_DONE = Done()
_PAUSE = timedelta(seconds=1)
_REFUSED = timedelta(minutes=1)
_BAD_VALUE = (ValueError, TypeError, OverflowError)  # what a broker carries, and a database cannot hold
log = logging.getLogger("redrive")


class Decision(Struct, frozen=True, gc=False):
    """A delivery and what was decided of it."""

    delivery: Delivery
    outcome: Outcome
    failure: Failure | None = None
    seconds: float = 0.0


class Settled(Struct, frozen=True):
    """What came of a batch otherwise than it was decided."""

    written: bool = True  # False: the store is down, and is to be spared for that pause
    kept_back: Sequence[Delivery] = ()  # what the store did not take was given back instead


async def settle(context: Context, batch: Sequence[Decision], pause: timedelta = _PAUSE) -> Settled:
    """Letters are durable and resolutions written before anything is acked. Raises TransportUnavailable only."""
    plain, others = _told_apart(batch)
    buried: Sequence[Letter] = ()
    settled = Settled()
    if to_write := [item for item in others if _is_to_write(item)]:
        silent = [item for item in others if not _is_to_write(item)]
        to_write, buried, written = await _write(context, to_write, pause)
        settled = Settled(written, [item.delivery for item in to_write if isinstance(item.outcome, Release)])
        others = [*silent, *to_write]
    parks = context.parks
    settlements = [Settlement(item.delivery, _DONE) for item in plain]
    settlements += [_settlement(item, parks) for item in others]
    lost = await context.transport.settle(settlements)
    _tell(context, plain, others, buried, lost)
    return settled


def _told_apart(batch: Sequence[Decision]) -> tuple[list[Decision], list[Decision]]:
    """Those that succeeded at the first delivery and carry no headers, which need no second look; and the others."""
    plain, others = [], []
    for item in batch:
        delivery = item.delivery
        if type(item.outcome) is Done and not delivery.redelivered and not delivery.message.headers:
            plain.append(item)
        else:
            others.append(item)
    return plain, others


async def _write(
    context: Context, batch: Sequence[Decision], pause: timedelta
) -> tuple[list[Decision], Sequence[Letter], bool]:
    """The batch, with what could not be written turned into a release; the letters that were; whether all were.

    What is recorded is never given back: its next success would not know that it has a letter.
    """
    letters = [_letter(context, item) for item in batch]
    recorded = resolved = False
    try:
        if refused := await _record(context, batch, [letter for letter in letters if letter is not None]):
            batch = [_kept_back(item, letter, refused) for item, letter in zip(batch, letters, strict=True)]
            letters = [letter if letter and letter.id not in refused else None for letter in letters]
        recorded = True
        await _resolve(context, batch)
        resolved = True
    except Unavailable as error:
        if context.one_store:  # giving it back is a write, too: the outcome is kept, and written later
            raise TransportUnavailable(error.name, error.why) from error
        context.events.emit(BackendDown(backend=error.name, why=str(error), pause=pause))
        kept = [recorded if letter else not _came_back(item) for item, letter in zip(batch, letters, strict=True)]
        given_back = Release(pause)
        batch = [item if keep else replace(item, outcome=given_back) for item, keep in zip(batch, kept, strict=True)]
    buried = [letter for letter in letters if letter is not None and letter.reason is not Reason.PARKED]
    return list(batch), buried if recorded else (), resolved


def _letter(context: Context, item: Decision) -> Letter | None:
    """The letter to be recorded for it, if any."""
    if item.failure is None:
        return None
    now, transport = context.clock.now(), context.handler.transport
    match item.outcome:
        case Bury(reason):
            return letter_of(
                item.delivery,
                item.failure,
                reason,
                context.policy_for(item.delivery),
                transport=transport,
                now=now,
                rng=context.clock.rng,
            )
        case Retry(after) if context.parks:
            return parked(item.delivery, item.failure, after, transport=transport, now=now)
    return None


def _kept_back(item: Decision, letter: Letter | None, refused: set[str]) -> Decision:
    return item if letter is None or letter.id not in refused else replace(item, outcome=Release(_REFUSED))


async def _record(context: Context, batch: Sequence[Decision], letters: Sequence[Letter]) -> set[str]:
    """Tell the ledgers of replays which of theirs died again, and record the letters: last, because it counts.

    Returns the letters that the store will not have. There should be none; one that is must not hold up the others.
    """
    if not letters:
        return set()
    crashed = {letter.id for letter in letters if letter.reason is Reason.CRASHED}
    known = await _at_rest(context, crashed) if crashed else set()
    await _mark(context, [item for item in batch if isinstance(item.outcome, Bury)], EntryStatus.FAILED)
    wanted = [letter for letter in letters if letter.id not in known]
    try:
        await context.store.letters.record(wanted)
    except _BAD_VALUE:
        return {letter.id for letter in wanted if not await _is_recorded(context, letter)}
    return set()


async def _is_recorded(context: Context, letter: Letter) -> bool:
    try:
        await context.store.letters.record([letter])
    except _BAD_VALUE as error:
        log.exception("the store refuses the letter of message %r: it stays in %s", letter.message.id, context.source)
        why = f"{type(error).__name__}: {error}"
        context.events.emit(LetterRefused(source=context.source, message=letter.message.id, why=why))
        return False
    return True


async def _at_rest(context: Context, ids: set[str]) -> set[str]:
    """Letters that a worker recorded before it died, unable to ack: the crash adds nothing to their story."""
    found = [await context.store.letters.get(id) for id in ids]
    return {letter.id for letter in found if letter and letter.state in (State.PENDING, State.EXHAUSTED)}


async def _resolve(context: Context, batch: Sequence[Decision]) -> None:
    """A success of a message that has a letter resolves it."""
    back = [item for item in batch if _came_back(item)]
    if not back:
        return
    ids = {letter_id(item.delivery.message.source, item.delivery.message.id): item for item in back}
    await _mark(context, back, EntryStatus.RESOLVED)
    moved = await context.store.letters.move(list(ids), expect=OPEN, to=State.RESOLVED, now=context.clock.now())
    for id in moved:
        origin = lineage(ids[id].delivery.message)
        context.events.emit(LetterResolved(source=context.source, letter=id, replay=origin.replay if origin else None))


async def _mark(context: Context, items: Sequence[Decision], status: EntryStatus) -> None:
    """Write the outcome into the ledger of the replay that sent each back."""
    now = context.clock.now()
    origins = [lineage(item.delivery.message) for item in items]
    entries = [_entry(origin, status, item, now) for origin, item in zip(origins, items, strict=True) if origin]
    if replayed := [entry for entry in entries if entry.replay]:
        await context.store.ledger.mark(replayed)


def _entry(origin: Lineage, status: EntryStatus, item: Decision, now: datetime) -> Entry:
    note = f"{item.failure.type}: {item.failure.message}"[:200] if item.failure else ""
    return Entry(origin.replay or "", origin.letter, status, now, note)


def _is_to_write(item: Decision) -> bool:
    """Whether a store has to hear of it; a plain success is nobody's business but its transport's."""
    return item.failure is not None or _came_back(item)


def _came_back(item: Decision) -> bool:
    """A success that may have a letter: it was sent back, or an earlier lease on it ended unsettled."""
    return isinstance(item.outcome, Done) and (
        item.delivery.redelivered
        or (bool(item.delivery.message.headers) and lineage(item.delivery.message) is not None)
    )


def _settlement(item: Decision, parks: bool) -> Settlement:
    """Its transport knows three outcomes; to it, a buried or parked message is done."""
    outcome = item.outcome
    if isinstance(outcome, Retry) and not parks:
        return Settlement(item.delivery, outcome, item.failure)
    return Settlement(item.delivery, outcome if isinstance(outcome, Release) else _DONE)


def _tell(
    context: Context,
    plain: Sequence[Decision],
    others: Sequence[Decision],
    buried: Sequence[Letter],
    lost: Sequence[Delivery],
) -> None:
    """Once it is all done: a batch that has to be carried out again is told of once."""
    for letter in buried:
        _tell_buried(context, letter)
    counts = {Done: len(plain), Retry: 0, Bury: 0, Release: 0}
    for item in others:
        counts[type(item.outcome)] += 1
        if isinstance(item.outcome, Retry) and item.failure is not None:
            _tell_retried(context, item, item.outcome.after)
    context.events.emit(
        BatchSettled(
            source=context.source,
            done=counts[Done],
            retried=counts[Retry],
            buried=counts[Bury],
            released=counts[Release],
            seconds=tuple([item.seconds for item in plain] + [item.seconds for item in others]),
        )
    )
    if lost:
        context.events.emit(LeaseLost(source=context.source, messages=tuple(one.message.id for one in lost)))


def _tell_retried(context: Context, item: Decision, after: timedelta) -> None:
    message = item.delivery.message
    assert item.failure is not None
    context.events.emit(
        MessageRetried(
            source=context.source,
            message=message.id,
            tenant=message.tenant,
            correlation_id=message.correlation_id,
            failure=item.failure,
            after=after,
        )
    )


def _tell_buried(context: Context, letter: Letter) -> None:
    context.events.emit(MessageBuried.of(letter, context.source))
