"""Follows the events of queues: a job that fails is a letter at once, and one whose replay succeeds resolves it.

BullMQ trims its events (10,000 by default), so each queue is also swept: whatever is among its failed jobs and was not
seen becomes a letter then. To see something twice changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from redrive.clock import Clock, Pause
from redrive.errors import TransportUnavailable
from redrive.integrations.bullmq.failed import FailedJobs, jobs_of
from redrive.integrations.bullmq.jobs import Job, lineage_of
from redrive.integrations.bullmq.keys import GROUP, Keys, fields_of
from redrive.integrations.bullmq.transport import BullTransport
from redrive.integrations.reporter import Reporter
from redrive.model import Message

log = logging.getLogger("redrive")
_CONSUMER = "watch"
_AT_ONCE = 500
_BLOCK = 2_000  # milliseconds
_SWEEP = 30.0  # seconds
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.2, 10.0


class NotKept(Exception):
    """The disk takes no letters now: nothing is acknowledged."""


class Event(Struct, frozen=True):
    """Something that happened to a job."""

    id: bytes  # of its entry in the stream
    name: str
    job: str
    reason: str


class Watcher:
    """Follows one queue until it is stopped.

    name   of the transport that the letters go back through
    """

    def __init__(self, transport: BullTransport, queue: str, reporter: Reporter, clock: Clock, name: str) -> None:
        self._transport = transport
        self._link = transport.link
        self._keys: Keys = transport.keys(queue)
        self._reporter = reporter
        self._clock = clock
        self._name = name
        self._stopping = asyncio.Event()
        self._walk = FailedJobs(self._link, self._keys)
        self._swept_at: float | None = None

    def stop(self) -> None:
        self._stopping.set()

    async def run(self) -> None:
        """Follow; a Redis that is away is waited for."""
        pause = Pause(_SHORTEST_PAUSE, _LONGEST_PAUSE)
        while not self._stopping.is_set():
            try:
                await self._follow(pause)
            except (TransportUnavailable, NotKept) as error:
                log.warning("queue %s is not followed now: %s", self._keys.queue, error)
                self._swept_at = None
                await self._clock.wait(self._stopping, pause.next())

    async def sweep(self) -> int:
        """Make letters of the failed jobs that were not seen yet, and resolve what is done; returns how many died."""
        died = 0
        while jobs := await self._walk.next(_AT_ONCE):
            await self._bury(jobs)
            died += len(jobs)
        await self._resolve_unseen()
        self._swept_at = self._clock.elapsed()
        return died

    async def _follow(self, pause: Pause) -> None:
        await self._join()
        while events := await self._read("0"):  # what was read before a crash, and not acknowledged
            await self._handle(events)
        while not self._stopping.is_set():
            if self._swept_at is None or self._clock.elapsed() - self._swept_at > _SWEEP:
                await self.sweep()
            pause.reset()
            if events := await self._read(">"):
                await self._handle(events)

    async def _join(self) -> None:
        """Begin at what happens from now on; the sweep sees what was before."""
        try:
            await self._link.command("XGROUP", "CREATE", self._keys.events, GROUP, "$", "MKSTREAM")
        except TransportUnavailable as error:
            if "BUSYGROUP" not in str(error):
                raise

    async def _read(self, after: str) -> list[Event]:
        block = () if after != ">" else ("BLOCK", _BLOCK)
        who = ("GROUP", GROUP, _CONSUMER, "COUNT", _AT_ONCE)
        answer = await self._link.command("XREADGROUP", *who, *block, "STREAMS", self._keys.events, after)
        return [_event(entry) for entry in _entries(answer)]

    async def _handle(self, events: Sequence[Event]) -> None:
        """Report what matters of these, and acknowledge all of them then."""
        reasons = {event.job: event.reason for event in events if event.name == "failed"}
        died = await self._still_failed(reasons)
        await self._bury(died)
        await self._resolve([event.job for event in events if event.name == "completed"])
        await self._link.command("XACK", self._keys.events, GROUP, *(event.id for event in events))

    async def _still_failed(self, reasons: Mapping[str, str]) -> list[Job]:
        """Those of them that are failed now, or gone: another may have been retried meanwhile."""
        ids = list(reasons)
        jobs = await jobs_of(self._link, self._keys, ids, reasons)
        scores = await self._link.commands([("ZSCORE", self._keys.failed, id) for id in ids]) if ids else []
        now = self._clock.now()
        return [
            job if job.fields else Job(job.queue, job.id, {}, sent=job.sent, reason=job.reason, at=now)
            for job, score in zip(jobs, scores, strict=True)
            if score is not None or not job.fields
        ]

    async def _bury(self, jobs: Sequence[Job]) -> None:
        now = self._clock.now()
        letters = [job.letter(transport=self._name, now=now, watched=True) for job in jobs]
        kept = await asyncio.to_thread(lambda: [self._reporter.died(letter) for letter in letters])
        if not all(kept):
            raise NotKept(f"{kept.count(False)} letters could not be written to {self._reporter.directory}")
        await self._forget([job.id for job in jobs if job.sent is not None])

    async def _resolve(self, ids: Sequence[str]) -> None:
        """Resolve the letters of those that were sent back."""
        if not ids:
            return
        notes = await self._link.command("HMGET", self._keys.sent, *ids)
        sent = {id: note for id, note in zip(ids, notes, strict=True) if note is not None}
        for id, note in sent.items():
            message = Message(id, self._keys.queue, b"", self._clock.now(), lineage_of(self._keys.queue, id, note))
            await asyncio.to_thread(self._reporter.succeeded, message)
        await self._forget(list(sent))

    async def _resolve_unseen(self) -> None:
        """Resolve what was sent back and is done, and of which no event was left to be read."""
        ids = [id.decode("utf-8", "replace") for id in await self._link.command("HKEYS", self._keys.sent)]
        done = await self._link.commands([("ZSCORE", f"{self._keys.base}completed", id) for id in ids]) if ids else []
        await self._resolve([id for id, score in zip(ids, done, strict=True) if score is not None])

    async def _forget(self, ids: Sequence[str]) -> None:
        if ids:
            await self._link.command("HDEL", self._keys.sent, *ids)


def _entries(answer: Any) -> Sequence[Any]:
    if not answer:
        return ()
    streams = answer.values() if isinstance(answer, Mapping) else [entries for _, entries in answer]
    return [entry for entries in streams for entry in entries]


def _event(entry: Any) -> Event:
    id, flat = entry
    fields = fields_of(flat or ())
    said = {name: fields.get(name, b"").decode("utf-8", "replace") for name in ("event", "jobId", "failedReason")}
    return Event(id, said["event"], said["jobId"], said["failedReason"])
