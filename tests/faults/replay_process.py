"""A worker that runs a guarded, ordered replay, and can be told where to die: `python -m tests.faults.replay_process`.

It ends by itself, with code 0, when the replay has ended and every outcome is known, or with code 7 when it is paused.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import sys
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec.structs import replace

import redrive.flow.replay
import redrive.flow.running
from redrive import Message, Permanent, Policy, Redrive
from redrive.clock import SystemClock
from redrive.config.settings import Settings
from redrive.flow.replay import Replays, ReplayState
from redrive.flow.watching import fates_of
from redrive.registry import open_store, open_transport
from redrive.stores.base import Store
from redrive.telemetry.events import Events
from redrive.transports.base import Transport
from redrive.worker import Worker

SOURCE, REPLAY, LEASE = "orders", "replay-1", timedelta(seconds=1)
PAUSED = 7


class Orders(msgspec.Struct, frozen=True):
    """What the process is told."""

    directory: str
    call: int | None = None  # die at this call of the run to a backend, the first being 0
    after: bool = False  # when it was carried out, and not before
    when: dict[str, Any] | None = None  # die when the replay's document is written with these values
    batch: int | None = None  # letters in a batch: with few of them, the next is claimed while one is sent
    resume: bool = False  # say first that a paused replay goes on

    @property
    def url(self) -> str:
        return f"sqlite:///{self.directory}/redrive.db"

    @property
    def done(self) -> Path:
        """Gets a line for each message that is handled, before its handler returns."""
        return Path(self.directory, "done")


class Doomed:
    """A backend whose calls are counted, and which ends the process at one of them."""

    calls = 0

    def __init__(self, target: object, orders: Orders, name: str = "") -> None:
        self._target, self._orders, self._name = target, orders, name

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        if name in ("letters", "ledger", "documents", "versions"):
            return Doomed(value, self._orders, name)
        if not inspect.iscoroutinefunction(value):
            return value

        async def call(*args: Any, **kwargs: Any) -> Any:
            number, Doomed.calls = Doomed.calls, Doomed.calls + 1
            is_now = number == self._orders.call or self._is_written(name, args)
            if is_now and not self._orders.after:
                os.kill(os.getpid(), signal.SIGKILL)
            answer = await value(*args, **kwargs)
            if is_now:
                os.kill(os.getpid(), signal.SIGKILL)
            return answer

        return call

    def _is_written(self, name: str, args: tuple[Any, ...]) -> bool:
        when = self._orders.when
        if when is None or (self._name, name) != ("documents", "put") or args[0] != "replay":
            return False
        return all(args[2].get(field) == value for field, value in when.items())


async def main(orders: Orders) -> int:
    redrive.flow.replay.LEASE = redrive.flow.running.LEASE = LEASE
    if orders.batch is not None:
        redrive.flow.running.FIRST = redrive.flow.running.BATCH = redrive.flow.running.MOST = orders.batch
    settings = replace(Settings(), batch=20, lease=LEASE)
    app = Redrive(transport=orders.url, store=orders.url, settings=settings)

    @app.handler(SOURCE, policy=Policy(attempts=20))
    async def handle(body: dict[str, str], message: Message) -> None:
        with orders.done.open("a") as file:
            file.write(f"{message.id}\n")
        if message.id.startswith("bad"):
            raise Permanent("it is still broken")

    async with app:
        worker = Worker(app, upkeep=False)
        task = asyncio.create_task(worker.run())
        try:
            return await _replay(orders)
        finally:
            worker.stop()
            await task


async def _replay(orders: Orders) -> int:
    """Run the replay until it is at its end."""
    clock = SystemClock()
    store, queue = open_store(orders.url), open_transport(orders.url, clock=clock, lease=LEASE)
    doomed = cast(Store, Doomed(store, orders))
    transports = {"default": cast(Transport, Doomed(queue, orders))}
    replays = Replays(doomed, transports, Events(), clock)
    if orders.resume and (await replays.get(REPLAY)).state is ReplayState.PAUSED:
        await replays.resume(REPLAY, actor="test")
    try:
        while True:
            replay = await replays.run(REPLAY, runner=f"runner-{os.getpid()}")
            if replay.state is ReplayState.PAUSED and replay.runner is None:
                return PAUSED
            if replay.state is ReplayState.SENT and not (await fates_of(store, REPLAY)).outstanding:
                return 0
            await asyncio.sleep(0.05)
    finally:
        with suppress(Exception):
            await queue.aclose()
            await store.aclose()


if __name__ == "__main__":
    sys.exit(asyncio.run(main(msgspec.json.decode(sys.argv[1], type=Orders))))
