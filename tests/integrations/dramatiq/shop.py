"""An app of Dramatiq as a user has it: its broker, its actors, and one line of ours. Run by `dramatiq`."""

import os
import time
from pathlib import Path

import dramatiq
from dramatiq.brokers.rabbitmq import RabbitmqBroker
from dramatiq.brokers.redis import RedisBroker
from dramatiq.encoder import PickleEncoder
from dramatiq.middleware import GroupCallbacks
from dramatiq.rate_limits.backends import RedisBackend as Barriers
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend

from redrive.integrations.dramatiq import RedriveDramatiq

URL, PLACE = os.environ["BROKER"], Path(os.environ["PLACE"])
QUEUE = os.environ["QUEUE"]
broker: dramatiq.Broker = RedisBroker(url=URL) if URL.startswith("redis") else RabbitmqBroker(url=URL)
if "RESULTS" in os.environ:
    broker.add_middleware(Results(backend=RedisBackend(url=os.environ["RESULTS"])))
    broker.add_middleware(GroupCallbacks(Barriers(url=os.environ["RESULTS"])))
broker.add_middleware(RedriveDramatiq(store=os.environ["STORE"], spool=PLACE / "spool", fsync=False))  # the one line
if "PICKLE" in os.environ:
    dramatiq.set_encoder(PickleEncoder())
dramatiq.set_broker(broker)


def mended() -> bool:
    return (PLACE / "mended").exists()


class NoRepr:
    """An argument that cannot be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


@dramatiq.actor(queue_name=QUEUE, max_retries=2, min_backoff=1, max_backoff=2)
def charge(order: str, amount: int = 0) -> str:
    if not mended():
        raise ConnectionError(f"the bank does not answer for {order}")
    with (PLACE / "done").open("a") as done:
        done.write(f"{order}\n")
    return f"{order} paid"


@dramatiq.actor(queue_name=QUEUE, max_retries=0)
def confirm(text: str) -> None:
    with (PLACE / "confirmed").open("a") as done:
        done.write(f"{text}\n")


@dramatiq.actor(queue_name=QUEUE, throws=ValueError)
def refuse(order: str) -> None:
    raise ValueError(f"{order} is no order")


@dramatiq.actor(queue_name=QUEUE, max_retries=0, time_limit=100)
def hang() -> None:
    while not mended():
        time.sleep(0.01)


@dramatiq.actor(queue_name=QUEUE, max_retries=0)
def show(anything: object) -> None:
    if not mended():
        raise RuntimeError("nothing can be shown")


@dramatiq.actor(queue_name=QUEUE, max_retries=1, min_backoff=1, max_backoff=2)
def spoil(numbers: list[object]) -> None:
    numbers.append(object())  # no encoder can say it: Dramatiq cannot enqueue the retry, and forgets the message
    raise RuntimeError("spoiled")


@dramatiq.actor(queue_name=QUEUE, max_retries=0)
def work(number: int) -> None:
    """Some fail, some take their time: for the account."""
    if number % 5 == 0 and not mended():
        raise RuntimeError("a fifth fails")
    time.sleep(0.002)
    with (PLACE / "worked").open("a") as done:
        done.write(f"{number}\n")
