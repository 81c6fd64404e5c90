"""In which order the workers of a run take the files."""

from __future__ import annotations

from pathlib import Path

from tests.longest_first import LONG, TESTS, ordered


def test_every_folder_that_is_begun_first_is_there() -> None:
    assert [folder for folder in LONG if not (TESTS / folder).is_dir()] == []


def test_long_folders_take_turns_and_quick_ones_come_last() -> None:
    a, b = TESTS / "faults" / "a.py", TESTS / "faults" / "b.py"
    system, quick, elsewhere = TESTS / "systems" / "email" / "a.py", TESTS / "cli" / "a.py", Path("/elsewhere/a.py")
    assert ordered([elsewhere, quick, quick, a, b, b, system, a]) == [a, system, b, elsewhere, quick]
