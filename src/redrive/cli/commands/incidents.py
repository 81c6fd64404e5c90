"""`redrive incidents`: what is wrong now, and who works on it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import click
from rich.console import RenderableType
from rich.text import Text

from redrive.alerts.incidents import Incident, IncidentState
from redrive.cli.lazy import common
from redrive.cli.options import as_json
from redrive.cli.output import age, line, say, show, state, table, tell_json
from redrive.cli.session import actor, ask
from redrive.service import Home, Service

_STATES = click.Choice([str(state) for state in IncidentState])
_SEVERITIES = {"critical": "bold red", "error": "red", "warning": "yellow", "info": ""}


@click.group(invoke_without_command=True)
@click.option("--state", "states", type=_STATES, multiple=True, help="Only those in this state; may be repeated.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="How many at most.")
@as_json
@common
@click.pass_context
def incidents(ctx: click.Context, states: tuple[str, ...], limit: int, as_json: bool) -> None:
    """List incidents, open ones first; or show, acknowledge, resolve or annotate one.

    \b
    redrive incidents
    redrive incidents ack 5xq7ak2m
    redrive incidents note 5xq7ak2m "the provider says 15:00"
    """
    if ctx.invoked_subcommand is not None:
        return
    _list(states, limit, as_json)


@incidents.command("list")
@click.option("--state", "states", type=_STATES, multiple=True, help="Only those in this state; may be repeated.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="How many at most.")
@as_json
@common
def list_them(states: tuple[str, ...], limit: int, as_json: bool) -> None:
    """List incidents, open ones first, then the newest."""
    _list(states, limit, as_json)


@incidents.command("show")
@click.argument("id")
@as_json
@common
def show_one(id: str, as_json: bool) -> None:
    """Show one incident: what its alert says, its notes, who was told when."""
    found = ask(lambda service: service.incidents.get(id))
    tell_json(found) if as_json else show(*_facts(found))


@incidents.command("ack")
@click.argument("id")
@as_json
@common
def ack(id: str, as_json: bool) -> None:
    """Say that you work on it: it is not told again until it is resolved."""
    _act(lambda service: service.acknowledge(id, actor=actor()), as_json)


@incidents.command("resolve")
@click.argument("id")
@as_json
@common
def resolve(id: str, as_json: bool) -> None:
    """Say that it is over. If it happens again, it is opened again."""
    _act(lambda service: service.resolve(id, actor=actor()), as_json)


@incidents.command("note")
@click.argument("id")
@click.argument("text")
@as_json
@common
def note(id: str, text: str, as_json: bool) -> None:
    """Write something down beside it."""
    _act(lambda service: service.annotate(id, text, actor=actor()), as_json)


def _act(work: Callable[[Home], Awaitable[Incident]], as_json: bool) -> None:
    """Act on an incident, and notify here and now where there are notifiers: perhaps no worker runs."""

    async def acted(service: Home) -> Incident:
        from redrive.alerts import alerting

        done = await work(service)
        if isinstance(service, Service):  # a server notifies by itself
            async with alerting(service.app):
                return done
        return done

    done = ask(acted)
    tell_json(done) if as_json else say(f"incident {done.id} is {done.state}: {line(done.alert.summary).plain}")


def _list(states: Sequence[str], limit: int, as_json: bool) -> None:
    wanted = [IncidentState(state) for state in states] or None
    found = ask(lambda service: service.incidents.list(states=wanted, limit=limit))
    if as_json:
        tell_json({"incidents": found})
    elif found:
        show(_listed(found))
    else:
        say("no incidents" + (" in that state" if states else ": nothing is wrong, or nobody watches (alerts.urls)"))


def _listed(found: Sequence[Incident]) -> RenderableType:
    made = table("INCIDENT", "STATE", "SEVERITY", "OPENED", "COUNT", "WHAT", right=("COUNT",))
    for incident in found:
        severity = Text(incident.alert.severity, style=_SEVERITIES[incident.alert.severity])
        made.add_row(
            incident.id,
            state(incident.state),
            severity,
            age(incident.opened_at),
            f"{incident.count:,}",
            line(incident.alert.summary),
        )
    return made


def _facts(incident: Incident) -> list[RenderableType]:
    alert, total = incident.alert, f"{incident.count:,} in all"
    parts: list[RenderableType] = [
        Text.assemble(Text(f"Incident {incident.id}", style="bold"), " is ", state(incident.state), _by(incident)),
        line(f"{alert.severity}: {alert.summary}"),
        line(f"{alert.name}, opened {age(incident.opened_at)}, last seen {age(incident.seen_at)}, {total}"),
        line(f"told {age(incident.told_at)}" if incident.told_at else "not told yet"),
    ]
    parts += [line(f"{name}: {value}") for name, value in (*alert.details.items(), *alert.links.items())]
    parts += [line(f"{age(note.at)}, {note.actor}: {note.text}") for note in incident.notes]
    return parts


def _by(incident: Incident) -> str:
    if incident.state is IncidentState.RESOLVED:
        return f", by {incident.resolved_by}"
    return f", by {incident.acknowledged_by}" if incident.acknowledged_by else ""
