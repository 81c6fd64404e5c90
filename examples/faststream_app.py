"""A shop's events on FastStream, over RabbitMQ. One line of it is Redrive's.

faststream run examples.faststream_app:app        # in one terminal
python -m examples.faststream_app                 # in another: one order of three names no product

export REDRIVE_STORE=sqlite:///redrive.db REDRIVE_TRANSPORTS_FASTSTREAM=faststream+amqp://guest:guest@localhost/
redrive letters
touch catalogue                                   # somebody has mended the catalogue
redrive replay --all
"""

import asyncio
import os

from faststream import FastStream
from faststream.rabbit import RabbitBroker
from pydantic import BaseModel

from redrive.integrations.faststream import RedriveMiddleware

RABBITMQ = os.environ.get("RABBITMQ_URL", "amqp://guest:guest@localhost/")
QUEUE = os.environ.get("QUEUE", "orders")

broker = RabbitBroker(RABBITMQ)
broker.add_middleware(RedriveMiddleware(store="sqlite:///redrive.db"))  # that is all
app = FastStream(broker)


class Order(BaseModel):
    number: int
    product: str


def is_mended() -> bool:
    return os.path.exists("catalogue")


@broker.subscriber(QUEUE)
async def ship(order: Order) -> None:
    """Ship an order, if the catalogue knows what it is of."""
    if order.product == "?" and not is_mended():
        raise LookupError(f"order {order.number} is of nothing that we sell")
    print(f"shipped order {order.number}", flush=True)


async def main() -> None:
    async with broker:
        for number, product in ((1, "tea"), (2, "?"), (3, "milk")):
            await broker.publish(Order(number=number, product=product), QUEUE, headers={"shop": "berlin"})
            print(f"sent order {number}")


if __name__ == "__main__":
    asyncio.run(main())
