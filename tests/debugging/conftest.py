"""A directory with a shop in it, and letters of what it could not handle."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from redrive.model import Letter
from redrive.testing.builders import make_failure, make_letter, make_message
from tests.cli.world import Shell
from tests.debugging.shops import SHOP


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    """Where the shop is; nothing of it is imported into this process and left there."""
    for name in [name for name in os.environ if name.startswith("REDRIVE_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "shop.py").write_text(SHOP)
    shell = Shell(tmp_path)
    yield shell
    shell.end()
    sys.modules.pop("shop", None)


def dead(source: str, body: bytes, *, id: str, error: str = "ValueError", group: str = "before") -> Letter:
    """The letter of a message that failed."""
    at = datetime.now(UTC) - timedelta(minutes=1)
    failure = make_failure(type=error, message="it failed, password=hunter2", version="1.4.1", at=at)
    headers = (("trace", b"\xfa"), ("authorization", b"Bearer s3cr3t-token-value"))
    return make_letter(make_message(id=id, source=source, body=body, headers=headers), failure, at=at, group=group)
