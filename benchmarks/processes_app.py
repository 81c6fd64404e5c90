"""What families/processes.py lets `redrive run` run: each message costs 1 ms of CPU, and leaves a byte in a file.

Nothing is handled before there is a file `go`; every process that has got messages says so with a file of its own.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from redrive import Redrive
from redrive.config.load import load

SOURCE, PLACE = "BENCH_SOURCE", "BENCH_PLACE"
"""Variables: what is handled, and where the files are."""
HANDLED, GO, HOLDS = "handled", "go", "holds-*"
_COST = 0.001  # seconds of CPU


def _made() -> Redrive:
    app, place = Redrive(settings=load()), Path(os.environ[PLACE])
    file = os.open(place / HANDLED, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    goes = False

    @app.handler(os.environ[SOURCE], concurrency=10)
    async def work(body: bytes) -> None:
        nonlocal goes
        if not goes:
            await _until_go(place)
            goes = True
        end = time.thread_time() + _COST
        while time.thread_time() < end:
            pass
        os.write(file, b".")

    return app


async def _until_go(place: Path) -> None:
    place.joinpath(HOLDS.replace("*", str(os.getpid()))).touch()
    while not place.joinpath(GO).exists():  # noqa: ASYNC110 - whoever says it is another process
        await asyncio.sleep(0.005)


def __getattr__(name: str) -> Redrive:
    """`app`, made when it is asked for: in a process that was told what to work on."""
    if name != "app":
        raise AttributeError(name)
    return _made()
