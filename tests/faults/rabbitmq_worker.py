"""Workers of the file pipeline that are killed while they consume, retry and park, and a broker that is, too.

Started as `python -m tests.faults.rabbitmq_worker URL DIRECTORY`, it is one such worker.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections import Counter
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from msgspec import Struct
from pika import BasicProperties

from redrive.clock import SystemClock
from redrive.config.settings import Settings
from redrive.errors import Transient, TransportUnavailable
from redrive.model import Message
from redrive.systems.files import FilesWorker
from redrive.systems.files.settings import FilesSettings
from redrive.systems.files.topology import topology
from redrive.testing.waiting import until
from redrive.transports.rabbitmq.link import Link
from redrive.transports.rabbitmq.management import Management
from redrive.transports.rabbitmq.options import options_of
from redrive.transports.rabbitmq.publisher import Parcel, Publisher
from redrive.transports.rabbitmq.redrive import DeadMessages
from redrive.transports.rabbitmq.topology import declared, dlq_queue, retry_queue
from redrive.worker import Worker, stop_on_signals
from tests.servers.rabbitmq import RabbitMQ

ROOT = Path(__file__).parents[2]
QUEUE = "q.audit"
DELAY, RETRIES, PREFETCH = timedelta(milliseconds=100), 2, 200
_PATIENCE = 900


class Account(Struct, frozen=True):
    """Where everything is in the end."""

    fine: frozenset[str]  # those that succeed, at once or when they are retried
    hopeless: frozenset[str]
    done: Counter[str]
    parked: Counter[str]
    kills: int

    def __str__(self) -> str:
        sent, lost = len(self.fine | self.hopeless), self.fine - self.done.keys() | self.hopeless - self.parked.keys()
        counts = {"sent": sent, "done": len(self.done), "parked": len(self.parked), "lost": len(lost)}
        counts["done again"] = self.done.total() - len(self.done)
        counts["parked again"] = self.parked.total() - len(self.parked)
        counts["kills of workers"] = self.kills
        return ", ".join(f"{name} {number:,}" for name, number in counts.items())


async def account_of_kills(server: RabbitMQ, directory: Path, *, number: int, kills: int, seed: int) -> Account:
    """So many messages, workers that die wherever they are, in the middle the broker too, and a worker that ends it."""
    ids = [_id(n) for n in range(number)]
    fine = frozenset(one for one in ids if not one.startswith("never"))
    await _fill(server, ids)
    rng, share = random.Random(seed), len(fine) // (kills + 2)
    for nth in range(kills):
        worker = await _start(server.url, directory)
        await _until_done(directory, nth * share + rng.randrange(1, share), worker)
        if nth == kills // 2:
            server.kill9()
            server.start()
            await _until_done(directory, nth * share + share, worker)
        worker.kill()
        assert await worker.wait() == -signal.SIGKILL
    is_over = False
    while not is_over:
        worker = await _start(server.url, directory)
        await until(lambda: _seems_over(server.url, directory, fine), what="all is settled", timeout=_PATIENCE)
        worker.terminate()
        assert await worker.wait() == 0
        is_over = await _is_empty(server.url)  # now that nobody holds anything
    return Account(fine, frozenset(ids) - fine, Counter(_done(directory)), await _parked(server.url), kills)


def _id(n: int) -> str:
    kind = "never" if n % 20 == 0 else "once" if n % 20 < 4 else "ok"
    return f"{kind}-{n:06}"


async def _fill(server: RabbitMQ, ids: list[str]) -> None:
    management = Management(server.management_url)
    await management.apply(declared(topology(delay=DELAY)))
    await management.aclose()
    publisher = Publisher(Link(options_of(server.url)), timedelta(minutes=5))
    await publisher.publish([Parcel("", QUEUE, BasicProperties(message_id=id, delivery_mode=2), b"{}") for id in ids])
    await publisher.aclose()


async def _start(url: str, directory: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.faults.rabbitmq_worker", url, str(directory), cwd=ROOT
    )


async def _until_done(directory: Path, number: int, worker: asyncio.subprocess.Process) -> None:
    def reached() -> bool:
        assert worker.returncode is None, "it ended by itself"
        return len(_done(directory)) >= number

    await until(reached, what=f"{number} are done", timeout=_PATIENCE)


async def _seems_over(url: str, directory: Path, fine: frozenset[str]) -> bool:
    """What a worker holds is in nobody's count."""
    if len(set(_done(directory))) < len(fine):
        return False
    with suppress(TransportUnavailable):
        return await _is_empty(url)
    return False


async def _is_empty(url: str) -> bool:
    """Nothing waits: first where it would come from, so that what moves meanwhile is seen."""
    return not await _count(url, retry_queue(QUEUE)) and not await _count(url, QUEUE)


async def _count(url: str, queue: str) -> int:
    parkings = DeadMessages(options_of(url), SystemClock())
    try:
        return await parkings.count(queue) or 0
    finally:
        await parkings.aclose()


async def _parked(url: str) -> Counter[str]:
    """Every one that lies there."""
    link, found = Link(options_of(url)), Counter[str]()
    channel = await link.channel()
    frame = await channel.call(channel.raw.queue_declare, dlq_queue(QUEUE), passive=True)

    def take(_: object, __: object, properties: BasicProperties, ___: bytes) -> None:
        found[str(properties.message_id)] += 1

    await channel.call(channel.raw.basic_consume, dlq_queue(QUEUE), take, auto_ack=True)
    await until(lambda: found.total() == frame.method.message_count, what="all are taken", timeout=60)
    await link.aclose()
    return found


def _done(directory: Path) -> list[str]:
    path = directory / "done"
    return path.read_text().splitlines() if path.exists() else []


# -- in the process that dies -----------------------------------------------------------------------------------------


async def main(url: str, directory: str) -> None:
    store = f"sqlite:///{directory}/redrive.db"
    files = FilesSettings(url=url, delay=DELAY, retries=RETRIES, prefetch=PREFETCH)
    settings = Settings(store=store, transports={"default": store}, sections=(files,))
    done = os.open(f"{directory}/done", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def handle(body: bytes, message: Message) -> None:
        kind = message.id.partition("-")[0]
        if kind == "never" or (kind == "once" and message.attempt == 1):
            raise Transient("not now")
        os.write(done, f"{message.id}\n".encode())

    pipeline = FilesWorker({QUEUE: handle}, settings)
    async with pipeline.app as app:
        worker = Worker(app, upkeep=False)
        stop_on_signals(worker.stop)
        await worker.run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
