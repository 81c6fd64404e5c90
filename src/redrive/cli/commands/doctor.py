"""`redrive doctor`: what is configured, what is reachable, what is unsafe, and how to mend it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import NoReturn

import click
import msgspec
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from redrive.answers import within
from redrive.app import Redrive
from redrive.cli.apps import find_app
from redrive.cli.hints import placed, runnable
from redrive.cli.lazy import common
from redrive.cli.options import as_json
from redrive.cli.output import pairs, plain, show, tell_json
from redrive.cli.session import CLOSING, ask, loaded, server
from redrive.config.settings import Described
from redrive.doctor import Diagnosis, Finding, Level, examine
from redrive.forensics.redact import Redactor

_MARKS = {
    Level.FINE: Text("ok", style="green"),
    Level.WARNING: Text("warning", style="yellow"),
    Level.FAILURE: Text("failure", style="red"),
}
_IN_CODE = "the app's code"


@click.command()
@click.option("--app", "target", metavar="MODULE:APP", help="Look at this app: its settings, its handlers.")
@click.option("--strict", is_flag=True, help="Exit code 1 if there are warnings.")
@as_json
@common
def doctor(target: str | None, strict: bool, as_json: bool) -> None:
    """Look at everything, and say how to mend what is wrong. Nothing is created or changed.

    Exit codes: 0 all is well, or there are only warnings; 1 warnings, with --strict; 2 failures.
    """
    if server() is not None:
        _of_server(target, strict, as_json)
    app = Redrive(settings=loaded().settings) if target is None else find_app(target)
    settings = list(_settings(app))
    diagnosis = _placed(asyncio.run(_examined(app)), target)
    if as_json:
        tell_json({"worst": diagnosis.worst, "findings": diagnosis.findings, "settings": settings})
    else:
        show(*_shown(diagnosis, settings))
    raise click.exceptions.Exit({Level.FAILURE: 2, Level.WARNING: int(strict)}.get(diagnosis.worst, 0))


def _of_server(target: str | None, strict: bool, as_json: bool) -> NoReturn:
    """What the server found where it is. Its settings stay there."""
    if target is not None:
        raise click.UsageError("--app looks at an app here, and --server at a server: give one of them")
    diagnosis = ask(lambda service: service.doctor())
    if as_json:
        tell_json({"worst": diagnosis.worst, "findings": diagnosis.findings, "settings": []})
    else:
        show(_findings(diagnosis.findings), "", _verdict(diagnosis))
    raise click.exceptions.Exit({Level.FAILURE: 2, Level.WARNING: int(strict)}.get(diagnosis.worst, 0))


def _placed(diagnosis: Diagnosis, target: str | None) -> Diagnosis:
    """What to do, as commands that work where they are read: on this store, and with this app."""
    return Diagnosis(
        [
            msgspec.structs.replace(finding, mend=runnable(finding.mend.replace("MODULE:APP", target or "MODULE:APP")))
            for finding in diagnosis.findings
        ]
    )


async def _examined(app: Redrive) -> Diagnosis:
    try:
        return await examine(app)
    finally:
        await within(app.aclose(), CLOSING)


def _settings(app: Redrive) -> Iterable[Described]:
    """Every setting, masked; what the app's own code says wins."""
    redactor = Redactor()
    for setting in loaded().describe():
        url = app.urls.get(setting.path, setting.value)
        source = setting.source if url == setting.value else _IN_CODE
        yield msgspec.structs.replace(setting, value=redactor.text(url), source=source)


def _shown(diagnosis: Diagnosis, settings: Iterable[Described]) -> list[RenderableType]:
    chosen = [
        setting
        for setting in settings
        if setting.source != "default" or setting.path in ("store", "transports.default")
    ]
    facts = [(setting.path, Text(f"{plain(setting.value)}  ({setting.source})")) for setting in chosen]
    parts: list[RenderableType] = [Text("Configured", style="bold"), pairs(facts)]
    parts += [
        Text(placed("everything else is as it comes: `redrive config`"), style="dim"),
        "",
        Text("Found", style="bold"),
    ]
    parts += [_findings(diagnosis.findings), "", _verdict(diagnosis)]
    return parts


def _findings(findings: Iterable[Finding]) -> Table:
    made = Table.grid(padding=(0, 2, 0, 0))
    for overflow in (None, None, "fold"):
        made.add_column(no_wrap=overflow is None, overflow=overflow or "ellipsis")
    for finding in findings:
        text = Text(plain(finding.text))
        if finding.mend:
            text.append(f"\n→ {plain(finding.mend)}", style="dim")
        made.add_row(_MARKS[finding.level], finding.about, text)
    return made


def _verdict(diagnosis: Diagnosis) -> Text:
    counts = {level: sum(finding.level is level for finding in diagnosis.findings) for level in Level}
    bad, doubtful = counts[Level.FAILURE], counts[Level.WARNING]
    if not bad and not doubtful:
        return Text("All is well.", style="green")
    return Text(f"{bad} failure{'s' * (bad != 1)}, {doubtful} warning{'s' * (doubtful != 1)}", style="bold")
