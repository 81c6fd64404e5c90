"""`redrive repair`: a script of yours over many letters: looked at first, applied on yes, undone as one."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import click
from rich.console import RenderableType
from rich.text import Text

from redrive.cli.apps import find_app
from redrive.cli.commands.edit import an_app, coloured
from redrive.cli.confirm import confirm, not_empty
from redrive.cli.exits import NOTHING, Stopped, saying_how_far
from redrive.cli.lazy import common
from redrive.cli.options import as_json, every, filters, span, until_now
from redrive.cli.options import yes as yes_option
from redrive.cli.output import age, letters_said, plain, say, show, table, tell_json
from redrive.cli.progress import Bar
from redrive.cli.session import actor, ask, command
from redrive.config.parse import size_of
from redrive.errors import ConfigError
from redrive.flow.fits import fits
from redrive.flow.replay import selectable
from redrive.forensics.query import Query
from redrive.repair.process import Script
from redrive.repair.spool import Spool
from redrive.service import Home
from redrive.service.repairs import Findings, Repair

_REASONS = 10


def _bytes(value: str) -> int:
    try:
        return size_of(value)
    except (ConfigError, ValueError) as error:
        raise click.BadParameter(str(error)) from error


@click.command()
@click.argument("script", required=False, type=click.Path(path_type=Path), metavar="[SCRIPT]")
@filters
@every
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@click.option("--timeout", type=span, default="5s", show_default=True, metavar="DURATION", help="For one letter.")
@click.option("--memory", type=_bytes, default="512MB", show_default=True, metavar="SIZE", help="For the script.")
@click.option("--reason", default="", help="Why; it is kept with each version.")
@click.option("--undo", metavar="REPAIR", help="Take a repair back: its letters get what they had, byte for byte.")
@click.option("--show", "shown", metavar="REPAIR", help="Show a repair, and which letters have its version.")
@click.option("--list", "listed", is_flag=True, help="List the repairs, newest first.")
@an_app
@yes_option
@as_json
@common
def repair(
    script: Path | None,
    query: Query,
    every: bool,
    dry_run: bool,
    timeout: timedelta,
    memory: int,
    reason: str,
    undo: str | None,
    shown: str | None,
    listed: bool,
    target: str | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Run `def repair(message)` of SCRIPT over letters, in a process of its own. Shows what changes, and asks.

    It returns the message, a new body, or None for what is to stay as it is. A letter that somebody changes between the
    look and the yes is left alone.

    \b
    redrive repair --group 4kq2m7pxw3ab fix.py --dry-run
    redrive repair --group 4kq2m7pxw3ab fix.py
    redrive repair --undo 0197a3f2c4d1
    """
    if listed:
        _list(as_json)
    elif shown is not None:
        _show_one(shown, as_json)
    elif undo is not None:
        _undo(undo, yes, as_json)
    elif script is None:
        raise click.UsageError("name the script: redrive repair --group GROUP fix.py")
    else:
        not_empty(query, every=every, verb="repair")
        child = Script(script, timeout=timeout, memory=memory)
        with Spool() as spool:
            bounded = until_now(query)
            findings = _look(bounded, child, spool, target)
            _decide(findings, dry_run=dry_run, yes=yes, as_json=as_json)
            if not dry_run:
                _apply(spool, script.name, reason, as_json)


def _look(query: Query, script: Script, spool: Spool, target: str | None) -> Findings:
    total = ask(lambda service: service.count(selectable(query)))
    checks = None if target is None else fits(find_app(target).handlers)

    async def look(service: Home) -> Findings:
        async with script:
            return await service.repairs.propose(query, script, spool, actor=actor(), checks=checks, progress=bar)

    with Bar("looking at", total) as bar:
        return ask(look)


def _decide(findings: Findings, *, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Show what was found, and ask."""
    if as_json and dry_run:
        tell_json(findings)
    elif not as_json or not yes:
        show(*_found(findings), err=not dry_run)
    if not findings.total:
        raise Stopped("no letter matches: nothing was changed", NOTHING)
    if not findings.changed and not dry_run:
        raise Stopped("the script changes none of them: nothing was changed", NOTHING)
    if not dry_run:
        confirm(f"Change {letters_said(findings.changed)}?", yes=yes)


def _found(findings: Findings) -> list[RenderableType]:
    failed = sum(findings.failed.values())
    parts: list[RenderableType] = [
        Text(
            f"{letters_said(findings.total)}: {findings.changed:,} would change, {findings.unchanged:,} stay as they "
            f"are, {failed:,} failed",
            style="bold",
        )
    ]
    for why, count in list(findings.failed.items())[:_REASONS]:
        parts.append(Text(plain(f"{count:,} failed: {why} (such as {findings.failed_at[why]})"), style="yellow"))
    if len(findings.failed) > _REASONS:
        parts.append(f"… and {len(findings.failed) - _REASONS:,} other reasons")
    if findings.printed:
        parts.append(f"the script printed {findings.printed:,} lines; the first:")
        parts += [Text(plain(f"  {line}")) for line in findings.first_printed]
    for example in findings.examples:
        parts += ["", Text(example.letter, style="bold"), *coloured(example.diff)]
    return parts


def _apply(spool: Spool, script: str, reason: str, as_json: bool) -> None:
    id = ask(_new_id)
    undo = command("repair", "--undo", id)
    with (
        Bar("changing", spool.count) as bar,
        saying_how_far(lambda: f"some letters were changed. Which: {command('repair', '--show', id)}\nBack: {undo}"),
    ):
        done = ask(
            lambda service: service.repairs.apply(
                spool, script=script, actor=actor(), reason=reason, id=id, progress=bar
            )
        )
    if as_json:
        tell_json(done)
        return
    say(f"{letters_said(done.changed)} changed by repair {done.id}. `{undo}` takes it back.")
    for why, count in done.skipped.items():
        say(f"{letters_said(count)} skipped: {why}")


async def _new_id(service: Home) -> str:
    return service.clock.new_id()


def _undo(id: str, yes: bool, as_json: bool) -> None:
    found = ask(lambda service: service.repairs.get(id))
    confirm(f"Take back what {found.script} changed in {letters_said(found.changed)}?", yes=yes)
    with Bar("restoring", found.changed) as bar:
        done = ask(lambda service: service.repairs.undo(id, actor=actor(), progress=bar))
    if as_json:
        tell_json(done)
    else:
        say(f"{letters_said(done.restored)} restored, byte for byte")
        for why, count in done.skipped.items():
            say(f"{letters_said(count)} left as they are: {why}")
    if done.skipped:
        raise click.exceptions.Exit(NOTHING)


def _show_one(id: str, as_json: bool) -> None:
    async def look(service: Home) -> tuple[Repair, list[str]]:
        return await service.repairs.get(id), [letter async for letter in service.repairs.changed(id)]

    found, letters = ask(look)
    if as_json:
        tell_json({"repair": found, "letters": letters})
        return
    say(f"repair {found.id} with {found.script}, {found.state}, {age(found.at)}, by {plain(found.actor)}")
    say(f"{letters_said(len(letters))} with its version:")
    for letter in letters:
        click.echo(letter)


def _list(as_json: bool) -> None:
    found = ask(lambda service: service.repairs.all())
    if as_json:
        tell_json(found)
        return
    made = table("REPAIR", "STATE", "CHANGED", "SCRIPT", "BY", "WHEN", right=("CHANGED",))
    for item in found:
        made.add_row(item.id, str(item.state), f"{item.changed:,}", plain(item.script), plain(item.actor), age(item.at))
    show(made)
