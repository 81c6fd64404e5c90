"""A shop's tasks on Taskiq, over a stream of Redis. One line of it is Redrive's.

taskiq worker examples.taskiq_app:broker          # in one terminal
python -m examples.taskiq_app                     # in another: one order of three has a card that is declined

export REDRIVE_STORE=sqlite:///redrive.db REDRIVE_TRANSPORTS_TASKIQ=taskiq+redis://localhost:6379
redrive letters
touch paid                                        # the bank has called back
redrive replay --all
"""

import asyncio
import os

from taskiq import SimpleRetryMiddleware
from taskiq_redis import RedisStreamBroker

from redrive.integrations.taskiq import RedriveMiddleware

REDIS = os.environ.get("REDIS_URL", "redis://localhost:6379")

broker = RedisStreamBroker(url=REDIS, queue_name=os.environ.get("QUEUE", "taskiq"))
broker.add_middlewares(SimpleRetryMiddleware(default_retry_count=3))
broker.add_middlewares(RedriveMiddleware(store="sqlite:///redrive.db"))  # that is all


class Declined(Exception):
    """The bank says no."""


def called_back() -> bool:
    return os.path.exists("paid")


@broker.task(task_name="charge", retry_on_error=True)
async def charge(order: int, cents: int) -> str:
    """Charge an order. The bank declines every third, until it is called."""
    if order % 3 == 0 and not called_back():
        raise Declined(f"card of order {order} was declined")
    return f"charged {cents} for order {order}"


async def main() -> None:
    await broker.startup()
    for order in (1, 2, 3):
        await charge.kiq(order, cents=999)
        print(f"sent order {order}")
    await broker.shutdown()


if __name__ == "__main__":
    asyncio.run(main())
