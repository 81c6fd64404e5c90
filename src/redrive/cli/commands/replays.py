"""`redrive replays`: what was replayed, by whom, and what became of each letter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import msgspec
from rich.console import RenderableType
from rich.text import Text

from redrive.cli.completing import a_replay
from redrive.cli.follow import Patience, follow_replay, waiting
from redrive.cli.lazy import common
from redrive.cli.options import as_json, share
from redrive.cli.options import rate as a_rate
from redrive.cli.output import WIDE, age, line, say, show, state, states, table, tell_json, width
from redrive.cli.replay_text import guarded, paused_said, untold_said, waited_for
from redrive.cli.session import actor, again, ask, command
from redrive.flow.replay import Replay
from redrive.flow.replay_document import NewPace
from redrive.service import Home, ReplayReport
from redrive.stores.base import Entry, EntryStatus

_STATUSES = click.Choice([str(status) for status in EntryStatus])


@click.group(invoke_without_command=True)
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many at most.")
@as_json
@common
@click.pass_context
def replays(ctx: click.Context, limit: int, as_json: bool) -> None:
    """List replays, newest first; or show, pause, resume, pace or cancel one.

    \b
    redrive replays
    redrive replays show 01k0q8v3ya8mh1b9c4j2 --status failed
    """
    if ctx.invoked_subcommand is not None:
        return
    found = ask(lambda service: _list(service, limit))
    if as_json:
        tell_json({"replays": found})
    elif found:
        show(_listed(found), *_waiting(found))
    else:
        say("no replays yet: `redrive replay` makes one")


@replays.command("show")
@click.argument("id", shell_complete=a_replay)
@click.option("--status", type=_STATUSES, help="Only letters of which this became.")
@click.option("--text", default="", help="Only letters with that in their id, or in why.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="How many at most.")
@click.option("--after", metavar="CURSOR", help="The next page: the cursor that the page before gave.")
@as_json
@common
def show_one(id: str, status: str | None, text: str, limit: int, after: str | None, as_json: bool) -> None:
    """Show one replay and its ledger: what became of each letter."""
    wanted = None if status is None else EntryStatus(status)
    report, entries, more = ask(lambda service: _ledger(service, id, wanted, text, after, limit))
    if as_json:
        tell_json({"replay": report.replay, "entries": report.entries, "ledger": entries, "after": more})
        return
    show(*_facts(report), "", _lines(entries))
    if more is not None:
        say(f"There may be more: {again(after=more)}")


@replays.command("resume")
@click.argument("id", shell_complete=a_replay)
@waiting
@as_json
@common
def resume(id: str, patience: Patience, as_json: bool) -> None:
    """Go on with a replay that is paused, was interrupted, or waits. What it sent already is not sent twice."""
    follow_replay(lambda service: service.resume_replay(id, actor=actor()), patience, as_json=as_json)


@replays.command("pause")
@click.argument("id", shell_complete=a_replay)
@click.option("--reason", default="", help="Why, for whoever finds it paused.")
@as_json
@common
def pause(id: str, reason: str, as_json: bool) -> None:
    """Send no more of a replay until somebody resumes it. What was sent keeps its course."""
    report = ask(lambda service: service.pause_replay(id, actor=actor(), why=reason))
    on = command("replays", "resume", id)
    said = f"replay {id} is {report.replay.state}: {states(report.entries).plain}\nGo on with it: {on}"
    tell_json(report) if as_json else say(said)


@replays.command("pace")
@click.argument("id", shell_complete=a_replay)
@click.option("--rate", type=a_rate, metavar="50/s", help="At most so many letters a second from now on.")
@click.option("--unlimited", is_flag=True, help="As fast as the transport takes them from now on.")
@click.option("--guard", type=share, metavar="10%", help="Pause when more than this share of a step dies again.")
@click.option("--no-guard", is_flag=True, help="Send the rest without waiting for outcomes.")
@as_json
@common
def pace(id: str, rate: float | None, unlimited: bool, guard: float | None, no_guard: bool, as_json: bool) -> None:
    """Change how fast a replay goes, and how carefully, while it runs or is paused.

    \b
    redrive replays pace 01k0q8v3ya8mh1b9c4j2 --rate 5/s
    """
    if (rate is None) + (not unlimited) + (guard is None) + (not no_guard) == 4:
        raise click.UsageError("what is to change? Give --rate or --unlimited, --guard or --no-guard")
    if (rate is not None and unlimited) or (guard is not None and no_guard):
        raise click.UsageError("give --rate or --unlimited, and --guard or --no-guard, but not both of them")

    async def work(service: Home) -> ReplayReport:
        pace = NewPace(rate=rate, unlimited=unlimited, share=guard, guarded=False if no_guard else None)
        return await service.pace_replay(id, pace, actor=actor())

    report = ask(work)
    tell_json(report) if as_json else show(*_facts(report))


@replays.command("cancel")
@click.argument("id", shell_complete=a_replay)
@as_json
@common
def cancel(id: str, as_json: bool) -> None:
    """Send no more of a replay. What was sent keeps its course; the rest waits as before."""
    report = ask(lambda service: service.cancel_replay(id, actor=actor()))
    tell_json(report) if as_json else say(f"replay {id} is {report.replay.state}: {states(report.entries).plain}")


async def _list(service: Home, limit: int) -> list[ReplayReport]:
    return [await service.replay_report(replay.id) for replay in await service.list_replays(limit)]


async def _ledger(
    service: Home, id: str, status: EntryStatus | None, text: str, after: str | None, limit: int
) -> tuple[ReplayReport, Sequence[Entry], str | None]:
    entries, more = await service.replay_entries(id, status=status, text=text, after=after, limit=limit)
    return await service.replay_report(id), entries, more


def _listed(found: Sequence[ReplayReport]) -> RenderableType:
    wide = width() >= WIDE
    made = table("REPLAY", "STATE", "AGE", "TOTAL", *(("BY", "REASON") if wide else ()), "LETTERS", right=("TOTAL",))
    for report in found:
        replay = report.replay
        extra = (line(replay.actor), line(replay.reason)) if wide else ()
        made.add_row(
            replay.id, state(replay.state), age(replay.created_at), f"{replay.total:,}", *extra, states(report.entries)
        )
    return made


def _facts(report: ReplayReport) -> list[RenderableType]:
    replay = report.replay
    by = f"by {replay.actor}, {age(replay.created_at)}" + (f": {replay.reason}" if replay.reason else "")
    rate = "" if replay.rate is None else f", at most {replay.rate:g} a second"
    return [
        Text.assemble(Text(f"Replay {replay.id}", style="bold"), " is ", state(replay.state), _runner(replay)),
        line(f"{by}{rate}{guarded(replay)}"),
        line(f"of {_query(replay)}"),
        Text.assemble(f"{replay.total:,} selected: ", states(report.entries)),
        *([line(f"waits for {replay.awaits}")] if replay.awaits else []),
        *([line(f"{untold_said(replay)}")] if replay.untold else []),
        *(line(text) for text in paused_said(replay)),
        *(line(f"{waited_for(wait)}{_again(replay)}") for wait in replay.waits),
    ]


def _waiting(found: Sequence[ReplayReport]) -> list[RenderableType]:
    """A line for each that cannot go on now."""
    lines = [line(f"{report.replay.id} {waited_for(wait)}") for report in found for wait in report.replay.waits]
    for report in found:
        replay = report.replay
        if replay.awaits:
            lines.append(line(f"{replay.id} waits for {replay.awaits}"))
        lines += [line(f"{replay.id} is {text}") for text in paused_said(replay)[:1]]
    return [*lines]


def _again(replay: Replay) -> str:
    return "" if replay.again_at is None else f"; asked again at {replay.again_at:%H:%M:%S}"


def _runner(replay: Replay) -> str:
    return f", run by {replay.runner}" if replay.runner else ""


def _query(replay: Replay) -> str:
    fields: dict[str, Any] = msgspec.to_builtins(replay.query)
    return ", ".join(f"{name} {_value(value)}" for name, value in fields.items()) or "every letter"


def _value(value: Any) -> str:
    return " or ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _lines(entries: Sequence[Entry]) -> RenderableType:
    made = table("LETTER", "STATUS", "WHEN", "NOTE")
    for entry in entries:
        made.add_row(entry.letter, state(entry.status), age(entry.at), line(entry.note))
    return made
