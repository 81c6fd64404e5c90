"""`redrive token`: who may use the admin API."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click
from rich.text import Text

from redrive.access.actors import Role, Scope
from redrive.access.tokens import Token, Tokens
from redrive.cli.exits import NOTHING
from redrive.cli.lazy import common
from redrive.cli.options import as_json
from redrive.cli.output import age, line, say, show, table, tell_json
from redrive.cli.session import Needs, actor, ask
from redrive.config.durations import duration
from redrive.errors import ConfigError, UsageError
from redrive.service import Service


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

    async def work(service: Service) -> tuple[Token, str]:
        begins = service.app.clock.now() + (begins_in or timedelta())
        made = await _tokens(service).create(
            name,
            Role(role),
            unmask=unmask,
            scope=Scope(sources, tenants, systems),
            expires_at=None if lives_for is None else begins + lives_for,
            not_before=None if begins_in is None else begins,
        )
        await service.note(
            actor(), "token create", f"{made[0].id} {made[0].name} {made[0].role}{' may unmask' if unmask else ''}"
        )
        return made

    made, text = ask(work, Needs.NOTHING)
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
    found = ask(lambda service: _tokens(service).list())
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

    async def work(service: Service) -> tuple[Token, str]:
        made = await _tokens(service).rotate(id, overlap=span)
        await service.note(actor(), "token rotate", f"{made[0].id} {made[0].name}")
        return made

    made, text = ask(work)
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

    async def work(service: Service) -> Token:
        revoked = await _tokens(service).revoke(id)
        await service.note(actor(), "token revoke", f"{revoked.id} {revoked.name}")
        return revoked

    revoked = ask(work)
    say(f"revoked {revoked.id} ({revoked.name})")


def _tokens(service: Service) -> Tokens:
    return Tokens(service.app.store.documents, service.app.clock)


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
