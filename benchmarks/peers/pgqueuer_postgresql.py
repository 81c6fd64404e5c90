"""pgqueuer with asyncpg: jobs added 5,000 a call, taken 500 at a time, as durable as we are."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from benchmarks.peers import needed

_ADD, _TAKE = 5000, 500


class PgQueuer:
    """One connection for what is asked, as its documentation has it."""

    def __init__(self, url: str) -> None:
        self._url = url
        logging.getLogger("pgqueuer").setLevel(logging.CRITICAL)

    async def __aenter__(self) -> PgQueuer:
        self._connection: Any = await needed("asyncpg").connect(self._url)
        self._queries: Any = needed("pgqueuer").Queries.from_asyncpg_connection(self._connection)
        if not await self._queries.schema_is_installed():
            await self._queries.install()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._connection.close()

    async def add(self, bodies: Sequence[bytes]) -> None:
        for start in range(0, len(bodies), _ADD):
            some = list(bodies[start : start + _ADD])
            await self._queries.enqueue(["orders"] * len(some), some, [0] * len(some))

    async def drain(self) -> int:
        """Until nothing is left; how many there were."""
        total = 0
        queue = needed("pgqueuer").PgQueuer.from_asyncpg_connection(self._connection)

        async def handle(job: Any) -> None:
            nonlocal total
            total += 1

        queue.entrypoint("orders")(handle)
        await queue.qm.run(batch_size=_TAKE, mode=needed("pgqueuer.types").QueueExecutionMode.drain)
        return total
