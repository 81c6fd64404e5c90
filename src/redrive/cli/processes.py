"""`--processes` and `--reload`: a command that runs a worker, run by several processes under a supervisor."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from redrive.cli.scrape import Place, say_where
from redrive.cli.session import given, loaded

if TYPE_CHECKING:
    from redrive.processes.supervisor import Supervisor

MOST = 1_000
"""Nobody means more processes than this; a typo does."""


class Count(click.ParamType[int]):
    """How many processes: a number, or `auto`."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        if value == "auto":
            from redrive.processes.cpus import available

            return available()
        if not value.isdecimal() or not 1 <= int(value) <= MOST:
            self.fail(f"{value!r}: it takes a number from 1 to {MOST:,}, or auto for one on each CPU", param, ctx)
        return int(value)


def several(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options --processes and --reload. With one of them, each process runs this command line, and we supervise."""

    @functools.wraps(command)
    def called(processes: int | None, reload: bool, **options: Any) -> Any:
        from redrive.processes.child import adopt

        if adopt() is not None or (processes is None and not reload):
            return command(**options)
        where = options.get("metrics_host", ""), options.get("metrics_port")
        return click.get_current_context().exit(supervise(processes or 1, reload, *where))

    text = "Run this many worker processes under a supervisor; auto: one on each CPU that is ours."
    edited = "Start again when a file here is edited: for development."
    reloading = click.option("--reload", is_flag=True, help=edited)
    return click.option("--processes", type=Count(), metavar="N|auto", help=text)(reloading(called))


def supervise(count: int, reload: bool, host: str, port: int | None) -> int:
    """Run that many processes of this command line until they are told to stop; the exit code of all together."""
    import asyncio

    from redrive.forensics.redact import Redactor
    from redrive.processes.supervisor import Supervisor, command_of
    from redrive.processes.systemd import Systemd
    from redrive.telemetry.events import Events
    from redrive.telemetry.logs import log_events, setup_logs

    settings, events = loaded().settings, Events()
    setup_logs(settings.logs.level, settings.logs.format, redactor=Redactor.of(settings.redact))
    log_events(events, Redactor.of(settings.redact))
    supervisor = Supervisor(
        command_of(given().arguments),
        count,
        settings.processes,
        events,
        systemd=Systemd.found(),
        watched=Path.cwd() if reload else None,
    )
    if port is not None:
        _serve(supervisor, Place(host, port))
    return asyncio.run(_run(supervisor))


def _serve(supervisor: Supervisor, place: Place) -> None:
    from redrive.admin.together import Together

    together = Together(supervisor, place.host, place.port)
    supervisor.beside.append(together.run)
    say_where(place, together.port)


async def _run(supervisor: Supervisor) -> int:
    from redrive.processes.supervisor import listen_to_signals

    listen_to_signals(supervisor)
    return await supervisor.run()
