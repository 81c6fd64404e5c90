"""`redrive login`, `logout` and `whoami`: who a server takes you for."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import click

from redrive.access.actors import Actor
from redrive.cli.exits import NOTHING, Stopped
from redrive.cli.lazy import common
from redrive.cli.options import as_json
from redrive.cli.output import line, pairs, plain, say, show, tell_json
from redrive.cli.session import ca_file, server
from redrive.remote.credentials import Login, Place, checked_token, forget, keep, kept, logins_file

if TYPE_CHECKING:
    from redrive.remote.device import DeviceCode


@click.command()
@click.option("--token", "given", type=click.Choice(["-"]), help="Read a token from stdin, and ask no issuer.")
@click.option("--file", "in_file", is_flag=True, help="Keep it in a file, also where there is a keyring.")
@common
def login(given: str | None, in_file: bool) -> None:
    """Log in to a server: type a code on any device that has a browser, or give a token.

    What is kept is for that server only, in the keyring of your system or a file that only you can read.

    \b
    redrive login --server https://redrive.example.org
    redrive login --server https://redrive.example.org --token - < token.txt
    """
    named = _server()
    found = _on_device(named) if given is None else _pasted()
    who = asyncio.run(_who(named, found))
    place = keep(named, found, in_file=in_file)
    say(f"You are {plain(who.name)} at {named}, {_may(who)}. {_kept(place)}")


@click.command()
@common
def logout() -> None:
    """Forget what is kept for a server. A token is not revoked by that: `redrive token revoke` does so."""
    named = _server()
    if not forget(named):
        say(f"there is no login of {named}")
        raise click.exceptions.Exit(NOTHING)
    say(f"the login of {named} is forgotten")


@click.command()
@as_json
@common
def whoami(as_json: bool) -> None:
    """Show who a server takes you for, what you may do there, and where your login is kept."""
    named = _server()

    async def asked() -> Actor:
        from redrive.remote.connecting import connected  # when needed: it takes an extra
        from redrive.remote.service import RemoteService

        async with connected(named, ca_file()) as http:
            return await RemoteService(http).whoami()

    who, found = asyncio.run(asked()), kept(named)
    place = None if found is None else found[1]
    if as_json:
        tell_json({"server": named, "actor": who, "kept": place})
        return
    rows = [("Server", named), ("You are", str(who)), ("Role", _may(who)), ("Reach", _reach(who))]
    show(pairs([(name, line(text)) for name, text in (*rows, ("Login", _kept(place) if place else ""))]))


def _server() -> str:
    named = server()
    if named is None:
        raise Stopped("which server? Give --server https://…, or set REDRIVE_SERVER (`server` in redrive.toml)")
    return named


def _on_device(named: str) -> Login:
    from redrive.remote.device import login

    return asyncio.run(login(named, ca_file(), _tell))


def _tell(code: DeviceCode) -> None:
    say(f"Open {plain(code.verification_uri)} in a browser, on any device, and type the code  {plain(code.user_code)}")
    if code.verification_uri_complete:
        say(f"or open {plain(code.verification_uri_complete)}")


def _pasted() -> Login:
    text = click.prompt("Token", hide_input=True, err=True) if sys.stdin.isatty() else sys.stdin.read(1 << 16)
    return Login(token=checked_token(text, "stdin"))


async def _who(named: str, login: Login) -> Actor:
    """Who that is to the server: a token that opens nothing is not kept."""
    from redrive.remote.http import Http
    from redrive.remote.service import RemoteService

    http = Http(named, login.token, ca_file=ca_file())
    try:
        return await RemoteService(http).whoami()
    finally:
        await http.aclose()


def _kept(place: Place) -> str:
    match place:
        case Place.KEYRING:
            return "It is kept in the keyring of your system."
        case Place.FILE:
            return f"It is kept in {logins_file()}, which only you can read."
        case _:
            return "It is from the environment, and kept nowhere."


def _may(who: Actor) -> str:
    return f"{who.role}{', and may see secrets' if who.may_unmask else ''}"


def _reach(who: Actor) -> str:
    if who.scope.is_everything:
        return "everything"
    named = (("source", who.scope.sources), ("tenant", who.scope.tenants), ("system", who.scope.systems))
    return ", ".join(f"{kind} {pattern}" for kind, patterns in named for pattern in patterns)
