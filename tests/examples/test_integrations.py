"""Apps of other queues, changed by one line, or by none: what fails is a letter, and its replay succeeds."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from redrive.model import State
from tests.integrations.running import Place, tool
from tests.servers.rabbitmq import RabbitMQ
from tests.servers.redis import Redis

EXAMPLES = Path(__file__).parents[2] / "examples"


async def test_taskiq(redis_server: Redis, tmp_path: Path) -> None:
    place = Place(tmp_path, {"taskiq": f"taskiq+{redis_server.url}"})
    settings = {"REDIS_URL": redis_server.url, "QUEUE": f"example-{tmp_path.name}"}
    shutil.copy(EXAMPLES / "taskiq_app.py", tmp_path)
    async with place.running(tool("taskiq"), "worker", "taskiq_app:broker", "--workers", "1", **settings) as worker:
        await worker.until("Listening started")
        await place.done(sys.executable, "taskiq_app.py", **settings)
        [letter] = await place.until_letters(1)
        assert (letter.last.message, len(letter.failures)) == ("card of order 3 was declined", 3)
        (tmp_path / "paid").touch()
        await place.replay()
        await place.until_state(letter.id, State.RESOLVED)


async def test_faststream(rabbitmq_server: RabbitMQ, tmp_path: Path) -> None:
    place = Place(tmp_path, {"faststream": f"faststream+{rabbitmq_server.url}"})
    settings = {"RABBITMQ_URL": rabbitmq_server.url, "QUEUE": f"example-{tmp_path.name}"}
    shutil.copy(EXAMPLES / "faststream_app.py", tmp_path)
    async with place.running(tool("faststream"), "run", "faststream_app:app", **settings) as worker:
        await worker.until("waiting for messages")
        await place.done(sys.executable, "faststream_app.py", **settings)
        [letter] = await place.until_letters(1)
        assert (letter.last.type, letter.message.header("shop")) == ("LookupError", b"berlin")
        (tmp_path / "catalogue").touch()
        await place.replay()
        await place.until_state(letter.id, State.RESOLVED)
        await worker.until("shipped order 2")


async def test_bullmq_is_not_changed_at_all(redis_server: Redis, bullmq_node: Path, tmp_path: Path) -> None:
    place = Place(tmp_path, {"bullmq": f"bullmq+{redis_server.url}"})
    settings = {"REDIS_URL": redis_server.url, "QUEUE": f"example-{tmp_path.name}"}
    for name in ("worker.mjs", "add.mjs"):
        shutil.copy(EXAMPLES / "bullmq" / name, tmp_path)
    (tmp_path / "node_modules").symlink_to(bullmq_node)
    watch = (sys.executable, "-m", "redrive.cli", "bullmq", "watch", settings["QUEUE"])
    async with place.running("node", "worker.mjs", **settings) as worker, place.running(*watch):
        await worker.until("ready")
        await place.done("node", "add.mjs", **settings)
        [letter] = await place.until_letters(1)
        assert (letter.last.type, len(letter.failures)) == ("RangeError", 2)
        (tmp_path / "boxes").touch()
        await place.replay()
        await place.until_state(letter.id, State.RESOLVED)
        await worker.until("packed order 3")
