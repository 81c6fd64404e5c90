"""Files that only their owner can read, from the moment they exist."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO


def open_private(path: Path, mode: str) -> IO[bytes]:
    """Open a file to write (`wb`) or to append (`ab`); if it is made by that, it is 0600 and never was anything else.
    One that exists keeps the mode that somebody gave it."""
    return open(path, mode, opener=lambda name, flags: os.open(name, flags, 0o600))
