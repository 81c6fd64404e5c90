"""Files that only their owner can read, from the moment they exist."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import IO


def open_private(path: Path, mode: str) -> IO[bytes]:
    """Open a file to write (`wb`), to make (`xb`) or to append (`ab`); if it is made by that, it is 0600 and never was
    anything else, whatever the umask. One that is written anew is closed to others before the first byte; one that is
    appended to keeps the mode that somebody gave it."""

    def opener(name: str, flags: int) -> int:
        try:
            made = os.open(name, flags | os.O_EXCL, 0o600)
        except FileExistsError:
            if "x" in mode:
                raise
            found = os.open(name, flags, 0o600)
            if "w" in mode:
                _close_to_others(found)
            return found
        os.fchmod(made, 0o600)
        return made

    return open(path, mode, opener=opener)


def _close_to_others(file: int) -> None:
    """Of a file, not of a pipe or a terminal that somebody names instead of one."""
    now = os.fstat(file)
    if stat.S_ISREG(now.st_mode) and now.st_mode & 0o077:
        os.fchmod(file, 0o600)
