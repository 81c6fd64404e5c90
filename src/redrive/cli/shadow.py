"""The options of a shadow replay, and what is shown of it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
from msgspec import Struct
from msgspec.structs import replace
from rich.console import RenderableType
from rich.text import Text

from redrive.cli.exits import NOTHING, Stopped
from redrive.cli.options import span
from redrive.cli.output import error, letters_said, line, say, show, table, tell_json, width
from redrive.cli.session import actor, ask
from redrive.debugging.envfile import read_env_file
from redrive.debugging.shadow import Process, ShadowGroup, ShadowReport, shadow_replay
from redrive.flow.replay import selectable
from redrive.forensics.query import Query
from redrive.service import Home

_NAMES = ("shadow", "handler", "env_file", "limit", "time_limit")


class Shadow(Struct, frozen=True):
    """How letters are to be tried out."""

    handler: str
    environ: dict[str, str]
    limit: int
    within: timedelta


def shadowing(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of a shadow replay; the command gets them as `shadow`, which is None for a real one."""

    @functools.wraps(command)
    def with_shadow(**options: Any) -> Any:
        chosen = {name: options.pop(name) for name in _NAMES}
        return command(shadow=_shadow(**chosen), **options)

    options = [
        click.option("--shadow", is_flag=True, help="Only try: run the letters through --handler, and send nothing."),
        click.option("--handler", metavar="MODULE:HANDLER", help="With --shadow: the handler, such as shop:charge."),
        click.option(
            "--env-file",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="With --shadow: variables of its process, to point its effects elsewhere.",
        ),
        click.option(
            "--limit", type=click.IntRange(1, 1_000_000), help="With --shadow: try so many letters at most (1000)."
        ),
        click.option("--time-limit", type=span, metavar="DURATION", help="With --shadow: try for so long (10m)."),
    ]
    wrapped: Callable[..., Any] = with_shadow
    for option in reversed(options):
        wrapped = option(wrapped)
    return wrapped


def _shadow(
    shadow: bool, handler: str | None, env_file: Path | None, limit: int | None, time_limit: timedelta | None
) -> Shadow | None:
    if not shadow:
        if any(value is not None for value in (handler, env_file, limit, time_limit)):
            raise click.UsageError("--handler, --env-file, --limit and --time-limit are for --shadow, which only tries")
        return None
    if handler is None:
        raise click.UsageError("--shadow runs letters through a handler: name it, as --handler shop:charge")
    within = timedelta(minutes=10) if time_limit is None else time_limit
    if within <= timedelta():
        raise click.BadParameter("it has to be longer than nothing", param_hint="--time-limit")
    return Shadow(handler, {} if env_file is None else read_env_file(env_file), limit or 1000, within)


def run_shadow(query: Query, shadow: Shadow, *, as_json: bool) -> None:
    """Try the letters out, and say what would become of them."""
    report = ask(lambda service: _tried(service, query, shadow))
    if as_json:
        tell_json(report)
    elif report.tried:
        show(*_shown(report))
    if not report.selected:
        raise Stopped("no letter matches: nothing was tried", NOTHING)
    if not as_json:
        say("Nothing was sent, resolved or changed.")
    if report.succeeded < report.tried or not report.tried:
        raise click.exceptions.Exit(NOTHING)


async def _tried(service: Home, query: Query, shadow: Shadow) -> ShadowReport:
    wanted = selectable(query)
    selected = await service.count(wanted)
    letters = service.whole_letters(wanted, actor=actor(), limit=shadow.limit)
    process = Process(shadow.handler, shadow.environ)
    report = await shadow_replay(letters, selected, process, service.clock, within=shadow.within)
    return _redacted(report, service)


def _redacted(report: ShadowReport, service: Home) -> ShadowReport:
    masked = service.redactor.text
    groups = [replace(group, message=masked(group.message), group=masked(group.group)) for group in report.groups]
    return replace(report, groups=tuple(groups))


def _shown(report: ShadowReport) -> list[RenderableType]:
    would = Text(f"{letters_said(report.succeeded)} of {report.tried:,} would succeed", style="bold")
    parts: list[RenderableType] = [would]
    if report.stopped:
        parts.append(f"{report.selected - report.tried:,} more were not tried: {report.stopped}")
    if report.groups:
        parts += ["", _groups(report)]
    if report.sent:
        told = ", ".join(f"{count:,} to {source}" for source, count in sorted(report.sent.items()))
        parts += ["", line(f"The handler would have sent messages: {told}. None was.")]
    return parts


def _groups(report: ShadowReport) -> RenderableType:
    made = table("LETTERS", "FAILS", "ERROR", "SUCH AS", right=("LETTERS",))
    for group in report.groups:
        why = error(group.error_type, group.message, 2 * width())
        made.add_row(f"{group.count:,}", _how(group), why, line(group.letters[0]))
    return made


def _how(group: ShadowGroup) -> Text:
    return Text("as before", style="red") if group.same else Text("elsewhere now", style="yellow")
