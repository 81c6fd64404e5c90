"""What waits at a broker says nothing of a secret; the letter in the store has the error as it was."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from redrive import Policy, Redrive, immediate
from redrive.clock import SystemClock
from redrive.forensics.failures import FailureMask
from redrive.forensics.query import Query
from redrive.forensics.redact import Redactor
from redrive.model import Failure, Retry
from redrive.telemetry.events import Event, MessageBuried
from redrive.testing.builders import make_failure, make_letter, make_message
from redrive.transports.base import Delivery, Settlement
from redrive.transports.kafka.dlq import record_of
from redrive.transports.memory import MemoryTransport
from redrive.transports.rabbitmq.dead_letter_queues import parcel_of
from redrive.transports.rabbitmq.wire import story
from redrive.worker import Worker

SECRET = "S3cr3t" + "HunterXq9Zw7"


class Remembering(MemoryTransport):
    """Keeps what it is told to keep with a message."""

    def __init__(self) -> None:
        super().__init__(clock=SystemClock(), lease=timedelta(seconds=30))
        self.kept: list[Failure] = []

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Delivery]:
        self.kept += [given.failure for given in settlements if isinstance(given.outcome, Retry) and given.failure]
        return await super().settle(settlements)


async def test_a_retry_carries_no_secret_of_its_error() -> None:
    transport = Remembering()
    app = Redrive(transport=transport, store="memory://")

    @app.handler("orders", policy=Policy(attempts=2, backoff=immediate()))
    async def charge(order: dict[str, int]) -> None:
        raise RuntimeError(f"password: {SECRET}")

    async with app:
        await app.send("orders", {"id": 1})
        worker = Worker(app, upkeep=False)

        def watch(event: Event) -> None:
            if isinstance(event, MessageBuried):
                worker.stop()

        app.events.subscribe(watch)
        async with asyncio.timeout(60):
            await worker.run()
        [letter] = (await app.store.letters.search(Query())).letters
    assert len(transport.kept) == 1
    assert SECRET not in transport.kept[0].message + transport.kept[0].stack
    assert "RuntimeError" in transport.kept[0].stack
    assert letter.last.message == f"password: {SECRET}"


def test_headers_and_dead_letters_of_brokers() -> None:
    failure = make_failure(message=f"password: {SECRET}", stack=f"Traceback\nRuntimeError: password: {SECRET}\n")
    letter = make_letter(message=make_message(), failures=(failure,))
    mask = FailureMask(Redactor())
    assert SECRET.encode() in story([failure])
    assert SECRET.encode() not in story([mask.failure(failure)])
    assert SECRET not in repr(mask.letter(letter).failures)
    assert mask.letter(letter).message is letter.message
    for of in (lambda dead: record_of(dead, "orders.dlq").headers, lambda dead: parcel_of(dead).properties.headers):
        assert SECRET in str(of(letter))
        assert SECRET not in str(of(mask.letter(letter)))
