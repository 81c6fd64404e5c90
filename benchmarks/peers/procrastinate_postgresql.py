"""procrastinate with psycopg: jobs deferred 1,000 a call, 50 at once, finished jobs deleted, as durable as we are."""

from __future__ import annotations

import logging
from base64 import b64encode
from collections.abc import Sequence
from typing import Any

from benchmarks.peers import needed

_ADD, _CONCURRENCY = 1000, 50


class Procrastinate:
    """Its arguments are JSON, so a body is text there."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.total = 0
        logging.getLogger("procrastinate").setLevel(logging.CRITICAL)

    async def __aenter__(self) -> Procrastinate:
        module = needed("procrastinate")
        self._app: Any = module.App(connector=module.PsycopgConnector(conninfo=self._url))

        async def handle(body: str) -> None:
            self.total += 1

        self._task = self._app.task(name="orders")(handle)
        await self._app.open_async()
        if not await self._app.check_connection_async():
            await self._app.schema_manager.apply_schema_async()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._app.close_async()

    async def add(self, bodies: Sequence[bytes]) -> None:
        for start in range(0, len(bodies), _ADD):
            some = [{"body": b64encode(body).decode()} for body in bodies[start : start + _ADD]]
            await self._task.batch_defer_async(*some)

    async def drain(self) -> int:
        """Until nothing is left; how many there were."""
        self.total = 0
        await self._app.run_worker_async(
            wait=False,
            concurrency=_CONCURRENCY,
            install_signal_handlers=False,
            delete_jobs="always",
            listen_notify=False,
        )
        return self.total
