"""Remembers who has an e-mail already while others have not: a retry must not send it to them again.

Written when a server took an e-mail for some of its recipients only, read when a job comes again, deleted when
everybody has it. A success at the first attempt touches none of it.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from hashlib import blake2b

from redrive.clock import Clock
from redrive.errors import Unavailable
from redrive.model import Message
from redrive.stores.base import Store

_KIND = "email-accepted"
_PAUSE = 1.0
_KEPT = timedelta(days=30)  # longer than any letter that could still be sent back


class Accepted:
    """Keeps, for each job, the recipients that a server has accepted it for."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def of(self, message: Message) -> frozenset[str]:
        """The recipients who have it; none for a job that comes for the first time."""
        if message.attempt == 1 and not message.was_sent_back:
            return frozenset()
        found = await self._store.documents.get(_KIND, message.id)
        if found is None or found.body.get("of", _digest(message)) != _digest(message):
            return frozenset()  # there is none, or it is about another e-mail of the same id
        return frozenset(found.body["recipients"])

    async def add(self, message: Message, recipients: frozenset[str]) -> None:
        """Note recipients, trying until it is written or the attempt's time is over: else they get it again."""
        body = {"recipients": sorted(recipients), "at": self._clock.now().isoformat(), "of": _digest(message)}
        while True:
            try:
                await self._store.documents.put(_KIND, message.id, body)
            except Unavailable:
                await self._clock.sleep(_PAUSE)
            else:
                return

    async def forget(self, message: Message) -> None:
        await self._store.documents.delete(_KIND, message.id)

    async def sweep(self) -> int:
        """Delete notes that no letter can ask for any more."""
        now, gone = self._clock.now(), 0
        for document in await self._store.documents.list(_KIND, limit=10_000):
            if now - datetime.fromisoformat(document.body["at"]) > _KEPT:
                gone += await self._store.documents.delete(_KIND, document.id)
        return gone


def _digest(message: Message) -> str:
    return blake2b(message.body, digest_size=8).hexdigest()
