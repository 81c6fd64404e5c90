"""Which sources are paused, for transports whose broker has no place for it: kept in the store, where every worker and
every server that shares it looks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from redrive.clock import Clock
from redrive.flow.storm import StormState
from redrive.model import letter_id
from redrive.stores.base import Document, Documents
from redrive.transports.base import FollowsPauses, Pausable, Paused, Transport
from redrive.untrusted import UNREADABLE

KIND = "pause"
GUARD = "the storm guard"
_MOST = 1000


class KeptPause(Struct, frozen=True):
    """A pause as the store keeps it."""

    transport: str
    paused: Paused


class SourcePause(Struct, frozen=True):
    """A pause, and on which transport it is."""

    transport: str
    source: str
    by: str
    at: datetime
    why: str
    until: datetime | None
    storm: bool = False  # the storm guard has done it, and ends it when what it tries succeeds
    probe_at: datetime | None = None  # when that tries again

    @classmethod
    def of(cls, transport: str, paused: Paused) -> SourcePause:
        return cls(transport, paused.source, paused.by, paused.at, paused.why, paused.until)

    @classmethod
    def of_storm(cls, storm: StormState) -> SourcePause:
        return cls(storm.transport, storm.source, GUARD, storm.at, storm.why, None, True, storm.probe_at)

    @property
    def paused(self) -> Paused:
        """The pause, without its transport."""
        return Paused(self.source, self.by, self.at, self.why, self.until, self.storm, self.probe_at)


class StorePauses:
    """The pauses of one transport, one small document for each. The first of two who pause a source wins.

    transport   its name in the settings, which is the same for all who share the store
    """

    def __init__(self, documents: Documents, transport: str, clock: Clock) -> None:
        self._documents = documents
        self._transport = transport
        self._clock = clock

    async def pause(self, paused: Paused) -> Paused:
        body = msgspec.to_builtins(KeptPause(self._transport, paused))
        while True:
            known = await self._documents.get(KIND, self._id(paused.source))
            if known is not None and (first := self._held(known)) is not None:
                return first
            version = 0 if known is None else known.version
            if await self._documents.put(KIND, self._id(paused.source), body, expect=version):
                return paused

    async def resume(self, source: str) -> Paused | None:
        known = await self._documents.get(KIND, self._id(source))
        if known is None:
            return None
        was_there = await self._documents.delete(KIND, self._id(source))
        return self._held(known) if was_there else None

    async def pauses(self) -> Sequence[Paused]:
        found = [self._held(document) for document in await self._documents.list(KIND, limit=_MOST)]
        return sorted((paused for paused in found if paused is not None), key=lambda paused: paused.source)

    def _id(self, source: str) -> str:
        return letter_id(self._transport, source)  # short and plain, whatever the source is called

    def _held(self, document: Document) -> Paused | None:
        """The pause of that document, if it is one of ours and not over."""
        body: Any = document.body
        if body.get("transport") != self._transport:
            return None
        try:
            paused = msgspec.convert(body, KeptPause).paused
        except UNREADABLE:
            return None
        return None if paused.is_over(self._clock.now()) else paused


def pauses_of(transport: Transport, name: str, documents: Documents, clock: Clock) -> Pausable | None:
    """Where the pauses of that transport are kept: by itself, or in the store; None: it cannot be paused."""
    if isinstance(transport, Pausable):
        return transport
    return StorePauses(documents, name, clock) if isinstance(transport, FollowsPauses) else None
