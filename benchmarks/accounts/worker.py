"""One worker, to be killed: `python -m benchmarks.accounts.worker '<JSON of Orders>'`. SIGTERM ends it cleanly."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import msgspec
from msgspec.structs import replace

from benchmarks.accounts.orders import EFFECTS, LEASE, Orders, fails_once, is_hopeless, line
from redrive import Message, Permanent, Policy, Redrive, constant
from redrive.config.settings import Settings
from redrive.worker import run


def app_of(orders: Orders) -> Redrive:
    """The app of the accounts; each run of its handler is in the log before anything else happens."""
    settings = replace(Settings(), worker="accounts", lease=LEASE, batch=orders.batch, concurrency=orders.concurrency)
    app = Redrive(transport=orders.url, store=orders.store, settings=settings)
    log = os.open(orders.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def done(number: int, message: Message) -> None:
        os.write(log, line(number, orders.life))
        if orders.seconds:
            await asyncio.sleep(orders.seconds)
        if is_hopeless(number):
            raise Permanent("never")
        if fails_once(number) and message.attempt == 1:
            raise ConnectionError("once")

    async def handle(number: int, message: Message) -> None:
        await done(number, message)

    async def write(number: int, message: Message, connection: Any) -> None:
        await connection.execute(f"INSERT INTO {EFFECTS} VALUES (%s)", (number,))
        await done(number, message)

    policy = Policy(attempts=20, backoff=constant("100ms"))
    handler = write if orders.exactly_once else handle
    app.handler(orders.source, policy=policy, exactly_once=orders.exactly_once)(handler)
    return app


if __name__ == "__main__":
    run(app_of(msgspec.json.decode(sys.argv[1], type=Orders)))
