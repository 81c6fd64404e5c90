"""Beside a worker: sees which of its sources are paused.

A transport that keeps pauses itself obeys them by itself; one that does not is told here. In both cases the worker
gives back what it had received and not begun: only what runs may end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from redrive.clock import Clock
from redrive.errors import Unavailable
from redrive.flow.pauses import pauses_of
from redrive.flow.receive import Consumer
from redrive.flow.tasks import is_to_end
from redrive.transports.base import FollowsPauses, Pausable, Paused, Transport

if TYPE_CHECKING:
    from redrive.app import Redrive

log = logging.getLogger("redrive")
_EVERY = 1.0
_PATIENCE = 5.0


class Watched:
    """The sources of one transport that this worker receives from, and which of them are paused."""

    def __init__(self, transport: Transport, pauses: Pausable | None, consumers: Mapping[str, Consumer]) -> None:
        self.transport = transport
        self._pauses = pauses
        self._consumers = consumers
        self._paused: Mapping[str, Paused] = {}  # as far as we know
        self._told: set[str] = set()  # what the transport was told to hand out nothing of
        self._is_unknown = False  # nobody answers

    async def look(self) -> None:
        """See what is paused now, and carry it out. If nobody answers, it stays as it was."""
        try:
            kept = () if self._pauses is None else await self._pauses.pauses()
            found = {paused.source: paused for paused in kept}
            wanted = found.keys() | self._stormed()
            if isinstance(self.transport, FollowsPauses) and (wanted or self._told):
                await self.transport.set_paused(wanted)
                self._told = wanted
        except Unavailable as error:
            self._nobody_answers(error)
        except Exception as error:  # what is paused must not end a worker
            if not self._is_unknown:
                log.exception("what is paused cannot be seen")
            self._nobody_answers(error)
        else:
            self._is_unknown = False
            self._carry_out(found)

    def _stormed(self) -> set[str]:
        """Its sources that are in a storm, but for one that this worker probes."""
        guards = {source: consumer.context.storm for source, consumer in self._consumers.items()}
        return {source for source, guard in guards.items() if guard and guard.is_on and not guard.is_probing}

    def _carry_out(self, found: Mapping[str, Paused]) -> None:
        for source in sorted(self._consumers.keys() & (found.keys() - self._paused.keys())):
            log.warning("%s is paused by %s%s", source, found[source].by, _because(found[source]))
            self._consumers[source].pause()
        for source in sorted(self._consumers.keys() & (self._paused.keys() - found.keys())):
            log.warning("%s goes on", source)
        self._paused = found

    def _nobody_answers(self, error: Exception) -> None:
        if not self._is_unknown:
            held = ", ".join(sorted(self._paused.keys() & self._consumers.keys())) or "nothing"
            log.warning("what is paused cannot be looked up, and stays as it was (%s): %s", held, error)
        self._is_unknown = True


class PauseWatch:
    """Looks once a second, with one small question to each transport, or to the store."""

    def __init__(self, watched: list[Watched], clock: Clock) -> None:
        self._watched = watched
        self._clock = clock

    @classmethod
    def of(cls, app: Redrive, consumers: Mapping[str, Consumer]) -> PauseWatch:
        """Of a worker, by its consumers of each source."""
        watched = []
        for name in sorted({handler.transport for handler in app.handlers.values()}):
            transport = app.transport(name)
            pauses = pauses_of(transport, name, app.store.documents, app.clock)
            its = {source: consumers[source] for source, handler in app.handlers.items() if handler.transport == name}
            watched.append(Watched(transport, pauses, its))
        return cls(watched, app.clock)

    async def look(self) -> None:
        """Carry out at once what has changed."""
        await asyncio.gather(*(watched.look() for watched in self._watched))

    async def begin(self) -> None:
        """Look before anything is received, where the transport does not know by itself. For a store that does not
        answer a worker waits a moment, and no longer: its messages need no store unless they fail."""
        told = [watched for watched in self._watched if isinstance(watched.transport, FollowsPauses)]
        try:
            async with asyncio.timeout(_PATIENCE):
                await asyncio.gather(*(watched.look() for watched in told))
        except TimeoutError:
            log.warning("the store does not say which sources are paused: none is, until it answers")

    async def run(self) -> None:
        """Look again and again, until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            for watched in self._watched:
                group.create_task(self._look_on(watched))

    async def _look_on(self, watched: Watched) -> None:
        while not is_to_end():
            await self._clock.sleep(_EVERY)
            await watched.look()


def _because(paused: Paused) -> str:
    return f" ({paused.why})" if paused.why else ""
