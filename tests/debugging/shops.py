"""A shop whose handlers do everything that a handler should not, for processes that run them."""

from __future__ import annotations

SHOP = """
import asyncio, os, sys, time
from dataclasses import dataclass
from pathlib import Path

from redrive import Message, Permanent, Policy, Redrive

app = Redrive(transport="sqlite:///queue.db", store="sqlite:///redrive.db", version="1.4.2")


@dataclass
class Order:
    id: int
    price: str


@app.handler("orders")
def charge(order: Order) -> None:
    print("charging", order)
    total = int(order.price)
    assert total >= 0


@app.handler("async")
async def later(order: dict) -> None:
    await asyncio.sleep(0)
    if order["id"] == 2:
        raise Permanent("no such customer")


class Charger:
    async def __call__(self, order: Order) -> None:
        int(order.price)


app.handler("objects")(Charger())


@app.handler("batches", batch=10)
def batch(orders: list[Order]) -> None:
    for order in orders:
        int(order.price)


async def around(message: Message, call) -> None:
    Path("around.log").write_text(message.id)
    await call()


@app.handler("wrapped", around=around)
def wrapped(order: Order, message: Message) -> None:
    raise LookupError(message.id)


@app.handler("sends")
async def sends(order: dict) -> None:
    await app.send("orders", {"id": 1, "price": "1"})
    await app.send("emails", {"to": "me"}, delay="1h")


@app.handler("wild")
def wild(what: str) -> None:
    match what:
        case "exit":
            sys.exit(3)
        case "die":
            os._exit(7)
        case "kill":
            os.kill(os.getpid(), 9)
        case "segv":
            os.kill(os.getpid(), 11)
        case "hang":
            time.sleep(3600)
        case "fork":
            if os.fork() == 0:
                time.sleep(3600)
        case "fork-return":
            os.fork()
        case "print":
            print("x" * 100_000, flush=True)
            os.write(1, b"y" * 100_000)
            sys.stderr.write("z" * 100_000)
            sys.__stdout__.write("rubbish")
        case "read":
            assert sys.stdin.read() == ""
        case "chdir":
            os.chdir("/")
        case _:
            pass


@app.handler("effects")
def effects(order: dict, *, dry: bool = False) -> None:
    Path(os.environ.get("EFFECTS", "real.log")).write_text(f"dry={dry} id={order['id']}")


app.declare("emails")


def plain(body: bytes) -> None:
    raise ValueError("I am no handler of any app")
"""
