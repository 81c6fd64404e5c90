"""Tasks of a Taskiq app, on the broker and with the serializer that the environment names."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel
from taskiq import AsyncBroker, Context, SimpleRetryMiddleware, TaskiqDepends
from taskiq.kicker import AsyncKicker
from taskiq.message import BrokerMessage
from taskiq.serializers import PickleSerializer
from taskiq_aio_pika import AioPikaBroker
from taskiq_aio_pika.queue import Queue
from taskiq_redis import ListQueueBroker, RedisStreamBroker

from redrive.integrations.taskiq import RedriveMiddleware

URL, QUEUE = os.environ["BROKER_URL"], os.environ["QUEUE"]
IDLE = int(os.environ.get("IDLE", "600000"))


def made() -> AsyncBroker:
    match os.environ["BROKER"]:
        case "stream":
            waits: dict[str, Any] = {"xread_block": 100, "idle_timeout": IDLE, "unacknowledged_lock_timeout": 1.0}
            return RedisStreamBroker(URL, queue_name=QUEUE, consumer_id="0", **waits)
        case "list":
            return ListQueueBroker(URL, queue_name=QUEUE)
    return AioPikaBroker(URL, task_queues=[Queue(name=QUEUE)])


broker = made()
if os.environ.get("SERIALIZER") == "pickle":
    broker = broker.with_serializer(PickleSerializer())
# the retries come after it, as they may in somebody's app
broker.add_middlewares(RedriveMiddleware(store=os.environ["REDRIVE_STORE"], version="1.2"))
broker.add_middlewares(SimpleRetryMiddleware(default_retry_count=3, no_result_on_retry=False))


def is_mended() -> bool:
    return Path("mended").exists()


def note_done(number: int) -> None:
    Path("done").mkdir(exist_ok=True)
    (Path("done") / str(number)).touch()


class Odd(BaseModel):
    """Something that has no text."""

    number: int

    def __repr__(self) -> str:
        raise RuntimeError("no text for you")


@broker.task(task_name="pay", retry_on_error=True)
async def pay(order: int, **_: Any) -> str:
    if not is_mended():
        raise ValueError(f"no card for {order}")
    print(f"paid {order}", flush=True)
    return "paid"


@broker.task(task_name="slow", timeout=0.1)
async def slow() -> None:
    if not is_mended():
        await asyncio.sleep(600)


@broker.task(task_name="odd")
async def odd(value: Odd | str) -> None:
    raise TypeError("odd")


@broker.task(task_name="reject")
async def reject(context: Annotated[Context, TaskiqDepends()]) -> None:
    context.reject()


@broker.task(task_name="count")
async def count(number: int) -> None:
    """Done is a file; every seventh fails; all take a moment, so that a kill finds some of them running."""
    await asyncio.sleep(0.01)
    if number % 7 == 0:
        raise ValueError(f"seven {number}")
    note_done(number)


def kicked(name: str, **labels: Any) -> AsyncKicker[Any, Any]:
    return AsyncKicker(name, broker, labels)


async def kick(*words: str) -> None:
    await broker.startup()
    match words:
        case ("all",):
            await pay.kiq(7, note="x")
            await slow.kiq()
            await kicked("reject").kiq()
            await kicked("nobody.knows").kiq(1)
            await broker.kick(BrokerMessage(task_id="x", task_name="x", message=b"\xff no task", labels={}))
        case ("odd",):
            await odd.kiq(Odd(number=1))
        case ("large",):
            await odd.kiq("x" * 5_000_000)
        case ("count", number):
            for each in range(int(number)):
                await count.kiq(each)
        case (name,):
            await kicked(name, retry_on_error=True).kiq(7)
    await broker.shutdown()


if __name__ == "__main__":
    import sys

    asyncio.run(kick(*sys.argv[1:]))
