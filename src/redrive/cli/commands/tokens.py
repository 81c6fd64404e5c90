"""`redrive token`: who may use the admin API."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click
from rich.text import Text

from redrive.access.actors import Role, Scope
from redrive.access.tokens import Token
from redrive.cli.exits import NOTHING
from redrive.cli.lazy import common
from redrive.cli.options import as_json
from redrive.cli.output import age, line, say, show, table, tell_json
from redrive.cli.session import Needs, actor, ask
from redrive.config.durations import duration
from redrive.errors import ConfigError, UsageError
from redrive.service.tokens import NewToken


@click.group()
@common
def token() -> None:
    """Make, list and revoke the tokens of the admin API.

    A viewer sees letters, an operator also retries, archives and replays, an admin also reads the audit trail.
    """


@token.command()
@click.option("--role", type=click.Choice([str(role) for role in Role]), required=True, help="What it may do.")
@click.option("--name", required=True, help="Who will use it, such as ci or grafana.")
@click.option("--source", "sources", multiple=True, metavar="PATTERN", help="Of these sources only, such as 'mail.*'.")
@click.option("--tenant", "tenants", multiple=True, metavar="PATTERN", help="Of these tenants only.")
@click.option("--system", "systems", multiple=True, metavar="PATTERN", help="Of these systems only, by transport.")
@click.option("--expires", metavar="DURATION", help="It opens nothing after so long, such as 30d.")
@click.option("--not-before", metavar="DURATION", help="It opens nothing for so long, such as 1h.")
@click.option("--unmask", is_flag=True, help="It may see secrets: of one letter at a time, with a reason.")
@as_json
@common
def create(
    role: str,
    name: str,
    sources: tuple[str, ...],
    tenants: tuple[str, ...],
    systems: tuple[str, ...],
    expires: str | None,
    not_before: str | None,
    unmask: bool,
    as_json: bool,
) -> None:
    """Make a token and print it, once: only its hash is kept."""
    begins_in = _span(not_before, "--not-before")
    lives_for = _span(expires, "--expires")

    wanted = NewToken(
        name=name,
        role=Role(role),
        unmask=unmask,
        scope=Scope(sources, tenants, systems),
        begins_in=begins_in,
        lives_for=lives_for,
    )
    made, text = ask(lambda service: service.tokens.create(wanted, actor=actor()), Needs.NOTHING)
    if as_json:
        tell_json({"token": text, "id": made.id, "name": made.name, "role": made.role})
        return
    click.echo(text)
    say(f"It is shown only now. Send it as `Authorization: Bearer …`; `redrive token revoke {made.id}` ends it.")


@token.command("list")
@as_json
@common
def list_tokens(as_json: bool) -> None:
    """Every token: its role, its use, and whether it still opens."""
    found = ask(lambda service: service.tokens.list(actor=actor()))
    if as_json:
        tell_json({"tokens": found})
    elif found:
        made = table("ID", "ROLE", "STATE", "CREATED", "LAST USED", "OF", "NAME")
        for token in found:
            made.add_row(
                token.id,
                token.role,
                _state(token),
                age(token.created_at),
                age(token.last_used) or "never",
                line(_reach(token)),
                line(token.name),
            )
        show(made)
    if not found:
        say("no tokens: make one with `redrive token create --role admin --name me`")
        raise click.exceptions.Exit(NOTHING)


@token.command()
@click.argument("id")
@click.option("--overlap", default="0s", metavar="DURATION", help="So long the secret that it has still opens.")
@as_json
@common
def rotate(id: str, overlap: str, as_json: bool) -> None:
    """Give a token another secret and print it, once."""
    span = _span(overlap, "--overlap") or timedelta()
    made, text = ask(lambda service: service.tokens.rotate(id, overlap=span, actor=actor()))
    if as_json:
        tell_json({"token": text, "id": made.id, "name": made.name, "role": made.role})
        return
    click.echo(text)
    say(f"It is shown only now. The secret before it opens until {made.rotated_until:%Y-%m-%d %H:%M:%S} UTC.")


@token.command()
@click.argument("id")
@common
def revoke(id: str) -> None:
    """From now on this token opens nothing, on every server."""
    revoked = ask(lambda service: service.tokens.revoke(id, actor=actor()))
    say(f"revoked {revoked.id} ({revoked.name})")


def _span(text: str | None, option: str) -> timedelta | None:
    try:
        return None if text is None else duration(text)
    except ConfigError as error:
        raise UsageError(f"{option}: {error}") from None


def _state(token: Token) -> Text:
    now = datetime.now(UTC)
    if token.revoked or not token.opens_at(max(now, token.not_before or now)):
        return Text("revoked" if token.revoked else "expired", style="dim")
    return Text("active", style="green") if token.opens_at(now) else Text("not yet", style="yellow")


def _reach(token: Token) -> str:
    if token.scope.is_everything:
        return "everything"
    named = (("source", token.scope.sources), ("tenant", token.scope.tenants), ("system", token.scope.systems))
    return ", ".join(f"{kind} {pattern}" for kind, patterns in named for pattern in patterns)
