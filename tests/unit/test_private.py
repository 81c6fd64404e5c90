"""Files with secrets: their owner's only, whatever the umask is, and whatever was there before."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from redrive.private import open_private


@pytest.fixture(params=[0o000, 0o022, 0o277, 0o777], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("mode", ["wb", "xb", "ab"])
@pytest.mark.usefixtures("umask")
def test_a_file_that_is_made_is_its_owners_only(tmp_path: Path, mode: str) -> None:
    with open_private(tmp_path / "body", mode) as file:
        assert mode_of(tmp_path / "body") == 0o600
        file.write(b"secret")
    assert (tmp_path / "body").read_bytes() == b"secret"


def test_a_file_that_is_written_anew_is_closed_to_others_first(tmp_path: Path) -> None:
    path = tmp_path / "body"
    path.write_bytes(b"a longer one, of before")
    path.chmod(0o666)
    (tmp_path / "link").symlink_to(path)
    with open_private(tmp_path / "link", "wb") as file:
        assert (mode_of(path), path.read_bytes()) == (0o600, b"")
        file.write(b"secret")
    assert path.read_bytes() == b"secret"


def test_a_file_that_is_appended_to_keeps_the_mode_that_somebody_gave_it(tmp_path: Path) -> None:
    path = tmp_path / "pruned.jsonl"
    path.touch()
    path.chmod(0o640)
    with open_private(path, "ab") as file:
        file.write(b"line")
    assert mode_of(path) == 0o640


def test_what_is_there_is_not_made_even_if_it_is_a_link_to_nowhere(tmp_path: Path) -> None:
    (tmp_path / "there").write_bytes(b"mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("there", "link"):
        with pytest.raises(FileExistsError):
            open_private(tmp_path / name, "xb")
    assert (tmp_path / "there").read_bytes() == b"mine"
    assert not (tmp_path / "nowhere").exists()


def test_a_pipe_that_is_named_instead_of_a_file_is_written_to(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o622)
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        with open_private(tmp_path / "pipe", "wb") as file:
            file.write(b"secret")
        assert os.read(reader, 100) == b"secret"
    finally:
        os.close(reader)
    with open_private(Path("/dev/null"), "wb") as file:
        file.write(b"secret")
