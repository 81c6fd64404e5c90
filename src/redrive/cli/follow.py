"""Runs a replay and shows how it goes: for `replay`, `retry` and `replays resume`."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar

import click
from msgspec import Struct

from redrive.cli.exits import INTERRUPTED, NOTHING, UNAVAILABLE, Stopped
from redrive.cli.options import span
from redrive.cli.output import letters_said, plain, say, states, tell_json
from redrive.cli.progress import Bar
from redrive.cli.replay_text import paused_said, untold_said, waited_for, ways_on
from redrive.cli.session import Needs, ask, ask_store, command, server
from redrive.config.settings import Settings
from redrive.errors import Unavailable
from redrive.flow.replay import Replay, ReplayState
from redrive.service import Home, ReplayReport, Service
from redrive.stores.base import EntryStatus

_LOOK_EVERY = 0.25
_MOST_LINES = 50
_QUIET = 5.0  # so long without any outcome, and we ask whether a worker runs

H = TypeVar("H", bound=Home)
Start = Callable[[Home], Awaitable[Replay]]
StartHere = Callable[[Service], Awaitable[Replay]]


class Patience(Struct, frozen=True):
    """How long to wait for outcomes, after everything was sent."""

    wait: bool
    timeout: timedelta | None


def waiting(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options --wait and --timeout; the command gets them as `patience`."""

    @functools.wraps(function)
    def with_patience(wait: bool, timeout: timedelta | None, **options: Any) -> Any:
        return function(patience=Patience(wait or timeout is not None, timeout), **options)

    text = "Wait until every outcome is known, with live counts; exit code 1 if not all are resolved."
    wrapped = click.option("--timeout", type=span, metavar="10m", help="Wait, but no longer than this.")(with_patience)
    return click.option("--wait", is_flag=True, help=text)(wrapped)


def follow_replay(start: Start, patience: Patience, *, as_json: bool, each: bool = False) -> None:
    """Start or resume a replay, send it, show what became of it. Whatever stops us, it can be resumed.

    each   of few letters, say what the ledger says of each that was not sent
    """
    _follow(start, lambda work: ask(work, Needs.QUEUES), patience, as_json=as_json, each=each)


def follow_replay_here(start: StartHere, patience: Patience, *, as_json: bool, settings: Settings) -> None:
    """The same beside the store of these settings."""
    _follow(start, lambda work: ask_store(work, Needs.QUEUES, settings), patience, as_json=as_json)


def _follow(
    start: Callable[[H], Awaitable[Replay]],
    asked: Callable[[Callable[[H], Awaitable[ReplayReport]]], ReplayReport],
    patience: Patience,
    *,
    as_json: bool,
    each: bool = False,
) -> None:
    lines: list[str] = []
    begun: list[Replay] = []  # as it was when we last knew, for whoever has to go on with it

    async def work(service: H) -> ReplayReport:
        begun.append(await start(service))
        report = await _sent(service, begun[-1])
        begun.append(report.replay)
        is_paused = report.replay.state is ReplayState.PAUSED
        report = await _known(service, report, patience) if patience.wait and not is_paused else report
        lines.extend(await _not_sent(service, report) if each else ())
        return report

    try:
        report = asked(work)
    except KeyboardInterrupt:
        raise Stopped(f"interrupted{_how_to_go_on(begun)}", INTERRUPTED) from None
    except Unavailable as error:
        raise Stopped(f"{error}{_how_to_go_on(begun)}", UNAVAILABLE) from error
    for line in () if as_json else lines:
        say(line)
    tell_json(report) if as_json else say(_said(report))
    if _is_partial(report, patience):
        raise click.exceptions.Exit(NOTHING)


async def _not_sent(service: Home, report: ReplayReport) -> list[str]:
    """A line for each letter that was not sent back, or failed again, and why."""
    entries, _ = await service.replay_entries(report.replay.id, limit=_MOST_LINES)
    fine = (EntryStatus.SENT, EntryStatus.RESOLVED)
    return [
        f"{entry.letter} {entry.status}{': ' + plain(entry.note) if entry.note else ''}"
        for entry in entries
        if entry.status not in fine
    ]


async def _sent(service: Home, replay: Replay) -> ReplayReport:
    """Send the replay to its end, or until it is paused. If another process runs it we wait: it ends it, or its lease
    ends."""
    told: set[str] = set()
    with Bar("sending", replay.total) as bar:
        while True:
            report = await _run(service, replay.id, bar)
            if report.replay.state not in (ReplayState.RUNNING, ReplayState.FREEZING):
                return report
            for text in _why_not_yet(report.replay):
                if text not in told:
                    say(text)
                    told.add(text)
            await service.clock.sleep(_LOOK_EVERY)


async def _run(service: Home, id: str, bar: Bar) -> ReplayReport:
    """Run it; while it waits for outcomes, the bar says for which."""
    task = asyncio.create_task(service.run_replay(id, progress=bar))
    try:
        while not (await asyncio.wait([task], timeout=_LOOK_EVERY))[0]:
            awaits = (await service.replay_now(id)).awaits
            bar.at(bar.done, f"waiting for {plain(awaits)}" if awaits else "sending")
        return await task
    finally:
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def _why_not_yet(replay: Replay) -> list[str]:
    """Why it is not at its end: what it waits for, or who runs it."""
    if replay.awaits:
        return [f"waits for {plain(replay.awaits)}; Ctrl-C leaves it to a worker"]
    if replay.runner is None and replay.waits:
        return [f"{waited_for(wait)}; Ctrl-C leaves it to a worker" for wait in replay.waits]
    return [f"{plain(replay.runner or 'somebody')} runs it, or died with it and is waited for, a minute"]


async def _known(service: Home, report: ReplayReport, patience: Patience) -> ReplayReport:
    """Wait until each letter's outcome is known, or patience ends."""
    clock, total = service.clock, report.replay.total
    began = changed = clock.elapsed()
    with Bar("waiting for outcomes", total) as bar:
        while (open := _open(report)) and not _is_over(patience, clock.elapsed() - began):
            await clock.sleep(_LOOK_EVERY)
            report = await service.replay_report(report.replay.id)
            bar.at(total - _open(report), states(report.entries).plain)
            changed = clock.elapsed() if _open(report) != open else changed
            if clock.elapsed() - changed > _QUIET:
                say("no outcome for 5 s: does a worker run? Start one with `redrive run MODULE:APP`")
                changed = float("inf")
    return report


def _is_over(patience: Patience, seconds: float) -> bool:
    return patience.timeout is not None and seconds >= patience.timeout.total_seconds()


def _open(report: ReplayReport) -> int:
    """How many letters' outcomes may still come."""
    waiting = (EntryStatus.SENT, EntryStatus.SELECTED) if report.replay.state is ReplayState.RUNNING else ()
    sent = sum(report.entries.get(status, 0) for status in waiting or (EntryStatus.SENT,))
    return max(sent - report.replay.untold, 0)


def _untold(replay: Replay) -> str:
    return f"\n{untold_said(replay)}" if replay.untold else ""


def _is_partial(report: ReplayReport, patience: Patience) -> bool:
    fine = {EntryStatus.RESOLVED} if patience.wait else {EntryStatus.RESOLVED, EntryStatus.SENT, EntryStatus.FAILED}
    if patience.wait and not _open(report):
        fine.add(EntryStatus.SENT)  # of those that are left nobody will tell us more
    if report.replay.state is ReplayState.PAUSED:
        return True
    return not report.entries or any(count for status, count in report.entries.items() if status not in fine)


def _said(report: ReplayReport) -> str:
    counts = states(report.entries).plain or "no letters: they changed since the plan was made"
    look = command("replays", "show", report.replay.id)
    cancelled = " was cancelled" if report.replay.state is ReplayState.CANCELLED else ""
    if report.replay.state is ReplayState.PAUSED:
        said = "\n".join(paused_said(report.replay))
        return f"replay {report.replay.id} is {said}\n{counts}{_untold(report.replay)}\n{ways_on(report.replay)}"
    return f"replay {report.replay.id}{cancelled}: {counts}{_untold(report.replay)}\nWhat became of each letter: {look}"


def _how_to_go_on(begun: list[Replay]) -> str:
    if not begun:
        return ": nothing was sent" if server() is None else f". Whether it began: {command('replays')}"
    if begun[-1].state not in (ReplayState.FREEZING, ReplayState.RUNNING, ReplayState.PAUSED):
        return f". Everything was sent; what becomes of it: {command('replays', 'show', begun[0].id)}"
    if server() is not None:
        return (
            f". Replay {begun[0].id} of {letters_said(begun[0].total)} runs on the server, and goes on there.\n"
            f"Look at it:      {command('replays', 'show', begun[0].id)}\n"
            f"Send no more:    {command('replays', 'cancel', begun[0].id)}"
        )
    return (
        f". Replay {begun[0].id} of {letters_said(begun[0].total)} is not at its end.\n"
        f"Go on with it:   {command('replays', 'resume', begun[0].id)}\n"
        f"Send no more:    {command('replays', 'cancel', begun[0].id)}\n"
        f"A worker or server that runs on this database goes on with it by itself."
    )
