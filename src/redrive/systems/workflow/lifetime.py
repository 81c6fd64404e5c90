"""What happened to a queue since it was first opened, over restarts and over all processes that share its store."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import asdict

from redrive.clock import Clock
from redrive.stores.base import Documents

log = logging.getLogger("redrive")
_KIND, _ID = "workflow-lifetime", "all"
_SOON = 1.0  # seconds: what is counted within that is written in one step


class Lifetime(Struct):
    """Everything that is counted."""

    enqueued_total: int = 0
    retry_success: int = 0
    retry_failed: int = 0
    exhausted: int = 0
    manually_retried: int = 0
    archived: int = 0

    def __add__(self, other: Lifetime) -> Lifetime:
        return Lifetime(**{name: number + getattr(other, name) for name, number in asdict(self).items()})

    def shown(self) -> dict[str, int]:
        return asdict(self)


class Lifetimes:
    """Counts here, and adds what was counted to a document of the store: soon after, and when the queue is closed."""

    def __init__(self, documents: Documents, clock: Clock) -> None:
        self._documents = documents
        self._clock = clock
        self._stored = Lifetime()  # as last seen
        self._unsaved = Lifetime()
        self._saving = asyncio.Lock()
        self._saver: asyncio.Task[None] | None = None

    def add(self, **numbers: int) -> None:
        """Count; the store learns of it within a second."""
        for name, number in numbers.items():
            setattr(self._unsaved, name, getattr(self._unsaved, name) + number)
        if self._saver is None or self._saver.done():
            self._saver = asyncio.get_running_loop().create_task(self._save_soon())

    @property
    def total(self) -> Lifetime:
        """As far as is known without asking the store."""
        return self._stored + self._unsaved

    async def read(self) -> Lifetime:
        """With what all processes have written until now. Raises StoreUnavailable."""
        await self.save()
        return self.total

    async def save(self) -> None:
        """Add what was counted here to what the store has. Raises StoreUnavailable; then it is added later."""
        async with self._saving:
            added, self._unsaved = self._unsaved, Lifetime()
            try:
                self._stored = await self._added(added)
            except BaseException:
                self._unsaved += added
                raise

    async def _added(self, added: Lifetime) -> Lifetime:
        while True:  # until nobody writes between our reading and our writing
            known = await self._documents.get(_KIND, _ID)
            total = added if known is None else added + Lifetime(**_numbers(known.body))
            if added == Lifetime():
                return total
            version = 0 if known is None else known.version
            if await self._documents.put(_KIND, _ID, total.shown(), expect=version):
                return total

    async def _save_soon(self) -> None:
        await self._clock.sleep(_SOON)
        with suppress(Exception):  # the next count, or the closing of the queue, tries again
            await self.save()

    async def aclose(self) -> None:
        """Write what is not written yet."""
        if self._saver is not None:
            self._saver.cancel()
            await asyncio.wait([self._saver])
        try:
            await self.save()
        except Exception as error:
            log.warning("lifetime statistics of this process could not be written: %s", error)


def _numbers(body: dict[str, int]) -> dict[str, int]:
    """Those that this version counts."""
    return {name: int(body.get(name, 0)) for name in Lifetime.__struct_fields__}
