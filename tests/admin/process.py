"""`redrive` as a child process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path


class Process:
    """`redrive …` in a directory, read line by line."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self.child = child
        self.seen = ""

    async def line(self, pattern: str, timeout: float = 30) -> re.Match[str]:
        """The next line of stdout that has it."""
        assert self.child.stdout is not None
        async with asyncio.timeout(timeout):
            while text := (await self.child.stdout.readline()).decode():
                self.seen += text
                if found := re.search(pattern, text):
                    return found
        raise AssertionError(f"it ended without {pattern!r}: {self.seen}{await self.errors()}")

    async def errors(self) -> str:
        assert self.child.stderr is not None
        return (await self.child.stderr.read()).decode()

    async def end(self, *signals: int) -> int:
        for number in signals:
            self.child.send_signal(number)
        async with asyncio.timeout(30):
            return await self.child.wait()


def redrive(place: Path, *words: str) -> contextlib.AbstractAsyncContextManager[Process]:
    """The command line in that directory."""
    return python(place, "-m", "redrive.cli", *words)


@contextlib.asynccontextmanager
async def python(place: Path, *words: str) -> AsyncIterator[Process]:
    """Ended with the test, whatever happens in it."""
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        *words,
        cwd=place,
        env={name: value for name, value in os.environ.items() if not name.startswith("REDRIVE_")},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield Process(child)
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.communicate()
