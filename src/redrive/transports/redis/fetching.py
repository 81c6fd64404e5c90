"""One fetch, which may wait on the server until there is something to do."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from redrive.clock import Clock
from redrive.drivers.redis import LONGEST_WAIT, Link, Value
from redrive.errors import Unavailable
from redrive.transports.redis import scripts

_FORGOTTEN = 60_000  # milliseconds until a bell that nobody heard is gone


class Fetch:
    """A fetch under way; its `answer` is what `fetch.lua` returns, and comes also if whoever asked is cancelled.

    One that waits sends a command that waits for `:wake`, and behind it the script: the server runs that when the wait
    is over, without asking us in between, so that a message in an idle queue is here one round trip earlier.
    `:wake:TOKEN` is the bell of this fetch alone: it ends the wait when what is delayed is due, or nobody wants the
    answer any more.
    """

    def __init__(self, link: Link, queue: str, token: bytes, arguments: Sequence[Value], *, waits: bool) -> None:
        self._link = link
        self._bell = f"{queue}:wake:{token.decode()}"
        if waits:
            running = link.run_after([f"{queue}:wake", self._bell], scripts.FETCH, [queue], arguments)
        else:
            running = link.run(scripts.FETCH, [queue], arguments)
        self._waits = waits
        self.answer: asyncio.Future[Any] = asyncio.ensure_future(running)

    async def wait_at_most(self, clock: Clock, seconds: float) -> None:
        """End its wait after so long, if it has not ended by then."""
        if seconds >= LONGEST_WAIT:
            return  # it ends by itself
        answered = asyncio.Event()
        self.answer.add_done_callback(lambda _: answered.set())
        if not await clock.wait(answered, seconds):
            await self.end_wait()

    async def end_wait(self) -> None:
        """Let it wait no longer, if it does. A server that is away ends it, too."""
        if self._waits and not self.answer.done():
            with suppress(Unavailable):
                await self._link.commands([("RPUSH", self._bell, 1), ("PEXPIRE", self._bell, _FORGOTTEN)])
