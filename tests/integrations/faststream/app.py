"""Handlers of a FastStream app, on the broker that the environment names."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from faststream import AckPolicy, FastStream
from faststream.exceptions import AckMessage, NackMessage, RejectMessage

from redrive.integrations.faststream import RedriveMiddleware

KIND, URL, QUEUE = os.environ["BROKER"], os.environ["BROKER_URL"], os.environ["QUEUE"]


def is_mended() -> bool:
    return Path("mended").exists()


def made() -> tuple[Any, Any, Any]:
    """The broker, a subscriber, and what publishes to it."""
    if KIND == "amqp":
        from faststream.rabbit import RabbitBroker

        rabbit = RabbitBroker(URL)
        return rabbit, rabbit.subscriber(QUEUE), {"queue": QUEUE}
    if KIND == "aiokafka":
        from faststream.kafka import KafkaBroker

        kafka = KafkaBroker(URL)
        return kafka, kafka.subscriber(QUEUE, auto_offset_reset="earliest", group_id=QUEUE), {"topic": QUEUE}
    if KIND == "confluent":
        from faststream.confluent import KafkaBroker as Confluent

        confluent = Confluent(URL)
        given: dict[str, Any] = {
            "group_id": QUEUE,
            "auto_offset_reset": "earliest",
            "ack_policy": AckPolicy.REJECT_ON_ERROR,
        }
        return confluent, confluent.subscriber(QUEUE, **given), {"topic": QUEUE}
    from faststream.redis import RedisBroker, StreamSub

    redis = RedisBroker(URL)
    if KIND == "stream":
        stream = StreamSub(QUEUE, group="workers", consumer="one", polling_interval=50)
        return redis, redis.subscriber(stream=stream), {"stream": QUEUE}
    return redis, redis.subscriber(list=QUEUE), {"list": QUEUE}


broker, subscriber, to = made()
broker.add_middleware(RedriveMiddleware(store=os.environ["REDRIVE_STORE"]))
app = FastStream(broker)


@subscriber  # type: ignore[untyped-decorator]
async def handle(order: dict[str, Any]) -> None:
    number = order["number"]
    if not is_mended():
        match order.get("ends"):
            case "fails":
                raise ValueError(f"no card for {number}")
            case "rejects":
                raise RejectMessage()
            case "acks":
                raise AckMessage()
            case "nacks" if KIND == "amqp":
                await asyncio.sleep(0.05)
                raise NackMessage()
    print(f"handled {number}", flush=True)


@app.after_startup
async def started() -> None:
    print("started", flush=True)


async def publish(*words: str) -> None:
    if words[0] == "large":
        await _publish({"number": 5, "ends": "fails", "more": "x" * 900_000})
        return
    for number, ends in enumerate(words, 1):
        if ends == "rubbish":
            await _publish(b"\xff rubbish")
        else:
            await _publish({"number": number, "ends": ends})


async def _publish(body: Any) -> None:
    async with broker:
        await broker.publish(body, **to, headers={"shop": "berlin"}, correlation_id="c1")


if __name__ == "__main__":
    asyncio.run(publish(*sys.argv[1:]))
