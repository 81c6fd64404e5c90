"""`redrive up` and `redrive demo`: the processes that answer."""

from __future__ import annotations

import sys
from collections.abc import Coroutine
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from redrive.cli.lazy import common
from redrive.cli.session import loaded

if TYPE_CHECKING:
    from redrive.admin.server import Server
    from redrive.admin.tls import Tls
    from redrive.app import Redrive

_PORT = click.IntRange(0, 65_535)


@click.command()
@click.option("--host", metavar="ADDRESS", help="Listen on this address. [setting: admin.host, 127.0.0.1]")
@click.option("--port", type=_PORT, help="Listen on this port; 0 takes a free one. [setting: admin.port, 8321]")
@click.option("--app", "target", metavar="MODULE:APP", help="Handle messages with this app too, in the same process.")
@click.option("--tls-cert", metavar="FILE", help="Answer HTTPS with this certificate (PEM). [setting: admin.tls_cert]")
@click.option("--tls-key", metavar="FILE", help="The key of that certificate (PEM). [setting: admin.tls_key]")
@click.option(
    "--print-token",
    is_flag=True,
    envvar="REDRIVE_PRINT_TOKEN",
    help="Write the one-time token to stdout even where that is no terminal, and may be kept. [REDRIVE_PRINT_TOKEN]",
)
@click.option("--no-upkeep", is_flag=True, help="Leave automatic retries, rescue and pruning to other processes.")
@common
def up(
    host: str | None,
    port: int | None,
    target: str | None,
    tls_cert: str | None,
    tls_key: str | None,
    print_token: bool,
    no_upkeep: bool,
) -> None:
    """Serve the console, the admin API, health and metrics until Ctrl-C.

    \b
    redrive up                          on this machine only; shows a one-time token if there is no other
    redrive token create --role admin --name me
    redrive up --host 0.0.0.0           for others, who need a token

    /healthz and /readyz need no token. /metrics needs a viewer's, except on loopback.
    """
    from redrive.admin.server import serve
    from redrive.telemetry.logs import log_app

    app = _app(target)
    log_app(app)
    admin = app.settings.admin
    place = admin.host if host is None else host, admin.port if port is None else port
    tls = _tls(tls_cert or admin.tls_cert, tls_key or admin.tls_key)
    _run(serve(app, *place, tls=tls, upkeep=not no_upkeep, started=partial(_introduce, asked=print_token)))


@click.command()
@click.option("--port", type=_PORT, default=8321, show_default=True, help="Of the console; 0 takes a free one.")
@click.option("--dir", "place", type=click.Path(path_type=Path, file_okay=False), help="Keep its file here.")
@common
def demo(port: int, place: Path | None) -> None:
    """Watch five small systems fail, retry and recover, until Ctrl-C. Needs no server, downloads nothing.

    They have a past of two days, so that every page of the console has something to show. Kept with --dir, they go on
    where they ended.
    """
    from redrive.systems.base import resolved
    from redrive.telemetry.logs import setup_logs

    setup_logs("warning", "auto")
    shown = resolved("redrive.demo:Demo")(place, say=click.echo)  # by its name: it knows systems
    _run(shown.serve(port))
    click.echo(f"\nThe letters are still in {shown.file}; delete {shown.file.parent} when you are done with them.")


def _tls(cert: str | None, key: str | None) -> Tls | None:
    if cert is None and key is None:
        return None
    if cert is None or key is None:
        raise click.UsageError("TLS takes both: --tls-cert FILE and --tls-key FILE")
    from redrive.admin.tls import Tls

    return Tls(Path(cert), Path(key))


def _app(target: str | None) -> Redrive:
    if target is not None:
        from redrive.cli.apps import find_app

        return find_app(target)
    from redrive.app import Redrive
    from redrive.systems.use import prepared

    found = loaded()
    app = Redrive(settings=prepared(found.settings))
    app.settings_from = found.sources
    return app


def _introduce(server: Server, asked: bool) -> None:
    shown = asked or sys.stdout.isatty()
    once = "  (a one-time token: an admin's, until this process ends)" if server.one_time else ""
    click.echo(f"console  {server.url if shown else server.address}{once if shown else ''}")
    if server.one_time and not shown:
        _tell_apart(server.url, once)
    click.echo(f"store    {_redacted(server.app.urls['store'])}")
    if server.app.handlers:
        click.echo(f"worker   {', '.join(server.app.handlers)}")
    click.echo("stop     Ctrl-C")


def _tell_apart(url: str, once: str) -> None:
    """Show a one-time token where nobody keeps it: stdout goes to a file or a pipe, and stderr may be a terminal."""
    if sys.stderr.isatty():
        click.echo(f"open     {url}{once}", err=True)
    else:
        click.echo("token    a one-time token is not written into what is captured: ask for it with --print-token, or")
        click.echo("         make one that stays: redrive token create --role admin --name me")


def _redacted(url: str) -> str:
    from redrive.forensics.redact import Redactor

    return Redactor().text(url)


def _run(server: Coroutine[Any, Any, None]) -> None:
    from redrive.worker import run_on_fast_loop

    try:
        run_on_fast_loop(server)
    except BaseExceptionGroup as errors:  # of a task group: the first says what went wrong
        raise errors.exceptions[0] from errors
