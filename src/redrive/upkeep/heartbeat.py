"""Beside a worker: says in the store, every few seconds, that it lives and what it has in hand.

One small document for each process. A clean end takes it away; that of a worker which was killed shows as lost, and is
deleted after a day.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from redrive.errors import Unavailable
from redrive.flow.receive import Consumer
from redrive.flow.storm import Finished
from redrive.flow.tasks import is_to_end
from redrive.stores.base import Documents
from redrive.telemetry.observed import OpenBreaker
from redrive.transports.base import Lists
from redrive.untrusted import UNREADABLE

if TYPE_CHECKING:
    from redrive.app import Redrive

log = logging.getLogger("redrive")
KIND = "worker"
EVERY = timedelta(seconds=5)
KEPT = timedelta(days=1)
MOST = 1000
_LAST_WORD = 2.0  # seconds that a clean end waits for the store
_PRUNE_EVERY = 720  # beats


class Working(Struct, frozen=True):
    """One source of a worker."""

    source: str
    transport: str
    concurrency: int
    in_hand: int  # received and not settled
    done: int = 0  # within the time that the storm guard looks at, where there is one
    buried: int = 0
    rate: float = 0.0  # messages that finish a second


class Beat(Struct, frozen=True, kw_only=True):
    """What a worker says of itself. Its times are those of its own clock."""

    worker: str
    host: str
    pid: int
    version: str  # of the app
    redrive: str
    started_at: datetime
    at: datetime
    draining: bool = False  # it was told to stop, and lets finish what runs
    sources: tuple[Working, ...] = ()
    breakers: tuple[OpenBreaker, ...] = ()
    holders: tuple[str, ...] = ()  # what its leases are known by (Lists in transports/base.py)


class Heartbeat:
    """The beats of one worker process. That the store is away changes nothing for its messages."""

    def __init__(self, app: Redrive, consumers: Mapping[str, Consumer]) -> None:
        self._app = app
        self._consumers = consumers
        self.id = secrets.token_hex(8)
        self._started_at = app.clock.now()
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Beat until it is cancelled."""
        number = 0
        while True:
            with suppress(Unavailable):  # whoever receives says that it is away
                await self._documents.put(KIND, self.id, msgspec.to_builtins(self._beat()))
                if number % _PRUNE_EVERY == 0:
                    await prune(self._documents, before=self._app.clock.now() - KEPT)
            if is_to_end():
                return
            number += 1
            if self._stopping.is_set():
                await self._app.clock.sleep(EVERY.total_seconds())
            else:
                await self._app.clock.wait(self._stopping, EVERY.total_seconds())

    def drain(self) -> None:
        """Say that the worker takes nothing new."""
        self._stopping.set()

    async def end(self) -> None:
        """The worker ends cleanly: nobody shall look for it."""
        with suppress(Unavailable, TimeoutError):
            async with asyncio.timeout(_LAST_WORD):
                await self._documents.delete(KIND, self.id)

    @property
    def _documents(self) -> Documents:
        return self._app.store.documents

    def _beat(self) -> Beat:
        from redrive import __version__

        app, rates = self._app, self._app.observed.rates()
        return Beat(
            worker=app.settings.worker_name,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=app.version,
            redrive=__version__,
            started_at=self._started_at,
            at=app.clock.now(),
            draining=self._stopping.is_set(),
            sources=tuple(
                _working(
                    source, handler.transport, handler.concurrency, self._consumers[source], rates.get(source, 0.0)
                )
                for source, handler in app.handlers.items()
                if source in self._consumers
            ),
            breakers=app.observed.breakers(),
            holders=self._holders(),
        )

    def _holders(self) -> tuple[str, ...]:
        transports = {handler.transport for handler in self._app.handlers.values()}
        used = (self._app.transport(name) for name in sorted(transports))
        return tuple(transport.holder for transport in used if isinstance(transport, Lists) and transport.holder)


def _working(source: str, transport: str, concurrency: int, consumer: Consumer, rate: float) -> Working:
    guard = consumer.context.storm
    finished = Finished() if guard is None else guard.window.total()
    return Working(source, transport, concurrency, consumer.in_hand, finished.done, finished.buried, rate)


async def beats(documents: Documents) -> dict[str, tuple[int, Beat]]:
    """The last beat of each worker, with its number, by the id of the worker. One that cannot be read is left out."""
    found: dict[str, tuple[int, Beat]] = {}
    for document in await documents.list(KIND, limit=MOST):
        if (beat := _read(document.body)) is not None:
            found[document.id] = document.version, beat
    return found


async def prune(documents: Documents, *, before: datetime) -> None:
    """Delete those of workers that were last heard of before that."""
    for id, (_, beat) in (await beats(documents)).items():
        if beat.at < before:
            await documents.delete(KIND, id)


def _read(body: dict[str, Any]) -> Beat | None:
    try:
        return msgspec.convert(body, Beat)
    except UNREADABLE:
        return None
