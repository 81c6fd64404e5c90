"""The first app of Dramatiq's guide and of RQ's, changed by one line: what dies is a letter, its replay succeeds."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from redrive.testing.waiting import until
from tests.admin.process import redrive
from tests.servers.redis import Redis

EXAMPLES = Path(__file__).parents[2] / "examples"
BIN = Path(sys.executable).parent


class Example:
    """An example in a directory of its own, on a database of its own of the shared Redis."""

    def __init__(self, name: str, place: Path, server: Redis, database: int) -> None:
        shutil.copytree(EXAMPLES / name, place, dirs_exist_ok=True)
        self.place = place
        self.broker = f"redis://{server.address}/{database}"
        config = place / "redrive.toml"
        config.write_text(config.read_text().replace("redis://localhost:6379/0", self.broker))

    @contextlib.asynccontextmanager
    async def process(self, *words: str | Path) -> AsyncIterator[asyncio.subprocess.Process]:
        ours = {name: value for name, value in os.environ.items() if not name.startswith("REDRIVE_")}
        with (self.place / "out").open("ab") as out:
            child = await asyncio.create_subprocess_exec(
                *map(str, words), cwd=self.place, stdout=out, stderr=out, start_new_session=True,
                env={**ours, "BROKER": self.broker, "HOME": str(self.place), "PYTHONPATH": str(self.place)},
            )  # fmt: skip
            try:
                yield child
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                await child.wait()

    def said(self) -> str:
        return (self.place / "out").read_text()

    async def states(self) -> list[str]:
        async with redrive(self.place, "letters", "--json") as process:
            assert process.child.stdout is not None
            said = await process.child.stdout.read()
        return [letter["state"] for letter in json.loads(said)["letters"]]


async def tour(example: Example, *worker: str | Path) -> None:
    page = example.place / "page.txt"
    async with example.process(*worker):
        async with example.process(sys.executable, "words.py", page.as_uri()) as sender:
            assert await sender.wait() == 0, example.said()
        await until(lambda: has_letter(example), what="what died is a letter")
        page.write_text("now it is there")
        async with redrive(example.place, "replay", "--all", "--yes", "--wait") as replay:
            assert await replay.end() == 0, await replay.errors()
        await until(lambda: f"There are 4 words at {page.as_uri()}" in example.said(), what="it is counted")


async def has_letter(example: Example) -> bool:
    return (example.place / "letters.db").exists() and await example.states() == ["pending"]


async def test_dramatiqs_first_app(tmp_path: Path, redis_server: Redis) -> None:
    example = Example("dramatiq_words", tmp_path, redis_server, 11)
    await tour(example, BIN / "dramatiq", "words", "--processes", "1", "--threads", "1")


async def test_rqs_first_job(tmp_path: Path, redis_server: Redis) -> None:
    example = Example("rq_words", tmp_path, redis_server, 12)
    await tour(example, sys.executable, "work.py")


@pytest.mark.parametrize("name", ["dramatiq_words", "rq_words"])
def test_one_line_is_ours_beside_its_import(name: str) -> None:
    lines = [line for file in (EXAMPLES / name).glob("*.py") for line in file.read_text().splitlines()]
    assert len([line for line in lines if "# Redrive" in line]) == 2
