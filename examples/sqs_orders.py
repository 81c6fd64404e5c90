"""Orders in Amazon SQS: one is charged, one after a retry, one is buried, mended and replayed.

$ python sqs_orders.py 'sqs://?region=eu-central-1'     # your account: it makes a queue
$ python sqs_orders.py 'sqs://x:x@localhost:9324?tls=false&region=x'     # ElasticMQ on this machine
"""

from __future__ import annotations

import asyncio
import sys

from redrive import Message, Permanent, Policy, Redrive, constant
from redrive.access.actors import Actor, Role, Via
from redrive.forensics.query import Query
from redrive.service import Service
from redrive.worker import Worker

ME = Actor(id="", name="example", role=Role.ADMIN, via=Via.STORE)

ORDERS = {"1": "10.00", "2": "20.00", "3": "free"}
mended = False


def make_app(url: str) -> Redrive:
    app = Redrive(transport=url, store="memory://")

    @app.handler("redrive-orders", policy=Policy(attempts=3, backoff=constant("1s")))
    async def charge(order: dict[str, str], message: Message) -> None:
        if order["id"] == "2" and message.attempt == 1:
            raise ConnectionError("the bank does not answer")
        if order["price"] == "free" and not mended:
            raise Permanent(f"order {order['id']} has no price that is a number")
        print(f"order {order['id']} is charged (attempt {message.attempt})", flush=True)

    return app


async def until_settled(app: Redrive, number: int) -> None:
    """Wait until so many letters are there, and nothing is queued."""
    while True:
        depth = (await app.transport().depths()).get("redrive-orders")
        letters = (await app.store.letters.search(Query(), limit=10)).letters
        waiting = [letter for letter in letters if letter.state in ("retrying", "replaying")]
        if len(letters) >= number and not waiting and depth is not None and depth.total == 0:
            return
        await asyncio.sleep(0.2)


async def main(url: str) -> None:
    global mended
    app = make_app(url)
    async with app:
        worker = Worker(app)
        for id, price in ORDERS.items():
            await app.send("redrive-orders", {"id": id, "price": price}, id=f"order-{id}")
        running = asyncio.create_task(worker.run())
        await until_settled(app, 1)
        [letter] = (await app.store.letters.search(Query(), limit=10)).letters
        print(f"{letter.message.id} is buried: {letter.last.message}", flush=True)
        mended = True
        service = Service(app)
        await service.run_replay((await service.replay(Query(), every=True, actor=ME)).id)
        await until_settled(app, 1)
        [letter] = (await app.store.letters.search(Query(), limit=10)).letters
        print(f"{letter.message.id} is {letter.state}", flush=True)
        worker.stop()
        await running


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "sqs://"))
