"""`redrive show`: everything about one letter, secrets masked."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path

import click
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from redrive.cli.commands.edit import coloured
from redrive.cli.completing import a_letter
from redrive.cli.exits import Stopped
from redrive.cli.lazy import common
from redrive.cli.options import as_json
from redrive.cli.output import age, error, line, pairs, plain, say, show, state, tell_json, to_copy, write
from redrive.cli.session import actor, ask, command
from redrive.forensics.carried import CarriedMessage, message_of
from redrive.forensics.editing import VersionView
from redrive.forensics.jsontext import indented
from redrive.forensics.views import Attempt, Detail
from redrive.private import open_private


@click.command("show")
@click.argument("id", shell_complete=a_letter)
@click.option("--raw", is_flag=True, help="Write the body's exact bytes to stdout, unmasked, and nothing else.")
@click.option(
    "--raw-body",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    metavar="FILE",
    help="Write the body's exact bytes there, unmasked, and show nothing (- is stdout, also where it is a terminal).",
)
@click.option("--unmask", is_flag=True, help="Show the message with its secrets; takes --reason.")
@click.option("--reason", default="", help="Why secrets have to be seen, for the audit trail.")
@as_json
@common
def show_letter(id: str, raw: bool, raw_body: Path | None, unmask: bool, reason: str, as_json: bool) -> None:
    """Show one letter: every attempt with its stack, its headers, body and lineage. Secrets are masked.

    ID is the letter's id, the beginning of it, or the id of its message.

    \b
    redrive show 4kq2m7pxw3ab
    redrive show 4kq2m7pxw3ab --raw | jq .
    """
    if raw and (as_json or raw_body is not None):
        raise click.UsageError("--raw writes the bytes and nothing else: leave out --json and --raw-body")
    if raw or raw_body is not None:
        why = reason or "redrive show, raw"
        body = message_of(ask(lambda service: service.unmask(id, actor=actor(), reason=why))).body
        _write(raw_body, body) if raw_body is not None else _pour(body)
        return
    if unmask:
        _unmasked(ask(lambda service: service.unmask(id, actor=actor(), reason=reason)), as_json)
        return
    detail = ask(lambda service: service.letter(id))
    if as_json:
        tell_json(detail)
    else:
        show(*_parts(detail))


def _unmasked(found: CarriedMessage, as_json: bool) -> None:
    if as_json:
        tell_json(found)
        return
    message = message_of(found)
    for name, value in message.headers:
        write(f"{plain(name)}: {plain(value.decode('utf-8', 'backslashreplace'))}\n".encode())
    write(f"\n{plain(message.body.decode('utf-8', 'backslashreplace'))}\n".encode())


def _write(path: Path, body: bytes) -> None:
    if str(path) == "-":
        write(body)
        return
    with open_private(path, "wb") as file:
        file.write(body)
    say(f"{len(body):,} bytes written to {path}")


def _pour(body: bytes) -> None:
    """The bytes as they are; to a terminal only where they cannot drive it."""
    if sys.stdout.isatty() and not _is_harmless(body):
        raise Stopped(
            "the body has bytes that could drive your terminal: write it to a file (--raw-body FILE), pipe it (| xxd), "
            "or insist (--raw-body -)"
        )
    write(body)
    if sys.stdout.isatty() and not body.endswith(b"\n"):
        say("")  # the prompt begins on a line of its own


def _is_harmless(body: bytes) -> bool:
    try:
        text = body.decode().replace("\r\n", "\n")
    except UnicodeDecodeError:
        return False
    return plain(text) == text


def _parts(detail: Detail) -> list[RenderableType]:
    parts: list[RenderableType] = [_facts(detail)]
    for failure in detail.failures:
        parts += ["", *_attempt(failure)]
    if detail.headers:
        parts += ["", _title("Headers"), pairs([(plain(name), Text(plain(value))) for name, value in detail.headers])]
    parts += ["", _title(f"Body, {detail.body_size:,} bytes"), Text(_pretty(detail.body))]
    if detail.decoded is not None:
        schema = f"{detail.decoded.schema} ({detail.decoded.format})"
        parts += ["", _title(f"Body as {plain(schema)}"), Text(_pretty(detail.decoded.text))]
    for version in detail.versions[1:]:
        parts += ["", _title(_edited(version)), *coloured(version.diff)]
    return [*parts, "", *_what_next(detail)]


def _edited(version: VersionView) -> str:
    edit = version.edit
    by = " by ".join(filter(None, (age(edit.at), plain(edit.by)))) if edit else ""
    repair = f"repair {edit.repair}" if edit and edit.repair else ""
    return " · ".join(filter(None, (f"Version {version.number}", by, repair, plain(edit.why) if edit else "")))


def _facts(detail: Detail) -> Table:
    tries = f"{detail.resends} times, by hand or by itself"
    automatic = f"{detail.retries} of {detail.max_retries}" if detail.max_retries else "none: a person has to decide"
    lines: list[tuple[str, str | Text | None]] = [
        ("Letter", Text(detail.id, style="bold")),
        ("State", state(detail.state)),
        ("Why", f"{detail.reason}, {detail.category}"),
        ("Error", error(detail.error_type, detail.error_message)),
        ("Code", detail.code),
        ("Group", detail.group),
        ("Source", detail.source),
        ("Transport", None if detail.transport == "default" else detail.transport),
        ("Message", detail.message_id),
        ("Origin", detail.origin),
        ("Key", detail.key),
        ("Tenant", detail.tenant),
        ("Correlation", detail.correlation_id),
        ("Priority", str(detail.priority) if detail.priority else None),
        ("Sent", _time(detail.enqueued_at)),
        ("Buried", _time(detail.created_at)),
        ("Changed", _time(detail.updated_at)),
        ("Retries", automatic),
        ("Next retry", _time(detail.next_retry_at)),
        ("Sent back", tries if detail.resends else "never"),
        ("Replay", detail.replay),
        ("Waits for", ", ".join(detail.depends_on)),
        ("Behind letter", detail.head),
        ("Behind it", f"{detail.behind:,} letters of its key wait for it" if detail.behind else None),
        ("Held by", detail.owner),
        ("Version", f"{detail.version}: this is what is sent" if detail.version else None),
        ("Archived as", str(detail.archived_from) if detail.archived_from else None),
        ("Kept until", _time(detail.expires_at)),
    ]
    return pairs([(name, value if isinstance(value, Text) else line(value)) for name, value in lines if value])


def _attempt(failure: Attempt) -> list[RenderableType]:
    edition = f"of version {failure.edition}" if failure.edition else ""
    facts = [f"{failure.stage}", age(failure.at), failure.worker, failure.version, edition, failure.code or ""]
    head = Text(f"Attempt {failure.attempt}", style="bold")
    kind = f"{failure.category}, {'retryable' if failure.retryable else 'not retryable'}"
    return [
        Text.assemble(head, "  ", line(" · ".join(part for part in (*facts, kind) if part))),
        Text(plain(failure.stack.rstrip() or f"{failure.type}: {failure.message}")),
    ]


def _what_next(detail: Detail) -> list[RenderableType]:
    hints: list[RenderableType] = [
        to_copy("Send it back    ", command("retry", detail.id)),
        to_copy("The same cause  ", command("letters", "--group", detail.group)),
    ]
    if detail.version:
        hints.append(to_copy("Undo the edit   ", command("edit", detail.id, "--undo")))
    if detail.replay is not None:
        hints.append(to_copy("Its replay      ", command("replays", "show", detail.replay)))
    return hints


def _title(text: str) -> Text:
    return Text(text, style="bold")


def _pretty(body: str) -> str:
    """JSON over several lines, each token as it was written; anything else as it is."""
    return plain(indented(body))


def _time(at: datetime | None) -> str | None:
    return None if at is None else f"{age(at)}, {at.isoformat(timespec='seconds')}"
