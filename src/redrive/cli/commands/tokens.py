"""`redrive token`: who may use the admin API."""

from __future__ import annotations

import click
from rich.text import Text

from redrive.access.actors import Role
from redrive.access.tokens import Token, Tokens
from redrive.cli.exits import NOTHING
from redrive.cli.lazy import common
from redrive.cli.options import as_json
from redrive.cli.output import age, line, say, show, table, tell_json
from redrive.cli.session import Needs, actor, ask
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
@click.option("--unmask", is_flag=True, help="It may see secrets: of one letter at a time, with a reason.")
@as_json
@common
def create(role: str, name: str, unmask: bool, as_json: bool) -> None:
    """Make a token and print it, once: only its hash is kept."""

    async def work(service: Service) -> tuple[Token, str]:
        made = await _tokens(service).create(name, Role(role), unmask=unmask)
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
        made = table("ID", "ROLE", "STATE", "CREATED", "LAST USED", "NAME")
        for token in found:
            made.add_row(
                token.id,
                token.role,
                _state(token),
                age(token.created_at),
                age(token.last_used) or "never",
                line(token.name),
            )
        show(made)
    if not found:
        say("no tokens: make one with `redrive token create --role admin --name me`")
        raise click.exceptions.Exit(NOTHING)


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


def _state(token: Token) -> Text:
    return Text("revoked", style="dim") if token.revoked else Text("active", style="green")
