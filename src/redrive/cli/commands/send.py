"""`redrive send`: one message, durable when the command ends."""

from __future__ import annotations

import asyncio
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from redrive.app import Redrive
from redrive.cli.apps import find_app
from redrive.cli.completing import a_source
from redrive.cli.exits import Stopped
from redrive.cli.lazy import common
from redrive.cli.options import as_json, span
from redrive.cli.output import tell_json
from redrive.cli.session import loaded
from redrive.model import Headers, Message


@click.command()
@click.argument("source", shell_complete=a_source)
@click.argument("body", required=False)
@click.option("--file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="The body is this file.")
@click.option("--id", help="The message's id; while it is queued, sending it again changes nothing. [a new one]")
@click.option("--key", help="Messages of one key belong together.")
@click.option("--tenant", help="Whose message it is.")
@click.option("--correlation-id", help="What it belongs to.")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header. Repeatable.")
@click.option("--priority", type=int, default=0, show_default=True, help="Lower is more urgent.")
@click.option("--ttl", type=span, metavar="10m", help="Not handled after this time, it is buried.")
@click.option("--delay", type=span, metavar="10m", help="Not received before that, where the transport can.")
@click.option("--after", multiple=True, metavar="ID", help="If buried, not retried before that message. Repeatable.")
@click.option("--app", "target", metavar="MODULE:APP", help="Send through this app: its sources, its transports.")
@as_json
@common
def send(source: str, body: str | None, file: Path | None, target: str | None, as_json: bool, **options: Any) -> None:
    """Send a message to SOURCE and print its id. BODY is its text; - reads it from stdin, byte for byte.

    \b
    redrive send orders '{"id": 7}' --key customer-7 --tenant acme
    redrive send invoices --file invoice.pdf --header content-type=application/pdf
    """
    data = _body(body, file)
    app = Redrive(settings=_durable()) if target is None else find_app(target)
    id = asyncio.run(_sent(app, source, data, **options))
    tell_json({"id": id, "source": source}) if as_json else click.echo(id)


def _durable() -> Any:
    settings = loaded().settings
    if settings.transports["default"].startswith("memory:"):
        raise Stopped("the transport is memory://, which ends with this process: nobody would get the message")
    return settings


def _body(body: str | None, file: Path | None) -> bytes:
    if (body is None) == (file is None):
        raise Stopped("give the body as text, as - for stdin, or with --file: one of them")
    if file is not None:
        return file.read_bytes()
    return sys.stdin.buffer.read() if body == "-" else os.fsencode(body or "")


async def _sent(
    app: Redrive, source: str, body: bytes, *, headers: tuple[str, ...], ttl: timedelta | None, **options: Any
) -> str:
    async with app:
        message = app.message(source, body, ttl=ttl, **options)
        await app.send_messages([_with(message, headers)])
    return message.id


def _with(message: Message, headers: tuple[str, ...]) -> Message:
    """The headers as they were given, in order, repeats kept."""
    pairs: Headers = ()
    for header in headers:
        name, equals, value = header.partition("=")
        if not name or not equals:
            raise Stopped(f"--header {header!r}: write it as name=value")
        pairs += ((name, os.fsencode(value)),)
    return replace(message, headers=pairs + message.headers)
