"""A file of variables for a process: `NAME=value` on each line, as `docker --env-file` and `.env` files have it."""

from __future__ import annotations

import re
from pathlib import Path

from redrive.errors import UsageError

_LINE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)=(.*)")


def read_env_file(file: Path) -> dict[str, str]:
    """The variables of a file. UsageError names a line that is none, without its text, which may be a secret."""
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the variables in {file} cannot be read: {error}") from error
    found = {}
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        parts = _LINE.fullmatch(stripped)
        if parts is None or "\0" in stripped:
            raise UsageError(f"{file}, line {number}: write it as NAME=value")
        found[parts[1]] = _unquoted(parts[2].strip())
    return found


def _unquoted(value: str) -> str:
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"":
        return value[1:-1]
    return value
