"""Versions and extras."""

from __future__ import annotations

import platform
import sqlite3
from collections.abc import Iterator

from redrive.doctor.findings import Finding, failure, fine
from redrive.extras import install, missing_extras

_OLDEST_SQLITE = (3, 35, 0)


def machine() -> Iterator[Finding]:
    """Check what this process runs on."""
    yield fine("python", f"Python {platform.python_version()} on {platform.system()}")
    yield _sqlite()
    yield _extras()


def _sqlite() -> Finding:
    if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
        return failure(
            "sqlite", f"SQLite {sqlite3.sqlite_version} is too old", "use a Python with SQLite 3.35 or newer"
        )
    return fine("sqlite", f"SQLite {sqlite3.sqlite_version}")


def _extras() -> Finding:
    missing = missing_extras()
    if not missing:
        return fine("extras", "all installed")
    return fine("extras", f"not installed: {', '.join(missing)} ({install(*missing)})")
