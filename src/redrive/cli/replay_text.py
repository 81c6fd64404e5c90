"""What is said of a replay: how carefully it goes, what it waits for, why it is paused, and what to do then."""

from __future__ import annotations

from redrive.cli.output import letters_said, plain
from redrive.cli.session import command
from redrive.flow.replay import Replay, ReplayState
from redrive.flow.replay_document import PausedBy
from redrive.flow.waiting import Wait


def waited_for(wait: Wait) -> str:
    """A target that takes nothing, since when it is waited for, and until when."""
    where = plain(f"{wait.transport}/{wait.source}")
    return f"waits for {where}: {plain(wait.why)}. Given up at {wait.until:%H:%M:%S} UTC if it takes nothing until then"


def guarded(replay: Replay) -> str:
    """How carefully it goes, and where it is; empty if it does not."""
    if replay.guard is None:
        return ""
    steps = replay.steps
    now = min(replay.step, len(steps) - 1)
    return f", guarded at {replay.guard.share:.0%}: step {now + 1} of {len(steps)}, up to {steps[now]:,}"


def untold_said(replay: Replay) -> str:
    """What to expect of letters that went to consumers which tell us nothing."""
    return (
        f"{letters_said(replay.untold)} went back to consumers that are not Redrive's: sent is all that will "
        f"be known of them, unless one dies again and `redrive collect` finds it"
    )


def paused_said(replay: Replay) -> list[str]:
    """Why it is paused, with what letters died of before and now; nothing, if it is not."""
    paused = replay.paused
    if paused is None or replay.state is not ReplayState.PAUSED:
        return []
    who = f" by {plain(paused.actor)}" if paused.by is PausedBy.HAND else ""
    why = f": {plain(paused.why)}" if paused.why else ""
    lines = [f"paused{who}, {paused.at:%H:%M:%S} UTC{why}"]
    for case in paused.compared:
        verdict = "as before" if case.is_same else "elsewhere"
        lines.append(f"  {letters_said(case.letters)} died {verdict}, in group {case.now_group}: {plain(case.now)}")
        if not case.is_same:
            before = plain(case.before) or "not known"
            lines.append(f"    before, in group {case.before_group or 'unknown'}: {before}")
    return lines


def ways_on(replay: Replay) -> str:
    """What somebody can do with a replay that is paused."""
    return (
        f"Go on with it:   {command('replays', 'resume', replay.id)}\n"
        f"Go on slower:    {command('replays', 'pace', replay.id, '--rate', '1/s')}\n"
        f"Send no more:    {command('replays', 'cancel', replay.id)}"
    )
