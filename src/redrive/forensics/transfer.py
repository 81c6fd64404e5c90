"""Letters as JSON lines, byte-exact both ways: one line is one letter, its bytes in base64."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import IO, TypeAlias

import msgspec

from redrive.errors import UsageError
from redrive.model import Letter, LetterId, Version
from redrive.private import open_private
from redrive.untrusted import UNREADABLE

FORMAT = "redrive.letter/1"


class Line(msgspec.Struct, frozen=True):
    """One line of an export, as JSON."""

    letter: Letter
    format: str = FORMAT
    versions: tuple[Version, ...] = ()  # those before the newest, which is in the letter


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Line).decode


def line_of(letter: Letter, versions: Sequence[Version] = ()) -> bytes:
    """A letter and what its message was before as one line, its end included."""
    return _encode(Line(letter, versions=tuple(versions))) + b"\n"


def letters_of(lines: Iterable[bytes], name: str = "the input") -> Iterator[Letter]:
    """The letters of those lines, as `lines_of`."""
    return (line.letter for line in lines_of(lines, name))


def lines_of(lines: Iterable[bytes], name: str = "the input") -> Iterator[Line]:
    """Letters with their versions; a line that is none of ours is named, with its number."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            read = _decode(line)
            _check(read)
        except UNREADABLE as error:
            raise UsageError(f"line {number} of {name} is not a letter: {error}") from error
        if read.format != FORMAT:
            raise UsageError(f"line {number} of {name} has format {read.format!r}: this Redrive reads {FORMAT!r}")
        yield read


def _check(line: Line) -> None:
    """Check what every letter of Redrive has, and a line that somebody edited may lack."""
    letter = line.letter
    if not letter.failures:
        raise ValueError("it has no failure")
    if any(version.letter != letter.id for version in line.versions):
        raise ValueError("it has versions of another letter")
    message, of_failures = letter.message, (failure.at for failure in letter.failures)
    times = (letter.created_at, letter.updated_at, letter.next_retry_at, letter.expires_at, letter.lease_until)
    for at in (*times, message.enqueued_at, message.expires_at, *of_failures):
        if at is not None and at.tzinfo is None:
            raise ValueError(f"the time {at.isoformat()} has no zone")


Versions: TypeAlias = Mapping[LetterId, Sequence[Version]]


def write_lines(file: IO[bytes], letters: Iterable[Letter], versions: Versions = MappingProxyType({})) -> None:
    file.write(b"".join(line_of(letter, versions.get(letter.id, ())) for letter in letters))


def append_lines(path: Path, letters: Iterable[Letter], versions: Versions = MappingProxyType({})) -> None:
    """Append the letters to a file, with their versions; they are on the disk when it returns."""
    with open_private(path, "ab") as file:
        write_lines(file, letters, versions)
        file.flush()
        os.fsync(file.fileno())
