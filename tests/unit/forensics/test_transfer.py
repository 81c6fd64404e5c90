"""Letters as lines."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from redrive.errors import UsageError
from redrive.forensics.transfer import FORMAT, append_lines, letters_of, line_of
from redrive.testing.builders import make_letter, make_message

LETTER = make_letter(make_message(body=bytes(range(256)), headers=(("h", b"\xff"),), key=b"\x00"))


def test_one_letter_is_one_line() -> None:
    line = line_of(LETTER)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert list(letters_of([line])) == [LETTER]


def test_empty_lines_are_passed_over() -> None:
    assert list(letters_of([b"", b"\n", line_of(LETTER), b"  \r\n"])) == [LETTER]


@pytest.mark.parametrize(
    "line",
    [
        b"nonsense",
        b"{}",
        b"[]",
        b"\xff\xfe",
        b'{"letter":5,"format":"redrive.letter/1"}',
        line_of(LETTER)[:-20],
        line_of(LETTER).replace(b'"state":"pending"', b'"state":"lost"'),
        line_of(LETTER).replace(b"T00:00:00Z", b"T00:00:00"),
        b"[" * 100_000,
    ],
)
def test_a_line_that_is_no_letter_is_named_with_its_number(line: bytes) -> None:
    with pytest.raises(UsageError, match=r"line 2 of backup\.jsonl is not a letter"):
        list(letters_of([line_of(LETTER), line], "backup.jsonl"))


def test_a_letter_without_a_failure_is_none() -> None:
    tree = msgspec.json.decode(line_of(LETTER))
    tree["letter"]["failures"] = []
    with pytest.raises(UsageError, match="line 1 of the input is not a letter: it has no failure"):
        list(letters_of([msgspec.json.encode(tree)]))


def test_a_line_of_another_format_says_which_is_read() -> None:
    line = line_of(LETTER).replace(FORMAT.encode(), b"redrive.letter/9")
    with pytest.raises(UsageError, match=r"format 'redrive.letter/9': this Redrive reads 'redrive.letter/1'"):
        list(letters_of([line]))


def test_lines_are_read_as_they_come() -> None:
    """A file of a million letters is never held at once."""
    read = letters_of(iter([line_of(LETTER), b"nonsense"]))
    assert next(read) == LETTER
    with pytest.raises(UsageError):
        next(read)


def test_appending_adds_to_what_is_there_and_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    file = tmp_path / "letters.jsonl"
    append_lines(file, [LETTER])
    append_lines(file, [LETTER, LETTER])
    assert len(list(letters_of(file.read_bytes().splitlines()))) == 3
    assert len(synced) == 2
