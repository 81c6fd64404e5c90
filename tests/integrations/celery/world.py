"""Real workers of Celery, and the letters of a store of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from celery import Celery
from celery.backends.redis import RedisBackend
from kombu import Connection, pools

from redrive import Redrive
from redrive.config.load import load
from redrive.forensics.query import Query
from redrive.model import Letter, LetterId, State
from redrive.service import ReplayReport, Service
from redrive.stores.sqlite import open_store
from redrive.testing.waiting import until
from tests.actors import acting

ROOT = Path(__file__).parents[3]


def touch(file: Path) -> None:
    """Make that file: what failed for want of it succeeds from now on."""
    file.touch()


class Shop:
    """An app with a queue, a store and a spool that nobody else has; its workers are processes."""

    def __init__(self, directory: Path, broker: str, **settings: Any) -> None:
        self.directory = directory
        self.queue = f"q{uuid.uuid4().hex[:10]}"
        self.broker = broker
        self.store = f"sqlite:///{directory / 'letters.db'}"
        self.spool = directory / "spool"
        self.settings = {
            "broker": broker,
            "queue": self.queue,
            "store": self.store,
            "spool": str(self.spool),
            **settings,
        }
        self.client = Celery("client", broker=broker, backend=settings.get("backend"), set_as_current=False)
        self.client.conf.task_default_queue = self.queue
        self.workers: list[Worker] = []

    def start(self, pool: str = "prefork", *, concurrency: int = 1, **changes: Any) -> Worker:
        worker = Worker(self, pool, concurrency, {**self.settings, **changes})
        self.workers.append(worker)
        return worker

    def send(self, task: str, *args: Any, **options: Any) -> str:
        return str(self.client.send_task(f"tests.integrations.celery.shop.{task}", args=args, **options).id)

    def signature(self, task: str, *args: Any, **options: Any) -> Any:
        return self.client.signature(f"tests.integrations.celery.shop.{task}", args=args, **options)

    async def letters(self) -> Sequence[Letter]:
        store = open_store(self.store)
        try:
            return (await store.letters.search(Query(), limit=100_000)).letters
        finally:
            await store.aclose()

    async def letter(self, id: str, holds: Callable[[Letter], bool] = lambda letter: True) -> Letter:
        """The letter of the task of that id, once that holds of it."""
        found: list[Letter] = []

        async def is_there() -> bool:
            found[:] = [each for each in await self.letters() if each.message.id == id and holds(each)]
            return bool(found)

        try:
            await until(is_there, what=f"{id} has such a letter")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log}") from None
        return found[0]

    async def replay(self, *ids: LetterId, name: str = "celery") -> ReplayReport:
        environ = {"REDRIVE_STORE": self.store, f"REDRIVE_TRANSPORTS_{name.upper()}": f"celery+{self.broker}"}
        settings = load(environ=environ)
        async with Redrive(settings=settings) as app:
            return await Service(app).retry(ids, actor=acting("ann"))

    async def resolved(self, id: str) -> Letter:
        return await self.letter(id, lambda letter: letter.state is State.RESOLVED)

    def waiting(self) -> int:
        """How many messages are in the queue and held by no worker."""
        with Connection(self.broker) as connection, connection.channel() as channel:
            return int(channel.queue_declare(self.queue, passive=True).message_count)

    @property
    def log(self) -> str:
        return "".join(worker.said for worker in self.workers)[-5000:]

    def close(self) -> None:
        for worker in self.workers:
            worker.kill()
        if isinstance(backend := self.client.backend, RedisBackend):
            backend.result_consumer.stop()
            backend.result_consumer.cancel_for = lambda task: None  # a result that is freed later would connect anew
            backend.client.connection_pool.disconnect()
        self.client.close()
        pools.reset()  # Celery lets go of its pools and closes none of their connections


class Worker:
    """A worker process, in a session of its own."""

    def __init__(self, shop: Shop, pool: str, concurrency: int, settings: dict[str, Any]) -> None:
        self._log = shop.directory / f"worker-{uuid.uuid4().hex[:6]}.log"
        command = [sys.executable, "-m", "celery", "-A", "tests.integrations.celery.shop", "worker"]
        command += ["-P", pool, "-c", str(concurrency), "-l", "WARNING", "-n", f"{uuid.uuid4().hex[:6]}@shop"]
        command += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, "SHOP": json.dumps(settings), "C_FORCE_ROOT": "1"},  # pickle is accepted
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    @property
    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def stop(self) -> None:
        """End it as an orchestrator would."""
        self.process.terminate()
        self.process.wait(60)

    def kill(self) -> None:
        """End it and its children at once."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(60)
