"""The app of Celery's first steps, changed by one line: its failures are letters, and their replay succeeds."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from redrive.forensics.query import Query
from redrive.model import State
from redrive.stores.sqlite import open_store
from redrive.testing.waiting import until
from tests.servers.fixtures import StartsServer
from tests.servers.redis import Redis

EXAMPLE = Path(__file__).parents[2] / "examples" / "celery_first_steps"


def started(place: Path, broker: str) -> subprocess.Popen[bytes]:
    with (place / "worker.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "tasks", "worker", "-P", "solo", "--without-gossip"],
            cwd=place,
            env={**os.environ, "BROKER": broker, "XDG_STATE_HOME": str(place)},
            stdout=log,
            stderr=log,
        )


def stop(worker: subprocess.Popen[bytes]) -> None:
    worker.send_signal(signal.SIGKILL)
    worker.wait(60)


def run(place: Path, broker: str, *words: str) -> str:
    environ = {**os.environ, "BROKER": broker, "REDRIVE_TRANSPORTS_CELERY": f"celery+{broker}"}
    done = subprocess.run([sys.executable, *words], cwd=place, env=environ, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout + done.stderr


def mend(file: Path) -> None:
    file.write_text(file.read_text().replace("x + y", "int(x) + int(y)"))


async def states(place: Path) -> list[State]:
    store = open_store(f"sqlite:///{place / 'letters.db'}")
    try:
        return [letter.state for letter in (await store.letters.search(Query(), limit=10)).letters]
    finally:
        await store.aclose()


async def test_the_first_steps_of_celery_with_one_line_more(start_server: StartsServer, tmp_path: Path) -> None:
    broker = start_server(Redis).url
    place = tmp_path / "example"
    shutil.copytree(EXAMPLE, place)
    worker = started(place, broker)
    try:
        assert "sent two sums" in run(place, broker, "tasks.py")

        async def is_dead() -> bool:
            return (place / "letters.db").exists() and await states(place) == [State.PENDING]

        await until(is_dead, what="its failure is a letter")
        assert "TypeError" in run(place, broker, "-m", "redrive.cli", "groups")
        stop(worker)
        mend(place / "tasks.py")
        worker = started(place, broker)
        assert "resolved 1" in run(
            place, broker, "-m", "redrive.cli", "replay", "--source", "tasks.add", "--yes", "--wait"
        )
        assert await states(place) == [State.RESOLVED]
        assert "3 + 4 = 7" in (place / "worker.log").read_text()
    finally:
        stop(worker)
