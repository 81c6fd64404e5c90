"""The way back to Node's workers, and the failed jobs of a queue for `redrive collect`.

    bullmq+redis://host:6379/0    bullmq+rediss://…    bullmq+redis+cluster://host?prefix={bull}

`prefix` is that of your queues; BullMQ's own default is `bull`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

import msgspec
from msgspec.structs import replace as changed

from redrive.clock import Clock
from redrive.drivers.redis import Value, script
from redrive.integrations.bullmq.failed import FailedJobs
from redrive.integrations.bullmq.jobs import NAME, OPTIONS, PARENT, REMOVED, note_of
from redrive.integrations.bullmq.keys import Keys, address_of
from redrive.integrations.over_redis import OverRedis
from redrive.model import Message
from redrive.transports.base import ACCEPTED, Delivery, Depth, SendResult, Settlement, refused

_SENT_FOR = int(timedelta(days=30).total_seconds())
_MOST_JOBS, _MOST_BYTES = 200, 4 << 20  # of one call of the script: Redis does nothing else meanwhile
_LOOK = 1.0
_NEVER_SEEN = "its job was deleted when it failed (removeOnFail), with its data: there is nothing to send back"
_GONE_CHILD = (
    "its job was deleted, and it was a child of a flow: its parent would not know of it. Add the flow again in your app"
)
_DONE = "its job has completed since: somebody has retried it"


class BullTransport(OverRedis):
    """Moves failed jobs back to wait. A job that was deleted since its letter was made is made anew."""

    name = "BullMQ"
    features = changed(OverRedis.features, idempotent_send=True)

    def __init__(self, url: str, clock: Clock) -> None:
        address, self.prefix = address_of(url)
        super().__init__(address)
        self._clock = clock
        self._walks: dict[str, FailedJobs] = {}
        self._leased: dict[str, int] = {}

    def keys(self, queue: str) -> Keys:
        return Keys(self.prefix, queue)

    async def send(self, messages: Sequence[Message]) -> Sequence[SendResult]:
        results: dict[int, SendResult] = {}
        for queue in dict.fromkeys(message.source for message in messages):
            numbers = [n for n, message in enumerate(messages) if message.source == queue]
            some = [messages[n] for n in numbers]
            results.update(zip(numbers, await self._send_to(queue, some), strict=True))
        return [results[number] for number in range(len(messages))]

    async def _send_to(self, queue: str, messages: Sequence[Message]) -> list[SendResult]:
        keys, found = self.keys(queue), list[SendResult]()
        names = ("failed", "completed", "wait", "paused", "prioritized", "pc", "meta", "active", "marker", "events")
        touched: list[Value] = [*(keys.base + name for name in names), keys.sent]
        for some in _chunks(messages):
            arguments: list[Value] = [keys.base, _SENT_FOR]
            for message in some:
                arguments += (message.id, note_of(message), message.body, _anew(message))
            answers = await self.link.run(script(__package__, "reprocess"), touched, arguments)
            found += [_result(message, int(answer)) for message, answer in zip(some, answers, strict=True)]
        return found

    # -- what `redrive collect` reads --------------------------------------------------------------------------------

    async def receive(self, source: str, limit: int) -> Sequence[Delivery]:
        """The failed jobs of that queue, each once for this instance. They stay where they are."""
        walk = self._walks.setdefault(source, FailedJobs(self.link, self.keys(source)))
        while not (jobs := await walk.next(limit)):
            await self._clock.sleep(_LOOK)
        self._leased[source] = self._leased.get(source, 0) + len(jobs)
        return [Delivery(job.message, job, job.failures()) for job in jobs]

    async def extend(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        return ()

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Delivery]:
        for settlement in settlements:
            self._leased[settlement.delivery.message.source] -= 1
        return ()

    async def depths(self) -> dict[str, Depth]:
        return {queue: Depth(walk.left, 0, self._leased.get(queue, 0)) for queue, walk in self._walks.items()}


def _chunks(messages: Sequence[Message]) -> Iterator[list[Message]]:
    some: list[Message] = []
    size = 0
    for message in messages:
        if some and (len(some) == _MOST_JOBS or size + len(message.body) > _MOST_BYTES):
            yield some
            some, size = [], 0
        some.append(message)
        size += len(message.body)
    if some:
        yield some


def _anew(message: Message) -> bytes:
    """The hash of a job that is made anew; empty, if it must not be."""
    if message.header(REMOVED) is not None or message.header(PARENT) is not None:
        return b""
    fields = {
        "name": (message.header(NAME) or b"").decode("utf-8", "replace"),
        "data": message.body.decode("utf-8", "replace"),
        "opts": (message.header(OPTIONS) or b"{}").decode("utf-8", "replace"),
        "timestamp": str(int(message.enqueued_at.timestamp() * 1000)),
        "priority": str(message.priority),
    }
    return msgspec.json.encode(fields)


def _result(message: Message, answer: int) -> SendResult:
    match answer:
        case -2:
            return refused(_DONE)
        case -1:
            return refused(_NEVER_SEEN if message.header(REMOVED) is not None else _GONE_CHILD)
    return ACCEPTED


def open_transport(url: str, *, clock: Clock, lease: timedelta) -> BullTransport:
    return BullTransport(url, clock)
