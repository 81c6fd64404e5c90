"""Wakes an idle worker when there is something to do, by a command that waits on the server."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from redrive.clock import Clock
from redrive.drivers.redis import LONGEST_WAIT, Link
from redrive.errors import Unavailable
from redrive.transports.redis import scripts


class Bell:
    """One blocked command for all who wait here for one queue. It goes on when they are cancelled, because what it
    takes from the server is a sign that somebody has to see: with nobody left to see it, it is given back."""

    def __init__(self, link: Link, queue: str) -> None:
        self._link = link
        self._queue = queue
        self._listening: asyncio.Task[None] | None = None
        self._rung = asyncio.Event()
        self._waiting = 0
        self._error: Unavailable | None = None

    async def wait(self, clock: Clock, seconds: float) -> None:
        """Wait until it rings, at most so long. Raises TransportUnavailable if the server is away."""
        if self._listening is None or self._listening.done():
            self._rung.clear()
            self._listening = asyncio.create_task(self._listen())
        self._waiting += 1
        try:
            await clock.wait(self._rung, min(seconds, LONGEST_WAIT))
        finally:
            self._waiting -= 1
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    async def pass_on(self) -> None:
        """Wake another process in our place."""
        await self._link.run(scripts.PAUSE, [self._queue], ["rouse"])

    async def silence(self) -> None:
        """Stop listening; called after the link was closed, which ends the command."""
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)

    async def _listen(self) -> None:
        try:
            rang = await self._link.wait(f"{self._queue}:wake", LONGEST_WAIT)
            if rang and not self._waiting:
                with suppress(Unavailable):
                    await self.pass_on()
        except Unavailable as error:
            self._error = error if self._waiting else None
        finally:
            self._rung.set()
