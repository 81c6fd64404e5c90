"""Drops the one repeat that a re-drive can cause.

A re-drive publishes the copy before it acknowledges the dead message. If it dies in between, the message is
re-driven again, under the same `x-redriven-id`. Whoever has handled that id once has nothing to do.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from redrive.flow.around import Call
from redrive.model import Message
from redrive.transports.rabbitmq.redrive import ID

if TYPE_CHECKING:
    from redrive.app import Redrive

log = logging.getLogger("redrive")
KIND = "redriven"
_KEPT = timedelta(days=7)
_MOST = 100_000


class Repeats:
    """Keeps the ids of re-driven messages that were handled, in the store's documents."""

    def __init__(self, app: Redrive) -> None:
        self._app = app
        self._locks: dict[str, asyncio.Lock] = {}

    async def once(self, message: Message, call: Call) -> Any:
        """Around a handler: it is called to its end at most once for each time that a message is re-driven."""
        id = message.header(ID) if message.headers else None
        if id is None:
            return await call()
        name = f"{message.source}/{id.decode('utf-8', 'replace')}"
        async with self._alone(name):
            if await self._app.store.documents.get(KIND, name) is not None:
                log.warning("message %s in %s was re-driven twice, and handled once", message.id, message.source)
                return None
            result = await call()
            await self._app.store.documents.put(KIND, name, {"at": self._app.clock.now().isoformat()})
            return result

    @asynccontextmanager
    async def _alone(self, name: str) -> AsyncIterator[None]:
        """Let a second copy wait for what becomes of the first: both may be in our hands at once."""
        lock = self._locks.setdefault(name, asyncio.Lock())
        try:
            async with lock:
                yield
        finally:
            if not lock.locked():
                self._locks.pop(name, None)

    async def sweep(self) -> int:
        """Delete the ids that were handled long ago; returns how many."""
        documents, before = self._app.store.documents, self._app.clock.now() - _KEPT
        known = await documents.list(KIND, limit=_MOST)
        old = [document for document in known if datetime.fromisoformat(document.body["at"]) < before]
        for document in old:
            await documents.delete(KIND, document.id)
        return len(old)
