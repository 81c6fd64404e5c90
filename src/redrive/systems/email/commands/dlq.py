"""`redrive email dlq`, `export`, `trim` and `reprocess`: what could not be sent, and what to do with it."""

from __future__ import annotations

from collections import Counter
from hashlib import sha256
from pathlib import Path

import click
import msgspec
from msgspec.structs import replace
from rich.text import Text

from redrive.access.actors import Actor
from redrive.cli.confirm import confirm
from redrive.cli.exits import NOTHING, Stopped
from redrive.cli.follow import Patience, follow_replay_here, waiting
from redrive.cli.lazy import common
from redrive.cli.options import as_json, rate, until_now, yes
from redrive.cli.output import age, letters_said, line, plain, say, show, table, tell_json, width
from redrive.cli.session import actor
from redrive.flow.replay import Replay
from redrive.forensics.query import Query
from redrive.forensics.redact import Redactor
from redrive.forensics.transfer import append_lines
from redrive.model import Letter
from redrive.private import open_private
from redrive.service import Service
from redrive.service.acting import acts
from redrive.stores.paging import every_letter
from redrive.systems.email.commands.session import ask_email, by_code, email_settings, is_narrowed, shown_code, which
from redrive.systems.email.dlq import entry_shape
from redrive.systems.email.settings import EmailSettings
from redrive.systems.email.shape import code_of, failed_attempts, moved_at
from redrive.systems.email.snapshot import company_of
from redrive.telemetry.events import LettersPruned

_PAGE = 500
_BY = {"code": shown_code, "company": company_of}
_LIMIT = click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="How many at most.")


@click.group()
@common
def dlq() -> None:
    """See the jobs that could not be sent."""


@dlq.command("list")
@which
@_LIMIT
@as_json
@common
def list_entries(query: Query, limit: int, as_json: bool) -> None:
    """List the entries of the DLQ, newest first. With --json they are as in Redis, their secrets masked."""
    letters = ask_email(lambda service: _found(service, query, limit))
    if as_json:
        tell_json([_entry(letter) for letter in letters])
    elif letters:
        made = table("JOB", "COMPANY", "CODE", "ATTEMPTS", "AGE", "REASON", right=("ATTEMPTS",))
        text = _redactor().text
        for letter in letters:
            cells = (
                Text(plain(text(letter.message.id))),
                line(text(company_of(letter)), 40),
                Text(code_of(letter) or ""),
                Text(str(failed_attempts(letter))),
            )
            made.add_row(*cells, age(moved_at(letter)), line(text(letter.last.message), 2 * width()))
        show(made)
    if not letters:
        say("no entry matches" if is_narrowed(query) else "the DLQ is empty")
        raise click.exceptions.Exit(NOTHING)


@dlq.command("show")
@click.argument("job")
@common
def show_entry(job: str) -> None:
    """Show the entry of one JOB (its outboxId), as it is in Redis, its secrets masked."""
    tell_json(_entry(ask_email(lambda service: service.find(job))))


@dlq.command("stats")
@click.option("--by", type=click.Choice(list(_BY)), default="code", show_default=True, help="What to count by.")
@which
@click.option("--limit", type=click.IntRange(1, 1000), default=10, show_default=True, help="How many lines at most.")
@as_json
@common
def stats(by: str, query: Query, limit: int, as_json: bool) -> None:
    """Count the entries of the DLQ by the code of their last failure, or by company; the most first."""
    counts = ask_email(lambda service: _counted(service, query, by))
    if as_json:
        tell_json(dict(counts.most_common()))
        return
    made = table("ENTRIES", by.upper(), right=("ENTRIES",))
    for name, count in counts.most_common(limit):
        made.add_row(f"{count:,}", line(name))
    show(made, f"{counts.total():,} in the DLQ" if not is_narrowed(query) else f"{counts.total():,} match")


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@which
@click.option("--force", is_flag=True, help="Replace the file if there is one.")
@common
def export(file: Path, query: Query, force: bool) -> None:
    """Write entries of the DLQ to FILE as JSON lines that `redrive import` reads back; nothing is removed."""
    if file.exists() and not force:
        raise Stopped(f"{file} is there already: choose another name, or say --force to replace it")
    part = file.with_name(f"{file.name}.part")
    part.unlink(missing_ok=True)
    open_private(part, "xb").close()
    count = ask_email(lambda service: _exported(service, query, part))
    part.replace(file)
    say(f"{letters_said(count)} exported")


@click.command()
@which
@click.option("--export", "file", type=click.Path(dir_okay=False, path_type=Path), help="[setting: email.dlq_export]")
@yes
@common
def trim(query: Query, file: Path | None, yes: bool) -> None:
    """Remove entries from the DLQ, each exported before. Say which.

    \b
    redrive email trim --older-than 30d
    """
    if not is_narrowed(query):
        raise Stopped("trim removes entries: say which, by --older-than, --newer-than, --code or --company")
    target, bounded = file or Path(email_settings().of(EmailSettings).dlq_export), until_now(query)
    bounded = ask_email(lambda service: by_code(service, bounded))
    total = ask_email(lambda service: service.count(bounded))
    if total == 0:
        raise Stopped("no entry matches: nothing was removed", NOTHING)
    confirm(f"Export {letters_said(total)} to {target} and remove them from the DLQ?", yes=yes)
    gone = ask_email(lambda service: _trimmed(service, bounded, str(target), actor=actor()))
    say(f"{letters_said(gone)} exported to {target} and removed")


@click.command()
@click.argument("jobs", nargs=-1)
@which
@click.option("--all", "every", is_flag=True, help="Every entry of the DLQ.")
@click.option("--rate", "pace", type=rate, metavar="50/s", help="At most so many a second (50, 50/s, 3000/m).")
@waiting
@yes
@as_json
@common
def reprocess(
    jobs: tuple[str, ...],
    query: Query,
    every: bool,
    pace: float | None,
    patience: Patience,
    yes: bool,
    as_json: bool,
) -> None:
    """Queue jobs of the DLQ again, with their original data; each leaves the DLQ when it was sent.

    JOBS are outboxIds. Without them, the options say which.

    \b
    redrive email reprocess 123e4567-e89b-12d3-a456-426614174000 --wait
    redrive email reprocess --code 421 --company acme
    redrive email reprocess --all --rate 100/m
    """
    query = replace(query, message_ids=jobs or None)
    if not is_narrowed(query) and not every:
        raise Stopped("which jobs? Name them, give --code, --company or an age, or say --all")
    query = ask_email(lambda service: by_code(service, query))
    bounded, plan = until_now(query), ask_email(lambda service: service.plan(query))
    if plan.total == 0:
        why = "what matches is on its way already" if plan.left_out else "no entry of the DLQ matches"
        raise Stopped(f"{why}: nothing was sent", NOTHING)
    confirm(f"Queue {plan.total:,} job{'s' * (plan.total != 1)} again?", yes=yes)
    settings = email_settings()
    follow_replay_here(lambda service: _frozen(service, bounded, pace), patience, as_json=as_json, settings=settings)


async def _frozen(service: Service, query: Query, pace: float | None) -> Replay:
    return await service.replay(query, actor=actor(), rate=pace, reason="reprocess")


async def _found(service: Service, query: Query, limit: int) -> list[Letter]:
    query = await by_code(service, query)
    return list((await service.app.store.letters.search(query, limit=limit)).letters)


async def _counted(service: Service, query: Query, by: str) -> Counter[str]:
    counts = Counter[str]()
    async for letter in every_letter(service.app.store.letters, await by_code(service, query)):
        counts[_BY[by](letter)] += 1
    return counts


async def _exported(service: Service, query: Query, file: Path) -> int:
    count = 0
    with file.open("ab") as target:
        async for some in service.export(await by_code(service, query), actor=actor()):
            target.write(some)
            count += some.count(b"\n")
    return count


@acts("trim")
async def _trimmed(service: Service, query: Query, name: str, *, actor: Actor) -> int:
    """Export entries to the disk, then remove them: a crash between the two leaves them in both, never in neither."""
    await _let_wait(service, query, name, actor)
    letters, gone, file = service.app.store.letters, 0, Path(name)
    while page := (await letters.search(query, limit=_PAGE, oldest_first=True)).letters:
        append_lines(file, page)
        pruned = await letters.prune(Query(ids=tuple(letter.id for letter in page)), limit=_PAGE)
        gone += len(pruned)
        if not pruned:  # what is left is on its way back to the queue
            break
    service.app.events.emit(LettersPruned(count=gone, why=f"trimmed by {actor}"))
    await service.note(actor, "trim", f"{letters_said(gone)} exported to {file}")
    return gone


async def _let_wait(service: Service, query: Query, name: str, actor: Actor) -> None:
    """Let it wait for a second person if it removes so many: the yes is for exactly these letters, in any file."""
    if service.four_eyes.is_on:
        ids = sorted([letter.id async for letter in every_letter(service.app.store.letters, query)])
        digest = sha256("\n".join(ids).encode()).hexdigest()
        what = f"{letters_said(len(ids))} of the DLQ, exported and removed"
        await service.four_eyes.check_written("trim", len(ids), digest, actor, reason="", what=what)


def _entry(letter: Letter) -> object:
    """As it is in Redis, with its secrets masked."""
    entry = bytes(entry_shape(email_settings().of(EmailSettings)).encode(letter))
    return msgspec.json.decode(_redactor().body(entry, limit=4 * len(entry) + 1024))


def _redactor() -> Redactor:
    return Redactor.of(email_settings().redact)
