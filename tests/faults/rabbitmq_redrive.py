"""A re-drive in a process of its own that is killed at a moment of it, and where everything is afterwards.

Started as `python -m tests.faults.rabbitmq_redrive URL MOMENT`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import timedelta
from enum import StrEnum
from pathlib import Path

from msgspec import Struct

from redrive.clock import SystemClock
from redrive.model import Done
from redrive.testing.builders import make_failure, make_letter, make_message
from redrive.testing.waiting import until
from redrive.transports.base import Settlement
from redrive.transports.rabbitmq import redrive as redriving
from redrive.transports.rabbitmq.dead_letter_queues import parcel_of
from redrive.transports.rabbitmq.declaring import Declaring
from redrive.transports.rabbitmq.link import Link
from redrive.transports.rabbitmq.options import options_of
from redrive.transports.rabbitmq.publisher import Outcomes, Parcel, Publisher
from redrive.transports.rabbitmq.redrive import ID, DeadMessages
from redrive.transports.rabbitmq.topology import dlq_queue
from redrive.transports.rabbitmq.transport import open_transport

ROOT = Path(__file__).parents[2]
SOURCE = "orders"
NEVER = "never"
BATCH = 100  # smaller than usual, so that there are many. It is all that is sent ahead: the acks may not have been read


class Moment(StrEnum):
    """Of the second step of a re-drive."""

    BEFORE_PUBLISH = "before publish"
    AFTER_PUBLISH = "after publish"
    AFTER_ACK = "after ack"


class Account(Struct, frozen=True):
    """What came back to the queue."""

    sent: frozenset[str]
    came: Counter[str]
    left_parked: int
    kills: int
    at_risk: int  # in each kill
    told_apart: bool

    @property
    def repeated(self) -> int:
        return self.came.total() - len(self.came)


async def account_of_kills(url: str, moment: Moment, *, number: int, kills: int) -> Account:
    """Park so many, re-drive them with processes that die, then with one that does not, and take what came back."""
    sent = await _park(url, number)
    died = 0
    for _ in range(kills):
        died += await _redrive(url, moment) == -signal.SIGKILL
    assert await _redrive(url, NEVER) == 0
    came, ids = await _take(url, sent)
    told_apart = all(len(found) == 1 for found in ids.values())
    return Account(sent, came, await _parked(url), died, BATCH, told_apart)


async def _park(url: str, number: int) -> frozenset[str]:
    options = options_of(url)
    link = Link(options)
    await Declaring(link, options).ensure(SOURCE)
    messages = [make_message(id=f"m-{n:06}", source=SOURCE) for n in range(number)]
    await Publisher(link, timedelta(minutes=5)).publish(
        [parcel_of(make_letter(one, make_failure())) for one in messages]
    )
    await link.aclose()
    return frozenset(one.id for one in messages)


async def _redrive(url: str, moment: str) -> int:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.faults.rabbitmq_redrive", url, moment, cwd=ROOT
    )
    code = await asyncio.wait_for(process.wait(), 300)
    await _until_let_go(url)
    return code


async def _until_let_go(url: str) -> None:
    """The broker has noticed that it is gone, and taken back what it held: it does both in one step."""
    link = Link(options_of(url))
    channel = await link.channel()

    async def is_free() -> bool:
        frame = await channel.call(channel.raw.queue_declare, dlq_queue(SOURCE), passive=True)
        return bool(frame.method.consumer_count == 0)

    await until(is_free, what="nobody consumes", timeout=60)
    await link.aclose()


async def _take(url: str, sent: frozenset[str]) -> tuple[Counter[str], dict[str, set[bytes | None]]]:
    """Everything that is in the queue or waits to be, once each of them was seen."""
    transport = open_transport(url, clock=SystemClock(), lease=timedelta(minutes=5))
    came: Counter[str] = Counter()
    ids: dict[str, set[bytes | None]] = defaultdict(set)
    while len(came) < len(sent) or (await transport.depths())[SOURCE].total:
        some = await asyncio.wait_for(transport.receive(SOURCE, 1000), 60)
        for one in some:
            came[one.message.id] += 1
            ids[one.message.id].add(one.message.header(ID))
        await transport.settle([Settlement(one, Done()) for one in some])
    await transport.aclose()
    return came, ids


async def _parked(url: str) -> int:
    parkings = DeadMessages(options_of(url), SystemClock())
    found = await parkings.count(dlq_queue(SOURCE))
    await parkings.aclose()
    return found or 0


# -- in the process that dies -----------------------------------------------------------------------------------------


class _Deadly(Publisher):
    """Dies before or after it published its second step."""

    moment = NEVER
    batches = 0

    async def outcomes(self, parcels: Sequence[Parcel]) -> Outcomes:
        self.batches += 1
        is_second = self.batches == 2
        if is_second and self.moment == Moment.BEFORE_PUBLISH:
            _die()
        found = await super().outcomes(parcels)
        if is_second and self.moment == Moment.AFTER_PUBLISH:
            _die()
        return found


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


async def main(url: str, moment: str) -> None:
    _Deadly.moment = moment
    setattr(redriving, "Publisher", _Deadly)  # noqa: B010
    parkings = DeadMessages(options_of(url), SystemClock(), batch=BATCH)

    def progress(sent: int, _: int) -> None:
        if moment == Moment.AFTER_ACK and sent > BATCH:
            _die()

    await parkings.redrive(SOURCE, limit=1_000_000, by="test", progress=progress)
    await parkings.aclose()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
