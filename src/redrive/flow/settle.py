"""Carry decisions out, a whole batch in one step: durable write first, ack last.

    bury    the transport's own dead-letter place, where it has one ─▶ the store ─▶ ack
    done    the letter that it was sent back from is resolved ─▶ ack
    retry   the transport's own delay, or parked in the store ─▶ ack

What cannot be written is given back: a failing failure path keeps the message and slows down (`flow/writing.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from msgspec import Struct

from redrive.flow.bury import letter_of, parked
from redrive.flow.context import Context
from redrive.flow.decision import Decision
from redrive.flow.lineage import lineage
from redrive.flow.report import report
from redrive.flow.writing import Burial, Writing
from redrive.model import Bury, Done, Letter, Release, Retry
from redrive.transports.base import Delivery, Settlement

_DONE = Done()
_PAUSE = timedelta(seconds=1)


class Settled(Struct, frozen=True):
    """What came of a batch otherwise than it was decided."""

    written: bool = True  # False: a backend is down, and is to be spared for that pause
    kept_back: tuple[Delivery, ...] = ()  # what could not be written was given back instead


_AS_DECIDED = Settled()


async def settle(context: Context, batch: Sequence[Decision], pause: timedelta = _PAUSE) -> Settled:
    """Letters are durable and resolutions written before anything is acked. Raises TransportUnavailable only."""
    plain, others = _split(batch)
    settlements = [Settlement(item.delivery, _DONE) for item in plain]
    if not others:
        report(context, plain, (), (), await context.transport.settle(settlements))
        return _AS_DECIDED
    burials = [Burial(item, letter) for item in others if (letter := _letter(context, item)) is not None]
    returned = [item for item in others if _came_back(item)]
    writing = Writing(context, pause)
    if burials:
        new = await writing.announce(burials)  # in the ledgers of replays
        refused = await writing.publish(new)  # in the transport's own dead-letter place, where it has one
        await writing.record(new)  # in the store
        await writing.refer(refused)
    if returned:
        await writing.resolve(returned)
    others = [writing.given_back.get(id(item), item) for item in others]
    settlements += [_settlement(item, context.parks) for item in others]
    lost = await context.transport.settle(settlements)
    report(context, plain, others, writing.buried(burials), lost)
    kept_back = tuple(item.delivery for item in writing.given_back.values())
    return Settled(not writing.is_down, kept_back) if kept_back else _AS_DECIDED


def _split(batch: Sequence[Decision]) -> tuple[list[Decision], list[Decision]]:
    """Those that succeeded at the first delivery and carry no headers, which need no second look; and the others."""
    plain, others = [], []
    for item in batch:
        delivery = item.delivery
        if type(item.outcome) is Done and not delivery.redelivered and not delivery.message.headers:
            plain.append(item)
        else:
            others.append(item)
    return plain, others


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
