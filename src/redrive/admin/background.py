"""Replays that a server sends while it answers other requests."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from redrive.errors import RedriveError
from redrive.service import Service

log = logging.getLogger("redrive")


class Background:
    """One task for each replay. What it does not finish, because the server stops or a backend is away, some
    process's upkeep runs on: the selection and the ledger are in the store."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._asked: set[str] = set()
        self.closing: list[Callable[[], Awaitable[None]]] = []  # what routes have opened

    def run(self, replay: str) -> None:
        """Send it. If this server is at it already, it looks once more when it is done: it may be letting go of what
        was paused, and is resumed just now."""
        self._asked.add(replay)
        if replay not in self._tasks:
            task = self._tasks[replay] = asyncio.create_task(self._run(replay))
            task.add_done_callback(lambda _: self._tasks.pop(replay, None))

    async def aclose(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for close in self.closing:
            await close()

    async def _run(self, replay: str) -> None:
        while replay in self._asked:
            self._asked.discard(replay)
            await self._run_once(replay)

    async def _run_once(self, replay: str) -> None:
        try:
            await self._service.run_replay(replay)
        except RedriveError as error:
            log.error("replay %s paused, upkeep runs it on: %s", replay, error)
        except Exception:
            log.exception("replay %s stopped", replay)
