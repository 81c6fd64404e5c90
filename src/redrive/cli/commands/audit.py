"""`redrive audit`: who did what, and the proof that nobody has changed that since."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.text import Text

from redrive.access.trail import Phase, read_checkpoint
from redrive.access.trail_store import Filter, Verdict
from redrive.cli.exits import NOTHING, WRONG, Stopped
from redrive.cli.lazy import common
from redrive.cli.options import as_json, moment, span
from redrive.cli.output import age, line, say, show, table, tell_json, write
from redrive.cli.session import actor as whoever
from redrive.cli.session import ask, ask_store
from redrive.private import open_private
from redrive.service import Home, Service


@click.group(invoke_without_command=True)
@click.option("--actor", default="", help="Of this person or token: its name, a part of it, or its id.")
@click.option("--action", default="", help="Only this, such as purge, replay, unmask.")
@click.option("--outcome", type=click.Choice([str(phase) for phase in Phase]), help="What became of it.")
@click.option("--about", default="", metavar="ID", help="Of this letter, replay or token.")
@click.option("--since", type=moment, metavar="TIME", help="From then on.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="How many at most.")
@as_json
@common
@click.pass_context
def audit(
    ctx: click.Context,
    actor: str,
    action: str,
    outcome: str | None,
    about: str,
    since: datetime | None,
    limit: int,
    as_json: bool,
) -> None:
    """Who did what, newest first. `began` is an act whose outcome is not known: its process died.

    \b
    redrive audit --actor ann --action purge
    redrive audit export trail.jsonl
    redrive audit verify --checkpoint head.json
    """
    if ctx.invoked_subcommand is not None:
        if (actor, action, outcome, about, since) != ("", "", None, "", None):
            raise Stopped(
                f"redrive audit {ctx.invoked_subcommand} is of every line, and takes no filter: the chain is proven as "
                f"a whole. For some lines, `redrive audit --actor … --json`"
            )
        return
    only = Filter(
        actor=actor, action=action, outcome=None if outcome is None else Phase(outcome), about=about, since=since
    )
    found = ask(lambda service: service.audit(limit, only=only))
    if as_json:
        tell_json({"audit": found})
    elif found:
        made = table("SEQ", "AGE", "ACTOR", "VIA", "ACTION", "OUTCOME", "DETAIL")
        for act in found:
            made.add_row(*_row(act))
        show(made)
    if not found:
        say("nothing of that kind was done yet")
        raise click.exceptions.Exit(NOTHING)


@audit.command()
@click.option(
    "--checkpoint",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A head that `redrive audit checkpoint` wrote: what was written until then is proven to be unchanged.",
)
@as_json
@common
def verify(checkpoint: Path | None, as_json: bool) -> None:
    """Follow the chain from its first line to its last, and name the first that is not as it was written.

    Without a checkpoint that was kept elsewhere, nothing shows that lines were cut off at the end, or that whoever has
    the database wrote all of it anew.
    """
    kept = None if checkpoint is None else read_checkpoint(checkpoint.read_bytes())
    verdict = ask(lambda service: service.verify_audit(kept))
    if as_json:
        tell_json(verdict)
    else:
        say(_said(verdict))
    if not verdict.is_whole:
        raise click.exceptions.Exit(WRONG)


@audit.command("checkpoint")
@common
def write_checkpoint() -> None:
    """Write the signed head of the chain to stdout: keep it where nobody with the database can change it."""
    write(msgspec.json.encode(ask(lambda service: service.audit_checkpoint())) + b"\n")


@audit.command("export")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True, path_type=Path), default="-")
@common
def export_lines(file: Path) -> None:
    """Write every line as JSON, oldest first, with its sequence and the hash of the line before."""

    async def work(service: Home) -> bytes:
        return b"".join([part async for part in service.audit_lines(str(file), actor=whoever())])

    lines = ask(work)
    if str(file) == "-":
        write(lines)
        return
    try:
        with open_private(file, "xb") as out:
            out.write(lines)
    except FileExistsError:
        raise Stopped(f"{file} is there already: choose another name") from None
    count = lines.count(b"\n")
    say(f"{count:,} lines written to {file}")


@audit.command()
@click.option("--older-than", type=span, required=True, metavar="SPAN", help="Such as 400d.")
@common
def prune(older_than: timedelta) -> None:
    """Remove the oldest lines. The chain holds: a signed anchor stays in their place, and a line says so."""

    async def work(service: Service) -> int:
        return await service.trail.prune(service.app.clock.now() - older_than, by=whoever())

    say(f"{ask_store(work):,} lines removed")


def _row(act: dict[str, Any]) -> tuple[str | Text, ...]:
    began = act.get("outcome") == Phase.BEGAN
    return (
        str(act.get("seq", "-")),
        age(datetime.fromisoformat(act["at"])),
        line(act["actor"]),
        str(act.get("via", "")),
        line(act["action"]),
        "began, outcome not known" if began else str(act.get("outcome", "")),
        line(f"{act['detail']}{' (' + act['reason'] + ')' if act.get('reason') else ''}"),
    )


def _said(verdict: Verdict) -> str:
    if verdict.broken is not None:
        return f"line {verdict.broken.seq:,} was {verdict.broken.why}"
    if verdict.older_changed:
        return "the chain is whole, but the lines from before the chain are not what they were when it began"
    proven = "" if verdict.checkpoint is None else f", and proven by the checkpoint up to line {verdict.checkpoint:,}"
    older = f"; {verdict.older:,} lines from before the chain are as they were" if verdict.older else ""
    return (
        f"{verdict.lines:,} lines, {verdict.first:,} to {verdict.head.seq:,}, are as they were written{proven}{older}"
    )
