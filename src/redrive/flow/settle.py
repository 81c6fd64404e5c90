"""Carry decisions out, a whole batch in one step: durable write first, ack last.

    bury    the transport's own dead-letter place, where it has one ─▶ the store ─▶ ack
    done    the letter that it was sent back from is resolved ─▶ ack
    retry   the transport's own delay, or parked in the store ─▶ ack

What cannot be written is given back: a failing failure path keeps the message and slows down (`flow/writing.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

from msgspec import Struct
from msgspec.structs import replace

from redrive.flow.attempt import stumble, unreadable
from redrive.flow.bury import behind, letter_of, parked, plainest
from redrive.flow.context import Context
from redrive.flow.decision import Decision
from redrive.flow.lineage import lineage
from redrive.flow.report import report
from redrive.flow.writing import Burial, Writing
from redrive.model import Bury, Done, Letter, Reason, Release, Retry
from redrive.transports.base import CannotReturn, Delivery, Settlement

_DONE = Done()
_PAUSE = timedelta(seconds=1)


class Settled(Struct, frozen=True):
    """What came of a batch otherwise than it was decided."""

    written: bool = True  # False: a backend is down, and is to be spared for that pause
    kept_back: tuple[Delivery, ...] = ()  # what could not be written was given back instead
    unwritten: tuple[Decision, ...] = ()  # what was decided of it


_AS_DECIDED = Settled()


async def settle(context: Context, batch: Sequence[Decision], pause: timedelta = _PAUSE) -> Settled:
    """Letters are durable and resolutions written before anything is acked. Raises TransportUnavailable only.

    A retry that the broker will never take is buried instead.
    """
    stuck: dict[int, str] = {}  # by the id of the delivery: what cannot be retried, and why
    while True:
        try:
            return await _settle(context, batch, pause, stuck)
        except CannotReturn as refusal:
            if refusal.why.keys() <= stuck.keys():
                raise
            stuck.update(refusal.why)
            batch = [_buried(item, refusal.why) for item in batch]


async def _settle(context: Context, batch: Sequence[Decision], pause: timedelta, stuck: Mapping[int, str]) -> Settled:
    plain, others = _split(batch)
    settlements = [Settlement(item.delivery, _DONE) for item in plain]
    if not others:
        report(context, plain, (), (), await context.transport.settle(settlements))
        return _AS_DECIDED
    made = [_with_letter(context, item) for item in others]
    others = [item for item, _ in made]
    burials = [Burial(item, letter) for item, letter in made if letter is not None]
    returned = [item for item in others if may_have_letter(context, item)]
    writing = Writing(context, pause)
    if burials and context.storm is not None:
        done = sum(type(item.outcome) is Done for item in batch)
        burials = await writing.spare(burials, done, context.storm)
    if burials and context.holds is not None:
        burials = await writing.hold(burials, context.holds)  # who waits for whom, of each key
    if burials:
        new = await writing.announce(burials)  # in the ledgers of replays
        refused = await writing.publish(new)  # in the transport's own dead-letter place, where it has one
        await writing.record(new)  # in the store
        await writing.refer(refused)
    if returned:
        await writing.resolve(returned)
    others = [writing.given_back.get(id(item), item) for item in others]
    if writing.given_back:
        plain, others = _in_order(batch, plain, others, writing.given_back.values())
        settlements = [Settlement(item.delivery, _DONE) for item in plain]
    settlements += [_masked(context, _settlement(item, context.parks, stuck)) for item in others]
    lost = await context.transport.settle(settlements)
    report(context, plain, others, writing.buried(burials), lost)
    kept_back = tuple(item.delivery for item in writing.given_back.values())
    return Settled(not writing.is_down, kept_back, tuple(writing.unwritten)) if kept_back else _AS_DECIDED


def _buried(item: Decision, why: Mapping[int, str]) -> Decision:
    """The decision to bury what cannot be retried, with why; another one as it is."""
    if id(item.delivery) not in why or item.failure is None:
        return item
    text = f"{item.failure.message} [not retried: {why[id(item.delivery)]}]"
    return replace(item, outcome=Bury(Reason.TOO_LARGE), failure=replace(item.failure, message=text))


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


def _in_order(
    batch: Sequence[Decision], plain: list[Decision], others: list[Decision], given_back: Iterable[Decision]
) -> tuple[list[Decision], list[Decision]]:
    """Those to be acked, and the others: what is done behind something of its lane that is given back goes back too."""
    lanes = {item.delivery.lane: item.delivery for item in given_back if item.delivery.lane is not None}
    places = {id(item.delivery): place for place, item in enumerate(batch)}
    late = [
        item
        for item in plain
        if item.delivery.lane in lanes and places[id(item.delivery)] > places[id(lanes[item.delivery.lane])]
    ]
    if not late:
        return plain, others
    names = set(map(id, late))
    return (
        [item for item in plain if id(item) not in names],
        others + [Decision(item.delivery, Release()) for item in late],
    )


def _with_letter(context: Context, item: Decision) -> tuple[Decision, Letter | None]:
    """The decision, and the letter to be recorded for it, if any. A message that makes our own code fail here is
    buried as well, with what can be said of it."""
    try:
        return item, _letter(context, item)
    except Exception as error:
        delivery, now = item.delivery, context.clock.now()
        failure = unreadable(context, delivery.message, stumble("to write its letter", error))
        buried = Decision(delivery, Bury(Reason.UNDECODABLE), failure, item.seconds)
        return buried, plainest(delivery, failure, transport=context.handler.transport, now=now)


def _letter(context: Context, item: Decision) -> Letter | None:
    if item.failure is None:
        return None
    now, transport = context.clock.now(), context.handler.transport
    match item.outcome:
        case Bury(Reason.BEHIND) if context.holds is not None:
            until = now + context.holds.rule.longest
            return behind(item.delivery, item.failure, until, transport=transport, now=now)
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


def may_have_letter(context: Context, item: Decision) -> bool:
    """Whether it is a success that may have a letter in the store: it was sent back, or an earlier lease on it ended
    unsettled and letters are recorded before their ack. Where a dead-letter place replaces the store, they are not."""
    if not isinstance(item.outcome, Done):
        return False
    delivery = item.delivery
    if delivery.redelivered and context.records_letters:
        return True
    return bool(delivery.message.headers) and lineage(delivery.message) is not None


def _masked(context: Context, settlement: Settlement) -> Settlement:
    """What a broker keeps with the message has no secrets of an error; a letter of our store has it as it was."""
    if settlement.failure is None or context.mask is None or context.one_store:
        return settlement
    return replace(settlement, failure=context.mask.failure(settlement.failure))


def _settlement(item: Decision, parks: bool, stuck: Mapping[int, str]) -> Settlement:
    """Its transport knows three outcomes; to it, a buried or parked message is done. One that could not be buried is
    retried, if it can be: its attempt stays counted and its failure is kept, though no handler sees it again."""
    outcome = item.outcome
    if isinstance(outcome, Release) and item.is_spent and id(item.delivery) not in stuck:
        return Settlement(item.delivery, Retry(outcome.pause), item.failure)
    if isinstance(outcome, Retry) and not parks:
        return Settlement(item.delivery, outcome, item.failure)
    return Settlement(item.delivery, outcome if isinstance(outcome, Release) else _DONE)
