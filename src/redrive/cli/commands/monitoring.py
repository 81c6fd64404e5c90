"""`redrive alert-rules` and `redrive dashboard`: what Prometheus and Grafana are to be given."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from redrive.cli.exits import Stopped
from redrive.cli.lazy import common
from redrive.cli.output import say, write
from redrive.cli.session import loaded
from redrive.errors import nearest
from redrive.systems.base import System, resolved
from redrive.systems.discover import systems
from redrive.systems.use import configured
from redrive.telemetry import rules
from redrive.telemetry.dashboard import dashboard as made_dashboard
from redrive.telemetry.panels import ROWS, Row

CORE = "core"


def _parts(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options --system and --output."""
    file = click.Path(path_type=Path, dir_okay=False)
    output = click.option("--output", type=file, metavar="FILE", help="Write it to this file. [stdout]")
    text = "Of this system only, or of the core: `core`. Repeatable. [the core and every system that is configured]"
    return click.option("--system", "names", multiple=True, metavar="NAME", help=text)(output(command))


@click.command("alert-rules")
@_parts
@common
def alert_rules(names: tuple[str, ...], output: Path | None) -> None:
    """Print alert rules for Prometheus: of Redrive itself, and of every system that is configured.

    They are one file for the `rule_files` of Prometheus. Change the thresholds where yours are others.

    \b
    redrive alert-rules > /etc/prometheus/rules/redrive.yml
    redrive alert-rules --system core
    """
    core, chosen = _chosen(names)
    parts = [(CORE, rules.text_of(rules.CORE))] if core else []
    parts += [(system.name, rules.text_of(system.rules)) for system in chosen if system.rules]
    if not parts:
        raise Stopped(f"{', '.join(names)} has no alert rules")
    _put(rules.joined(parts).encode(), output, "rules of " + ", ".join(name for name, _ in parts))


@click.command("dashboard")
@_parts
@common
def dashboard(names: tuple[str, ...], output: Path | None) -> None:
    """Print a dashboard for Grafana: of Redrive itself, and of every system that is configured.

    Import it in Grafana (Dashboards, New, Import), or put it where Grafana is provisioned from. Which Prometheus it
    asks is chosen at its top.

    \b
    redrive dashboard --output redrive.json
    redrive dashboard --system core
    """
    core, chosen = _chosen(names)
    rows = [*(ROWS if core else ()), *(_row(system) for system in chosen if system.panels)]
    if not rows:
        raise Stopped(f"{', '.join(names)} has nothing for a dashboard")
    made = msgspec.json.format(msgspec.json.encode(made_dashboard(rows)), indent=2) + b"\n"
    _put(made, output, "dashboard of " + ", ".join([*([CORE] if core else []), *(each.name for each in chosen)]))


def _chosen(names: Sequence[str]) -> tuple[bool, list[System]]:
    """Whether the core is meant, and which systems."""
    if not names:
        return True, list(configured(loaded().settings))
    known = systems()
    for name in names:
        if name != CORE and name not in known:
            raise Stopped(f"--system {name}: no such system{nearest(name, [CORE, *known])}")
    return CORE in names, [known[name] for name in dict.fromkeys(names) if name != CORE]


def _row(system: System) -> Row:
    """The row of a system; what a stranger's module raises is said in one line."""
    try:
        row = resolved(system.panels, system.extra)
        if not isinstance(row, Row):
            raise TypeError(f"it is a {type(row).__name__}, not a redrive.telemetry.panels.Row")
    except Exception as error:
        raise Stopped(f"the panels of the system {system.name!r} cannot be used ({system.panels}): {error}") from error
    return row


def _put(data: bytes, output: Path | None, what: str) -> None:
    """Write it to stdout, or to a file as a whole: nobody reads half of it."""
    if output is None:
        write(data)
        return
    draft = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        draft.write_bytes(data)
        draft.replace(output)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise Stopped(f"{output} cannot be written: {error.strerror}") from error
    say(f"{what}: written to {output}")
