"""Metrics and health of one worker: a small server beside it, for Prometheus and for probes."""

from __future__ import annotations

import asyncio

from redrive.admin.access import is_loopback
from redrive.admin.api import create_api
from redrive.admin.server import Uvicorn, config_of, listen
from redrive.app import Redrive
from redrive.service import Service
from redrive.telemetry.metrics import Metrics


class Scrape:
    """Listens from when it is made, answers while it runs: /metrics, /healthz and /readyz.

    As everywhere, /metrics needs a viewer's token, except on loopback.
    """

    def __init__(self, app: Redrive, host: str, port: int, metrics: Metrics | None = None) -> None:
        self._app = app
        self._host = host
        self._metrics = metrics or Metrics(app.events)
        self._socket = listen(host, port)
        self.port: int = self._socket.getsockname()[1]

    async def run(self) -> None:
        """Until it is cancelled."""
        api = create_api(Service(self._app), metrics=self._metrics, loopback=is_loopback(self._host), probes_only=True)
        server = Uvicorn(config_of(api, self._app.settings.admin))
        serving = asyncio.create_task(server.serve([self._socket]))
        try:
            await asyncio.shield(serving)
        finally:
            server.should_exit = True
            await serving
            self._socket.close()
