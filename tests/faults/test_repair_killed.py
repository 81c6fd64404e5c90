"""A repair that is killed at any moment: a letter is changed or not, the repair says which, and undo takes it back."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from redrive import Redrive
from redrive.config.settings import Settings
from redrive.forensics.query import Query
from redrive.model import Letter
from redrive.service import Service
from redrive.testing.builders import make_letter, make_message
from redrive.testing.waiting import until
from tests.actors import acting

pytestmark = pytest.mark.asyncio
LETTERS = int(os.environ.get("REDRIVE_REPAIRED", "1000"))
KILLS = int(os.environ.get("REDRIVE_REPAIR_KILLS", "4"))
FIX = "def repair(message):\n    return {'n': int(message.json['n'])}\n"


def _settings(tmp_path: Path) -> Settings:
    url = f"sqlite:///{tmp_path}/redrive.db"
    return Settings(store=url, transports={"default": url})


async def _changed(app: Redrive) -> int:
    """How many letters were edited."""
    page = await app.store.letters.search(Query(), limit=LETTERS)
    return sum(letter.version % 2 for letter in page.letters)


async def test_a_killed_repair_says_what_it_changed_and_is_undone_byte_for_byte(tmp_path: Path) -> None:
    (tmp_path / "fix.py").write_text(FIX)
    bodies = [b'{"n": "%d"}' % number for number in range(LETTERS)]
    at = datetime.now(UTC) - timedelta(hours=1)
    letters = [make_letter(make_message(source="orders", body=body), at=at) for body in bodies]
    async with Redrive(settings=_settings(tmp_path)) as app:
        await app.store.letters.record(letters)
        rng = random.Random(7)
        for _ in range(KILLS):
            await _kill_in_the_middle(app, tmp_path, rng.randrange(1, LETTERS // 2))
            await _account(app, letters)


async def _kill_in_the_middle(app: Redrive, tmp_path: Path, enough: int) -> None:
    """Begin a repair, and kill it with all that it started when some letters are changed."""
    store = f"sqlite:///{tmp_path}/redrive.db"
    words = ["--store", store, "repair", "--source", "orders", "fix.py", "--yes", "--timeout", "60s"]
    command = [sys.executable, "-m", "redrive", *words]
    process = await asyncio.create_subprocess_exec(
        *command, cwd=tmp_path, stderr=asyncio.subprocess.DEVNULL, start_new_session=True
    )
    try:

        async def is_begun() -> bool:
            return process.returncode is not None or await _changed(app) >= enough

        await until(is_begun, timeout=120)
    finally:
        with suppress(ProcessLookupError):  # it may just have ended by itself
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def _account(app: Redrive, letters: list[Letter]) -> None:
    """Each letter is whole; what the repair says it changed is what is changed; the undo brings all of it back."""
    service = Service(app)
    [repair, *_] = await service.repairs.all()
    said = {id async for id in service.repairs.changed(repair.id)}
    for letter in letters:
        number = int(letter.message.body[7:-2])
        now = (await service.find(letter.id)).message.body
        assert now == (b'{"n": %d}' % number if letter.id in said else letter.message.body)
    undone = await service.repairs.undo(repair.id, actor=acting("test"))
    assert (undone.restored, undone.skipped) == (len(said), {})
    for letter in letters:
        assert (await service.find(letter.id)).message == letter.message
