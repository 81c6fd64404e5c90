"""`redrive replay`: letters go back to their source, after somebody has seen which."""

from __future__ import annotations

from typing import Any

import click
from rich.console import RenderableType
from rich.text import Text

from redrive.cli.confirm import confirm, not_empty
from redrive.cli.exits import NOTHING, Stopped
from redrive.cli.follow import Patience, follow_replay, waiting
from redrive.cli.lazy import common
from redrive.cli.options import as_json, careful, every, filters, until_now, yes
from redrive.cli.options import rate as a_rate
from redrive.cli.output import error, letters_said, line, plain, say, show, table, tell_json, width
from redrive.cli.session import actor, ask, loaded, server
from redrive.cli.shadow import Shadow, run_shadow, shadowing
from redrive.errors import ALLOW_IT, NOT_ALLOWED
from redrive.flow.guard import BY_ITSELF, Guard
from redrive.flow.replay import Replay
from redrive.forensics.query import Query
from redrive.service import Home, Plan

_GROUPS_SHOWN = 8


@click.command()
@filters
@every
@click.option("--dry-run", is_flag=True, help="Show the plan, and send nothing.")
@click.option("--rate", type=a_rate, metavar="50/s", help="At most so many letters a second (50, 50/s, 3000/m).")
@careful
@click.option("--reason", default="", help="Why, for the audit trail.")
@shadowing
@waiting
@yes
@as_json
@common
def replay(
    query: Query,
    every: bool,
    dry_run: bool,
    rate: float | None,
    care: dict[str, Any],
    reason: str,
    shadow: Shadow | None,
    patience: Patience,
    yes: bool,
    as_json: bool,
) -> None:
    """Send letters back to their source. Shows the plan first, and asks.

    What came after the plan was made is not sent. A replay that is interrupted can be resumed. More than 100 letters go
    carefully: 5 first, then 5, 20 and 100 percent, each step when the one before is known to have gone well.

    \b
    redrive replay --group 4kq2m7pxw3ab --dry-run
    redrive replay --group 4kq2m7pxw3ab --canary 5 --ramp 5,20,100 --guard 10%
    redrive replay --source orders --newer-than 1d --rate 50/s --wait
    redrive replay --group 4kq2m7pxw3ab --shadow --handler shop:charge
    """
    not_empty(query, every=every, verb="replay")
    if shadow is not None:
        run_shadow(until_now(query), shadow, as_json=as_json)
        return
    bounded, here = until_now(query), None if server() else loaded().settings.transports
    plan = ask(lambda service: service.plan(query, transports=here, rate=rate))
    if dry_run and as_json:
        tell_json(plan)
    elif dry_run or not yes:
        show(*_shown(plan, rate, care), err=not dry_run)
    if plan.total == 0:
        raise Stopped("nothing was sent" if plan.left_out else "no letter matches: nothing was sent", NOTHING)
    if dry_run:
        if not as_json:
            say("Nothing was sent: this is the plan. Without --dry-run it is shown again, and you are asked.")
        return
    confirm(f"Send {letters_said(plan.total)} back?", yes=yes)
    follow_replay(lambda service: _frozen(service, bounded, rate, reason, care), patience, as_json=as_json)


async def _frozen(service: Home, query: Query, rate: float | None, reason: str, care: dict[str, Any]) -> Replay:
    return await service.replay(query, actor=actor(), rate=rate, reason=reason, **care)


def _shown(plan: Plan, rate: float | None, care: dict[str, Any]) -> list[RenderableType]:
    parts: list[RenderableType] = [Text(f"{letters_said(plan.total)} to send back{_pace(plan, rate)}", style="bold")]
    if plan.left_out:
        parts.append(f"{letters_said(plan.left_out)} left out: resolved, archived, sent or on their way already")
    for name, count in plan.not_configured.items():
        parts.append(Text(_no_way_back(name, count), style="yellow"))
    if plan.total:
        parts += [*_carefully(plan.total, care), *(Text(f"! {plain(text)}", style="yellow") for text in plan.warnings)]
        parts += ["", _sources(plan), "", _groups(plan)]
    if len(plan.groups) > _GROUPS_SHOWN:
        parts.append("… and smaller groups")
    return parts


def _carefully(total: int, care: dict[str, Any]) -> list[str]:
    """How a replay of so many feels its way."""
    guard: Guard | None = care["guard"] or (Guard() if care["guard_many"] and total > BY_ITSELF else None)
    if guard is None:
        return []
    first, *others = guard.steps(total)
    steps = ", ".join(f"{step:,}" for step in others)
    then = f", then up to {steps}, each step when the outcome of the one before is known" if others else ""
    return [f"{letters_said(first)} first{then}; it pauses when more than {guard.share:.0%} of a step die again"]


def _no_way_back(transport: str, count: int) -> str:
    if transport.startswith(NOT_ALLOWED):
        return f"{letters_said(count)} will be skipped: {ALLOW_IT}"
    return (
        f"{letters_said(count)} will be skipped: the transport {transport!r} is not configured here "
        f"(set `transports.{transport}`, or replay them where it is)"
    )


def _pace(plan: Plan, rate: float | None) -> str:
    if rate is None:
        return ", as fast as the transport takes them"
    seconds = plan.total / rate
    span = f"{seconds:,.0f} s" if seconds < 120 else f"{seconds / 60:,.0f} min"
    return f", at most {rate:g} a second: {span} or more"


def _sources(plan: Plan) -> RenderableType:
    made = table("LETTERS", "SOURCE", "TARGET", right=("LETTERS",))
    targets = {target.partition("/")[2]: target for target in plan.targets}
    for source, count in sorted(plan.sources.items(), key=lambda pair: (-pair[1], pair[0])):
        made.add_row(f"{count:,}", line(source), line(targets.get(source, source)))
    return made


def _groups(plan: Plan) -> RenderableType:
    made = table("LETTERS", "GROUP", "ERROR", right=("LETTERS",))
    for group in plan.groups[:_GROUPS_SHOWN]:
        why = error(group.error_type, group.message, 2 * width())
        made.add_row(f"{group.count:,}", line(group.id), why)
    return made
