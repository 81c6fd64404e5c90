"""Wakes idle workers by LISTEN and NOTIFY: who sends notifies in its transaction. Looking now and then is the net."""

from __future__ import annotations

import asyncio
import secrets
from collections import defaultdict
from contextlib import suppress

from redrive.clock import Clock, Pause
from redrive.drivers.postgresql.link import Link
from redrive.errors import Unavailable

_HEARD, _DEAF = 5.0, 0.25  # seconds between two looks: while notifications arrive, and while they do not
_PROOF = 2.0  # seconds that a notification of our own may take
_CONNECTING = (0.1, 30.0)


class Bell:
    """One session that listens, for all who wait here. Behind PgBouncer no notification arrives: that is found out by
    sending one to ourselves, and then who waits looks more often."""

    def __init__(self, link: Link, clock: Clock) -> None:
        self._link = link
        self._clock = clock
        self._events: dict[int, asyncio.Event] = defaultdict(asyncio.Event)
        self._listening: asyncio.Task[None] | None = None
        self._proof = ""
        self._proven = asyncio.Event()
        self.is_heard = False

    def event(self, source: int) -> asyncio.Event:
        """Set when there may be something new in the source of that number."""
        return self._events[source]

    async def wait(self, source: int, seconds: float) -> None:
        """Wait until there may be something to receive, at most so long."""
        if self._listening is None and self._link.address.direct is not None:
            self._listening = asyncio.create_task(self._listen())
        longest = _HEARD if self.is_heard else _DEAF
        await self._clock.wait(self._events[source], min(seconds, longest))

    def ring(self, source: int) -> None:
        """Wake those who wait for it here."""
        if source in self._events:
            self._events[source].set()

    async def silence(self) -> None:
        """Stop listening."""
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)

    async def _listen(self) -> None:
        pause = Pause(*_CONNECTING)
        while True:
            with suppress(Unavailable):  # whoever receives is told by the server itself
                await self._hear(pause)
            self.is_heard = False
            await asyncio.sleep(pause.next())

    async def _hear(self, pause: Pause) -> None:
        async with self._link.session() as connection:
            await connection.execute(f'LISTEN "{self._link.schema}"')
            self._proof, self._proven = f"proof:{secrets.token_hex(8)}", asyncio.Event()
            proving = asyncio.create_task(self._prove())
            try:
                async for notification in connection.notifies():
                    if notification.payload == self._proof:
                        self._proven.set()
                        pause.reset()
                    self._heard(notification.payload)
            finally:
                proving.cancel()
                await asyncio.gather(proving, return_exceptions=True)

    async def _prove(self) -> None:
        """Notify ourselves. What was sent before we listened is looked for once."""
        await self._link.fetch("SELECT pg_notify(%s, %s)", (self._link.schema, self._proof))
        async with asyncio.timeout(_PROOF):
            await self._proven.wait()
        self.is_heard = True
        for event in self._events.values():
            event.set()

    def _heard(self, payload: str) -> None:
        kind, _, number = payload.partition(":")
        if kind == "queue" and number.isdecimal():
            self.ring(int(number))
