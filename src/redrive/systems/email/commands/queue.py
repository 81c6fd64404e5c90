"""`redrive email add`, `status`, `fairness`, `pause` and `resume`: the queue."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec
from rich.console import RenderableType
from rich.text import Text

from redrive.cli.exits import Stopped
from redrive.cli.lazy import common
from redrive.cli.options import as_json
from redrive.cli.output import line, plain, say, show, table, tell_json
from redrive.cli.session import actor
from redrive.service import Service
from redrive.systems.email.commands.session import ask_email, email_settings
from redrive.systems.email.gateway import EmailGateway
from redrive.systems.email.job import read_job
from redrive.systems.email.settings import EmailSettings
from redrive.systems.email.snapshot import Memory, Snapshot, Turn, take, turns_of
from redrive.transports.base import Depth
from redrive.untrusted import UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

_EVERY = 1.0


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(dir_okay=False, allow_dash=True, path_type=Path))
@common
def add(files: tuple[Path, ...]) -> None:
    """Queue the jobs of FILES and print their ids: each is a JSON object, a list of them, or JSON lines; - is stdin.

    A job that is queued already (by its outboxId) stays as it is. If one of them is no job, none is queued.
    """
    jobs = [job for file in files for job in _checked(file)]
    for id in asyncio.run(_added(jobs)):
        click.echo(id)


@click.command()
@as_json
@common
def status(as_json: bool) -> None:
    """Show how full the queue, the DLQ and Redis are."""
    depth, snapshot = ask_email(_looked)
    if as_json:
        told = {"waiting": depth.ready, "active": depth.leased, "delayed": depth.delayed, "dlq": snapshot.size}
        tell_json({**told, "memory": snapshot.memory})
        return
    made = table("WHAT", "HOW MUCH")
    for name, value in _facts(depth, snapshot):
        made.add_row(name, value)
    show(made)


@click.command()
@click.option("--watch", is_flag=True, help="Again and again, until Ctrl-C.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="How many at most.")
@as_json
@common
def fairness(watch: bool, limit: int, as_json: bool) -> None:
    """Show how each company fares: rounds it waited, its priority (1 is the most urgent), jobs it had in a row."""
    if watch and as_json:
        raise Stopped("--watch is for people: leave out --json")
    ask_email(lambda service: _show_turns(service, limit, watch, as_json))


@click.command()
@common
def pause() -> None:
    """Let no worker take another job until `redrive email resume`; adding goes on."""
    queue = email_settings().of(EmailSettings).queue
    report = ask_email(lambda service: service.pause(queue, actor=actor(), transport="default", force=True))
    by = "" if report.is_new else f" already, by {plain(report.pause.by)}"
    say(f"paused{by}: `redrive email resume` ends it")


@click.command()
@common
def resume() -> None:
    """End a pause."""
    queue = email_settings().of(EmailSettings).queue
    ask_email(lambda service: service.resume(queue, actor=actor(), transport="default"))
    say("resumed")


def _checked(file: Path) -> Iterator[bytes]:
    for number, job in enumerate(_jobs(file), start=1):
        read_job(job, f"job {number} of {'stdin' if str(file) == '-' else file}")
        yield job


def _jobs(file: Path) -> Iterator[bytes]:
    """The jobs of a file, each as its producer wrote it."""
    data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    text = data.strip()
    if text.startswith(b"["):
        try:
            yield from (bytes(job) for job in msgspec.json.decode(text, type=list[msgspec.Raw]))
        except UNREADABLE as error:
            raise Stopped(f"{file} is no list of jobs: {error}") from error
    elif _is_one(text):
        yield text
    else:
        yield from (line for line in text.splitlines() if line.strip())


def _is_one(text: bytes) -> bool:
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except UNREADABLE:
        return b"\n" not in text
    return True


async def _added(jobs: list[bytes]) -> list[str]:
    async with EmailGateway(email_settings()) as gateway:
        return await gateway.add_all(jobs)


async def _looked(service: Service) -> tuple[Depth, Snapshot]:
    from redrive.drivers.redis import Link

    email = email_settings().of(EmailSettings)
    link = Link(email.redis)
    try:
        depths = await service.app.transport().depths()
        return depths.get(email.queue, Depth(0, 0, 0)), await take(service.app, email, link)
    finally:
        await link.aclose()


def _facts(depth: Depth, snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    yield "jobs waiting", f"{depth.ready:,}"
    yield "jobs active", f"{depth.leased:,}"
    yield "jobs delayed", f"{depth.delayed:,}"
    yield "DLQ", f"{snapshot.size:,}"
    if snapshot.memory is not None:
        yield "Redis memory", _memory(snapshot.memory)


def _memory(memory: Memory) -> str:
    used = f"{memory.used / 2**20:,.1f} MiB"
    return used if memory.share is None else f"{used} of {memory.most / 2**20:,.0f} MiB ({memory.share:.0%})"


async def _show_turns(service: Service, limit: int, watch: bool, as_json: bool) -> None:
    while True:
        turns = await turns_of(service.app.transport(), email_settings().of(EmailSettings).queue, limit)
        if watch:
            click.clear()
        tell_json(turns) if as_json else show(_table(turns))
        if not watch:
            return
        await service.app.clock.sleep(_EVERY)


def _table(turns: tuple[Turn, ...]) -> RenderableType:
    if not turns:
        return Text("no company has had a job yet")
    names = ("ROUNDS WAITED", "PRIORITY", "PROCESSED", "IN A ROW")
    made = table("COMPANY", *names, "LAST", right=names)
    for turn in turns:
        numbers = (
            turn.rounds_without_processing,
            turn.current_priority,
            turn.total_processed,
            turn.consecutive_batch_count,
        )
        made.add_row(
            line(turn.company_id, 40), *(f"{number:,}" for number in numbers), turn.last_processed_at or "never"
        )
    return made
