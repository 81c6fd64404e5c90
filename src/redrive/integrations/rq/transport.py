"""The way back into RQ's queues, `rq+redis://`, and FailedJobRegistry for `redrive collect`.

    rq:job:{id}       the job            rq:job:{id}:dependents, rq:job:{id}:dependencies
    rq:queue:{name}   ids that wait      rq:queues   all queues
    rq:failed:{name}  ids of failed jobs, by when RQ forgets them
    rq:results:{id}   a stream of results: the last one has the traceback

A job keeps its id, its data, its callbacks and its dependents. What is read from Redis is never unpickled. A failed job
stays in its registry until its letter is durable; the job itself stays, for its replay.
"""

from __future__ import annotations

import asyncio
import zlib
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Sequence
from datetime import UTC, timedelta

from msgspec import Struct

from redrive.clock import Clock
from redrive.drivers.redis import Link, Script, Value, script
from redrive.drivers.redis import doubts as doubts_of
from redrive.errors import TransportUnavailable
from redrive.flow.lineage import LETTER
from redrive.integrations.rq.fields import LINEAGE, fields_of, job_fields, message_of
from redrive.model import Done, Message
from redrive.transports.base import ACCEPTED, Delivery, Depth, Features, SendResult, Settlement, refused

_SCHEME = "rq+"
_POLL = 0.5  # seconds between looks at a registry that is empty
_AT_ONCE = 500
_TIME = "%Y-%m-%dT%H:%M:%S.%fZ"  # as RQ writes it
_LONGEST_ID = 512


class Failed(Struct, frozen=True):
    """A failed job as it lies in Redis."""

    id: str
    fields: dict[str, bytes]
    traceback: str


class Doubt(Struct, frozen=True):
    """What is wrong with the server."""

    text: str
    mend: str
    is_failure: bool = False


class RqTransport:
    """Queues of RQ."""

    features = Features(
        durable=True,
        native_delay=False,
        counts_attempts=False,
        keeps_history=False,
        ordered_by="none",
        idempotent_send=True,
        shared=True,
        urgent_first=False,
    )

    def __init__(self, url: str, *, clock: Clock) -> None:
        self._link = Link(url, unavailable=TransportUnavailable)
        self._clock = clock
        self._held: dict[str, set[str]] = {}  # what was received and not settled, by queue
        self._sent: set[str] = set()

    # -- sending ------------------------------------------------------------------------------------------------------

    async def send(self, messages: Sequence[Message]) -> Sequence[SendResult]:
        answers: list[bytes] = []
        now = self._clock.now().astimezone(UTC).strftime(_TIME)
        for first in range(0, len(messages), _AT_ONCE):
            calls = [_call(message, now) for message in messages[first : first + _AT_ONCE]]
            answers += await self._link.run_all(_requeue(), calls)
        self._sent |= {message.source for message in messages}
        return [_result(answer.decode()) for answer in answers]

    # -- collecting ---------------------------------------------------------------------------------------------------

    async def receive(self, source: str, limit: int) -> Sequence[Delivery]:
        held = self._held.setdefault(source, set())
        while True:
            ids = await self._link.command("ZRANGE", f"rq:failed:{source}", 0, limit + len(held) - 1)
            wanted = [name for id in ids if (name := id.decode("utf-8", "surrogateescape")) not in held]
            found = await self._failed(source, wanted[:limit]) if wanted else []
            if found:
                held |= {job.id for job in found}
                return [Delivery(_message(job, source), job) for job in found]
            await asyncio.sleep(_POLL)

    async def _failed(self, source: str, ids: Sequence[str]) -> list[Failed]:
        """The jobs of these ids; a registry forgets those that are gone."""
        asked: list[tuple[Value, ...]] = [("HGETALL", _job(id)) for id in ids]
        asked += [("XREVRANGE", f"rq:results:{id}", "+", "-", "COUNT", 1) for id in ids]
        answers = await self._link.commands(asked)
        jobs, results = answers[: len(ids)], answers[len(ids) :]
        gone = [id for id, job in zip(ids, jobs, strict=True) if not job]
        if gone:
            await self._link.command("ZREM", f"rq:failed:{source}", *gone)
        found = []
        for id, job, result in zip(ids, jobs, results, strict=True):
            if job:
                fields = fields_of(dict(job) if isinstance(job, dict) else dict(zip(job[::2], job[1::2], strict=True)))
                found.append(Failed(id, fields, _traceback(fields, result)))
        return found

    async def extend(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        return ()

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Delivery]:
        """What is done leaves the registry, and the job stays; everything else is received again."""
        done = [settlement.delivery for settlement in settlements if isinstance(settlement.outcome, Done)]
        if done:
            await self._link.commands([("ZREM", f"rq:failed:{each.message.source}", each.token.id) for each in done])
        for settlement in settlements:
            self._held.get(settlement.delivery.message.source, set()).discard(settlement.delivery.token.id)
        return ()

    # -- the rest -----------------------------------------------------------------------------------------------------

    async def depths(self) -> dict[str, Depth]:
        """Of what was sent to or received from by this instance; of the latter, the failed jobs."""
        found: dict[str, Depth] = {}
        for queue in self._sent:
            asked = [("LLEN", _queue(queue)), ("ZCARD", f"rq:scheduled:{queue}"), ("ZCARD", f"rq:wip:{queue}")]
            ready, delayed, leased = map(int, await self._link.commands(asked))
            found[queue] = Depth(ready, delayed, leased)
        for queue in self._held:
            failed = int(await self._link.command("ZCARD", f"rq:failed:{queue}"))
            found[queue] = Depth(ready=failed, delayed=0, leased=0)
        return found

    async def queues(self) -> list[str]:
        """The names of all queues."""
        keys = await self._link.command("SMEMBERS", "rq:queues")
        return sorted(key.decode("utf-8", "replace").removeprefix("rq:queue:") for key in keys)

    async def failed(self, queue: str, sample: int = 100) -> tuple[int, list[dict[str, bytes]]]:
        """How many failed jobs lie there, and the fields of some."""
        count = int(await self._link.command("ZCARD", f"rq:failed:{queue}"))
        ids = await self._link.command("ZRANGE", f"rq:failed:{queue}", 0, sample - 1)
        found = await self._failed(queue, [id.decode("utf-8", "surrogateescape") for id in ids]) if ids else []
        return count, [job.fields for job in found]

    async def check(self) -> None:
        await self._link.command("PING")

    async def doubts(self) -> Sequence[Doubt]:
        """How its server could lose jobs."""
        infos = await self._link.infos()
        return [Doubt(doubt.text, doubt.mend) for info in infos.values() for doubt in doubts_of(info)]

    async def aclose(self) -> None:
        await self._link.aclose()


def _requeue() -> Script:
    return script("redrive.integrations.rq", "requeue")


def _call(message: Message, now: str) -> tuple[list[Value], list[Value]]:
    lineage = [part for name, value in message.headers if name in LINEAGE for part in (name, value)]
    if message.header(LETTER) is None:
        lineage = []
    fields = [part for pair in job_fields(message).items() for part in pair]
    job = _job(message.id)
    keys: list[Value] = [
        job,
        f"rq:failed:{message.source}",
        _queue(message.source),
        "rq:queues",
        f"{job}:dependents",
        f"{job}:dependencies",
    ]
    return keys, [message.id, now, len(lineage), *lineage, *fields]


def _result(answer: str) -> SendResult:
    match answer:
        case "finished":
            return refused("the job has finished since: there is nothing to run again")
        case "canceled":
            return refused("the job was canceled since: delete the letter, or enqueue the job anew")
    return ACCEPTED


def _message(job: Failed, source: str) -> Message:
    return message_of(job.id, {**job.fields, "origin": source.encode()})


def _traceback(fields: dict[str, bytes], results: Sequence[tuple[bytes, object]]) -> str:
    """What the last result says of the failure, or, of older versions, the job."""
    payload = results[0][1] if results else {}
    pairs = payload if isinstance(payload, dict) else dict(zip(payload[::2], payload[1::2], strict=True))  # type: ignore[index]
    try:
        said = zlib.decompress(b64decode(pairs.get(b"exc_string", b"")))
    except (zlib.error, Base64Error, ValueError):
        said = b""
    if not said and fields.get("exc_info"):
        try:
            said = zlib.decompress(fields["exc_info"])
        except zlib.error:
            said = fields["exc_info"]
    return said.decode("utf-8", "replace")


def _job(id: str) -> str:
    return f"rq:job:{id}"


def _queue(name: str) -> str:
    return f"rq:queue:{name}"


def open_transport(url: str, *, clock: Clock, lease: timedelta) -> RqTransport:
    """`rq+redis://user:password@host/0`."""
    return RqTransport(url.removeprefix(_SCHEME), clock=clock)
