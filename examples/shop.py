"""A whole consumer: orders are charged, retried when the gateway hiccups, and kept when they can never succeed.

python shop.py              sends three orders
redrive run shop:app        handles them, until Ctrl-C
redrive groups              why one of them died
"""

import asyncio
from dataclasses import dataclass

from redrive import Message, Permanent, Policy, Redrive, exponential

app = Redrive()  # embedded: one SQLite file, redrive.db, holds queue and letters


@dataclass
class Order:
    id: int
    amount: float


@app.handler("orders", policy=Policy(attempts=5, backoff=exponential("1s", cap="60s", jitter=0.25)))
async def charge(order: Order, message: Message) -> None:
    if order.amount <= 0:
        raise Permanent(f"an order of {order.amount} cannot be charged")
    if order.id == 2 and message.attempt == 1:
        raise ConnectionError("the card gateway did not answer")
    print(f"charged order {order.id} at attempt {message.attempt}", flush=True)


async def main() -> None:
    async with app:
        for order in (Order(1, 9.5), Order(2, 20.0), Order(3, -4.0)):
            id = await app.send("orders", order, key="customer-7", tenant="acme")
            print(f"sent order {order.id} as {id}")


if __name__ == "__main__":
    asyncio.run(main())
