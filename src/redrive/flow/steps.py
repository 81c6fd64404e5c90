"""Pure: what a replay does next, by how far it is, what became of its letters, and the time."""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import TypeAlias

from msgspec import Struct

from redrive.flow.guard import Fates, awaited, crosses
from redrive.flow.replay_document import PausedBy, Replay


class Supply(Enum):
    """What is there to be sent."""

    MORE = "more"  # something can go now
    BEHIND = "behind"  # what is left is behind letters whose outcome is not known
    LATER = "later"  # what is left goes to targets that are to be left alone for now
    NONE = "none"  # everything had its turn


class Send(Struct, frozen=True):
    """Send so many at most."""

    most: int


class Await(Struct, frozen=True):
    """Wait for outcomes; why, for people."""

    why: str


class Advance(Struct, frozen=True):
    """The step is done: begin that one."""

    step: int


class Pause(Struct, frozen=True):
    """Send no more until somebody says so."""

    by: PausedBy
    why: str


class Rest(Struct, frozen=True):
    """Nothing can be done before a target can be asked again."""


class End(Struct, frozen=True):
    """Everything that was selected had its turn."""


Act: TypeAlias = Send | Await | Advance | Pause | Rest | End


def next_act(replay: Replay, fates: Fates, supply: Supply, now: datetime) -> Act:
    """What to do now.

    1. too many died again: pause
    2. nothing is left: end. What became of the last step is told by the ledger; there is nothing left to hold back
    3. the step has letters left: send, or wait for what stands before them
    4. the step is sent: wait for its outcomes, for as long as the deadline allows, then the next step
    """
    if replay.guard is not None and crosses(replay.guard, _size(replay), fates, replay.base):
        return Pause(PausedBy.GUARD, _too_many(replay, fates))
    if supply is Supply.NONE:
        return End()
    left = _left(replay, fates)
    if left > 0 and supply is Supply.MORE:
        return Send(left)
    if left > 0 and supply is Supply.LATER:
        return Rest()
    waiting = awaited(fates, replay.base)
    if left > 0:
        return _awaiting(replay, f"the outcome of the letters before them, to keep {_order(fates.selected)}", now)
    if waiting:
        return _awaiting(replay, f"the outcome of {_letters(waiting)}, {step_of(replay)}", now)
    return Advance(replay.step + 1)


def step_of(replay: Replay) -> str:
    """Where a guarded replay is: `the canary`, or `step 2 of 4`."""
    return "the canary" if replay.step == 0 else f"step {replay.step + 1} of {len(replay.steps)}"


def _left(replay: Replay, fates: Fates) -> int:
    """How many letters of this step have not had their turn. The last step has no bound: it ends with the letters."""
    steps = replay.steps
    if replay.guard is None or replay.step >= len(steps) - 1:
        return max(replay.total, 1)
    return steps[replay.step] - fates.gone


def _awaiting(replay: Replay, what: str, now: datetime) -> Await | Pause:
    if replay.heard_at is not None and now - replay.heard_at >= replay.deadline:
        return Pause(PausedBy.DEADLINE, f"nothing was heard for {_span(replay)} of {what}: does a worker run?")
    return Await(what)


def _size(replay: Replay) -> int:
    """How many letters a step has."""
    steps = (0, *replay.steps)
    step = min(replay.step, len(steps) - 2)
    return steps[step + 1] - steps[step]


def _too_many(replay: Replay, fates: Fates) -> str:
    assert replay.guard is not None
    failed = fates.failed - replay.base.failed
    known = failed + fates.resolved - replay.base.resolved
    return (
        f"{failed:,} of {_letters(known)} died again in {step_of(replay)} "
        f"({failed / known:.0%}, and the guard is {replay.guard.share:.0%})"
    )


def _order(selected: int) -> str:
    return f"the order of the {_letters(selected)} left"


def _span(replay: Replay) -> str:
    seconds = replay.deadline.total_seconds()
    return f"{seconds / 60:g} min" if seconds >= 60 else f"{seconds:g} s"


def _letters(count: int) -> str:
    return f"{count:,} letter{'' if count == 1 else 's'}"
