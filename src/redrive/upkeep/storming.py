"""Beside a worker: sees which of its sources are in a storm, and probes them (flow/storm.py).

Of all workers one probes at a time: it writes its name into the storm, over the version that it has read, and renews
that while it waits for a message. Who sees the same version for too long takes over. All waits are measured on a
worker's own steady clock from when it first saw a version, so that no two clocks need to agree.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from redrive.clock import Clock
from redrive.errors import Unavailable
from redrive.flow.receive import Consumer
from redrive.flow.storm import Finished, StormState, after_probe
from redrive.flow.storms import KIND, StormGuard, body_of, storms
from redrive.stores.base import Document, Documents
from redrive.telemetry.events import Events, SourceStormed, StormEnded, StormProbed
from redrive.upkeep.heartbeat import EVERY, Heartbeat, beats
from redrive.upkeep.pausing import PauseWatch

if TYPE_CHECKING:
    from redrive.app import Redrive

log = logging.getLogger("redrive")
_EVERY = 0.5  # seconds between two looks
_RENEW = 3.0  # seconds after which a prober says again that it is at it
_LEASE = 15.0  # seconds after which one that says nothing is replaced
_FRESH = 3 * EVERY.total_seconds()  # beats of workers that are older count nothing


class Others:
    """What the other workers of a source have finished, as their heartbeats tell."""

    def __init__(self, documents: Documents, clock: Clock, guard: StormGuard, own: str) -> None:
        self._documents = documents
        self._clock = clock
        self._guard = guard
        self._own = own
        self._seen: dict[str, tuple[int, float]] = {}  # the number of a worker's last beat, and since when we know it

    async def __call__(self) -> Finished:
        total, now = Finished(), self._clock.elapsed()
        for id, (number, beat) in (await beats(self._documents)).items():
            if self._seen.get(id, (None,))[0] != number:
                age = (self._clock.now() - beat.at).total_seconds()
                is_old = id not in self._seen and age > _FRESH  # one that was killed, or whose clock is wrong
                self._seen[id] = number, now - (_FRESH if is_old else 0.0)
            if id == self._own or now - self._seen[id][1] >= _FRESH:
                continue
            for working in beat.sources:
                if (working.transport, working.source) == (self._guard.transport, self._guard.source):
                    total = total.and_(Finished(working.done, working.buried))
        return total


class StormWatch:
    """Looks twice a second, with one small question to the store, for as long as a source has a guard."""

    def __init__(
        self,
        documents: Documents,
        clock: Clock,
        events: Events,
        consumers: Mapping[str, Consumer],
        pauses: PauseWatch,
        name: str,
    ) -> None:
        self._documents = documents
        self._clock = clock
        self._events = events
        self._guarded = [
            (consumer, consumer.context.storm) for consumer in consumers.values() if consumer.context.storm is not None
        ]
        self._pauses = pauses
        self._name = name
        self._seen: dict[str, tuple[int, float]] = {}  # the version of a storm, and since when we know it
        self._probing: dict[str, asyncio.Task[None]] = {}

    @classmethod
    def of(
        cls, app: Redrive, consumers: Mapping[str, Consumer], pauses: PauseWatch, heartbeat: Heartbeat
    ) -> StormWatch:
        watch = cls(app.store.documents, app.clock, app.events, consumers, pauses, heartbeat.id)
        for _, guard in watch._guarded:
            guard.others = Others(app.store.documents, app.clock, guard, heartbeat.id)
        return watch

    async def begin(self) -> None:
        """Look before anything is received."""
        if self._guarded:
            await self._look()

    async def run(self) -> None:
        """Look again and again, until it is cancelled."""
        try:
            while self._guarded:
                await self._clock.sleep(_EVERY)
                await self._look()
        finally:
            for task in self._probing.values():
                task.cancel()
            await asyncio.gather(*self._probing.values(), return_exceptions=True)

    async def _look(self) -> None:
        """If nobody answers, it stays as it was."""
        with suppress(Unavailable):
            try:
                found = {document.id: (document, state) for document, state in await storms(self._documents)}
                for consumer, guard in self._guarded:
                    await self._carry_out(consumer, guard, found.get(guard.name))
            except Unavailable:
                raise
            except Exception:  # what is in a storm must not end a worker
                log.exception("what is in a storm cannot be seen")

    async def _carry_out(
        self, consumer: Consumer, guard: StormGuard, found: tuple[Document, StormState] | None
    ) -> None:
        if found is None:
            if guard.is_on and guard.name not in self._probing:
                await self._end(guard)
            return
        if guard.name not in self._seen:
            why = found[1].why
            self._events.emit(SourceStormed(source=guard.source, transport=guard.transport, why=why))
            guard.begun()
            consumer.pause()
            await self._pauses.look()
        if guard.name not in self._probing and self._may_probe(*found):
            await self._probe(consumer, guard, *found)

    async def _end(self, guard: StormGuard) -> None:
        guard.ended()
        self._seen.pop(guard.name, None)
        self._events.emit(StormEnded(source=guard.source, transport=guard.transport))
        await self._pauses.look()

    def _may_probe(self, document: Document, state: StormState) -> bool:
        """Whether it was left alone for long enough, or who probes it has said nothing for too long."""
        now = self._clock.elapsed()
        if self._seen.get(document.id, (None,))[0] != document.version:
            self._seen[document.id] = document.version, now
        wait = _LEASE if state.prober else state.wait.total_seconds()
        return now - self._seen[document.id][1] >= wait

    async def _probe(self, consumer: Consumer, guard: StormGuard, document: Document, state: StormState) -> None:
        """Become the one who probes, if nobody was faster."""
        mine = replace(state, prober=self._name)
        if await self._documents.put(KIND, guard.name, body_of(mine), expect=document.version):
            probe = Probe(self, consumer, guard, mine, document.version + 1)
            task = self._probing[guard.name] = asyncio.create_task(probe.run())
            task.add_done_callback(lambda _: self._probing.pop(guard.name, None))


class Probe:
    """One worker tries a source with one message after the other, until one fails, or enough have succeeded."""

    def __init__(
        self, watch: StormWatch, consumer: Consumer, guard: StormGuard, state: StormState, version: int
    ) -> None:
        self._watch = watch
        self._consumer = consumer
        self._guard = guard
        self._state = state
        self._version = version

    async def run(self) -> None:
        try:
            while await self._try_one():
                pass
        except Unavailable as error:
            log.warning("%s is not probed now: %s", self._guard.source, error)
        finally:
            self._guard.end_probe()
            with suppress(Unavailable):
                await self._watch._pauses.look()

    async def _try_one(self) -> bool:
        """Whether the next one may be tried at once."""
        watch, guard = self._watch, self._guard
        while self._consumer.in_hand:
            if not await self._wait(_EVERY):
                return False
        outcome = guard.probe()
        await watch._pauses.look()
        while not outcome.done():
            await asyncio.wait([outcome], timeout=_RENEW)
            if not outcome.done() and not await self._renew():
                return False
        guard.is_probing = outcome.result() is True
        word = {True: "succeeded", False: "failed", None: "given back"}[outcome.result()]
        watch._events.emit(StormProbed(source=guard.source, transport=guard.transport, outcome=word))
        after = after_probe(self._state, outcome.result(), guard.rule.probes, watch._clock.now())
        if after is None:
            await watch._documents.delete(KIND, guard.name, expect=self._version)
            return False
        return await self._put(after) and bool(after.prober)

    async def _wait(self, seconds: float) -> bool:
        await self._watch._clock.sleep(seconds)
        return await self._renew()

    async def _renew(self) -> bool:
        """Whether it is still ours to probe: nobody has ended the storm, or taken over."""
        return await self._put(self._state)

    async def _put(self, state: StormState) -> bool:
        won = await self._watch._documents.put(KIND, self._guard.name, body_of(state), expect=self._version)
        if won:
            self._state, self._version = state, self._version + 1
        return won
