"""`redrive export` and `redrive import`: letters as JSON lines, byte-exact both ways."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

import click

from redrive.cli.exits import NOTHING, Stopped, saying_how_far
from redrive.cli.lazy import common
from redrive.cli.options import as_json, filters
from redrive.cli.output import letters_said, say, tell_json, write
from redrive.cli.progress import Bar
from redrive.cli.session import Needs, actor, again, ask
from redrive.forensics.query import Query
from redrive.private import open_private
from redrive.service import Home

_PATH = click.Path(dir_okay=False, allow_dash=True, path_type=Path)


@click.command("export")
@click.argument("file", type=_PATH, default="-")
@filters
@click.option("--force", is_flag=True, help="Replace the file if there is one.")
@common
def export_letters(file: Path, query: Query, force: bool) -> None:
    """Write letters to FILE (or stdout) as JSON lines, oldest first. Nothing is masked: keep it safe.

    \b
    redrive export letters.jsonl --older-than 30d
    redrive export --group 4kq2m7pxw3ab | jq .letter.message.id
    """
    if str(file) == "-":
        so_far = Bar("exporting", None)
        with saying_how_far(lambda: f"{letters_said(so_far.done)} written, each whole. From the start: {again()}"):
            total = ask(lambda service: _pour(service, query, write, so_far))
    else:
        if file.exists() and not force:
            raise Stopped(f"{file} is there already: choose another name, or say --force to replace it")
        total = _to_file(file, query)
    say(f"{letters_said(total)} exported")
    if total == 0:
        raise click.exceptions.Exit(NOTHING)


def _to_file(file: Path, query: Query) -> int:
    """Write to a file under another name until it is whole and on the disk: a half export never looks whole."""
    part = file.with_name(f"{file.name}.part")
    so_far = Bar("exporting", None)
    part.unlink(missing_ok=True)  # of an export that was killed, or put there by somebody else
    try:
        with (
            open_private(part, "xb") as target,
            saying_how_far(lambda: _not_whole(file, so_far)),
        ):
            total = ask(lambda service: _pour(service, query, target.write, so_far))
            target.flush()
            os.fsync(target.fileno())
        part.replace(file)
    except BaseException:
        with suppress(FileNotFoundError):
            part.unlink()
        raise
    return total


def _not_whole(file: Path, so_far: Bar) -> str:
    there = "is as it was" if file.exists() else "was not made"
    return (
        f"{so_far.done:,} of {letters_said(so_far.total or 0)} read, and {file} {there}, because an export is whole. "
        f"From the start:\n{again()}"
    )


async def _pour(service: Home, query: Query, write: Callable[[bytes], object], bar: Bar) -> int:
    lines: AsyncIterator[bytes] = service.export(query, actor=actor())
    bar.total = await service.count(query)
    with bar:
        async for some in lines:
            write(some)
            bar(some.count(b"\n"))
        return bar.done


@click.command("import")
@click.argument("file", type=_PATH)
@as_json
@common
def import_letters(file: Path, as_json: bool) -> None:
    """Read letters that `redrive export` wrote from FILE (- is stdin). Importing them twice changes nothing."""
    if str(file) == "-":
        total = _read(sys.stdin.buffer, "stdin", None)
    else:
        with file.open("rb") as source:
            total = _read(source, str(file), os.fstat(source.fileno()).st_size)
    tell_json({"imported": total}) if as_json else say(f"{letters_said(total)} imported")
    if total == 0:
        raise click.exceptions.Exit(NOTHING)


def _read(source: IO[bytes], name: str, size: int | None) -> int:
    kept = Bar("", None)
    with Bar("importing, bytes", size) as bar, saying_how_far(lambda: _imported(kept.done, name)):
        lines = counted(source, bar)
        return ask(
            lambda service: service.import_letters(lines, actor=actor(), name=name, progress=kept.count),
            Needs.NOTHING,
        )


def _imported(done: int, name: str) -> str:
    return (
        f"{letters_said(done)} of {name} imported. The same again goes on: what is there already stays as it is.\n"
        f"{again()}"
    )


def counted(lines: Iterable[bytes], bar: Bar) -> Iterator[bytes]:
    """The same lines; the bar shows how many bytes of them were read."""
    for line in lines:
        bar(len(line))
        yield line
