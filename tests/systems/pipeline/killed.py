"""An engine that can be told where to die: `python -m tests.systems.pipeline.killed '<JSON of Orders>'`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec

from redrive.config.settings import Settings
from redrive.model import Message
from redrive.stores.sqlite import SqliteStore
from redrive.systems.pipeline import Engine, Graph
from redrive.systems.pipeline.engine import TRANSPORT
from redrive.systems.pipeline.settings import PipelineSettings
from redrive.testing.faults import FaultyStore, FaultyTransport, Killer, Step
from redrive.transports.base import SendResult
from redrive.worker import stop_on_signals


class Orders(msgspec.Struct, frozen=True):
    """What the process is told."""

    graph: dict[str, Any]
    transport: str
    store: str
    step: Step | None = None
    nth: int = 1
    lease: timedelta = timedelta(seconds=6)


async def main(orders: Orders) -> None:
    probe = Killer(orders.step, orders.nth)
    own = PipelineSettings(transport=orders.transport, concurrency=4)
    settings = Settings(sections=(own,), lease=orders.lease, grace=timedelta(seconds=5), batch=10)
    engine = Engine(Graph.of(orders.graph), settings, store=FaultyStore(SqliteStore(orders.store), probe))
    engine.app.use(TRANSPORT, FaultyTransport(engine.transport, probe))
    send = engine.transport.send

    async def onward(messages: Sequence[Message]) -> Sequence[SendResult]:
        probe(Step.BEFORE_SEND)
        results = await send(messages)
        probe(Step.AFTER_SEND)
        return results

    engine.transport.send = onward  # type: ignore[method-assign]
    worker = engine.worker()
    stop_on_signals(worker.stop)
    await worker.run()
    await engine.aclose()


if __name__ == "__main__":
    asyncio.run(main(msgspec.json.decode(sys.argv[1], type=Orders)))
