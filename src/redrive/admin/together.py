"""Metrics and health of several processes at one address: what a supervisor serves for Prometheus and for probes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
from litestar import Request, Response, get
from litestar.datastructures import State

from redrive.access.actors import Role
from redrive.access.tokens import Token
from redrive.admin.access import is_loopback
from redrive.admin.answers import METRICS, READY, TOKEN
from redrive.admin.api import guarded
from redrive.admin.callers import Door
from redrive.admin.health import Ready, is_alive, readiness
from redrive.admin.server import Uvicorn, config_of, listen
from redrive.config.settings import Admin
from redrive.errors import Unavailable
from redrive.forensics.redact import Redactor
from redrive.processes.merge import Family, lasting, merged, packed, unpacked
from redrive.processes.process import Process
from redrive.processes.supervisor import Supervisor
from redrive.telemetry.metrics import CONTENT_TYPE_LATEST, rendered

_UP, _RESTARTS = "redrive_process_up", "redrive_process_restarts"
_SILENT = 3.0  # seconds without a word, after which another process is asked


class Together:
    """Listens from when it is made, answers while it runs: /metrics, /healthz and /readyz.

    One process is asked for what all of them would say alike: letters, queues, readiness, who a token is.
    """

    def __init__(self, supervisor: Supervisor, host: str, port: int) -> None:
        self._supervisor = supervisor
        self._host = host
        self._socket = listen(host, port)
        self.port: int = self._socket.getsockname()[1]

    async def run(self) -> None:
        """Until it is cancelled."""
        door = Door(self, is_loopback(self._host))
        state = State({"redactor": Redactor()})
        api = guarded([is_alive, *_routes(self)], door, openapi_config=None, state=state)
        server = Uvicorn(config_of(api, Admin()))
        serving = asyncio.create_task(server.serve([self._socket]))
        try:
            await asyncio.shield(serving)
        finally:
            server.should_exit = True
            await serving
            self._socket.close()

    async def check(self, text: str) -> Token | None:
        """Who that token is, as a process that has the store says."""
        _, said = await self._asked(TOKEN, text)
        if said is None:
            raise Unavailable("the worker", "none of its processes can say now who this token is")
        return msgspec.json.decode(said, type=Token | None)

    async def checks(self) -> dict[str, str]:
        """What store and transports say, and whether every process runs."""
        _, said = await self._asked(READY)
        checks = {} if said is None else msgspec.json.decode(said, type=dict[str, str])
        up, count = sum(slot.up.is_set() for slot in self._supervisor.slots), len(self._supervisor.slots)
        return checks | {"processes": "ok" if up == count and checks else f"{up} of {count} run"}

    async def metrics(self) -> list[Family]:
        """Of all of them, what those had counted that died included. Letters and queues are counted by one."""
        process, said = await self._asked(METRICS)
        asked = unpacked(said or b"")
        if process is not None and said is not None:
            process.counted = packed(lasting(asked))  # what was once told stays told, even if it dies now
        running = [unpacked(process.counted) for process in self._supervisor.processes]
        retired = [slot.retired for slot in self._supervisor.slots]
        return merged([_states(asked), *running, *retired, list(self._own())])

    async def _asked(self, what: str, text: str = "") -> tuple[Process | None, bytes | None]:
        """The answer of the first process that is not silent."""
        started = [process for process in self._supervisor.processes if process.started.is_set()]
        if not started:
            return None, None
        latest = max(process.heard for process in started)
        process = next(process for process in started if latest - process.heard < _SILENT)
        return process, await process.ask(what, text)

    def _own(self) -> Iterator[Family]:
        slots = self._supervisor.slots
        labels = [(("process", str(slot.number)),) for slot in slots]
        up = [(_UP, label, float(slot.up.is_set())) for label, slot in zip(labels, slots, strict=True)]
        again = [(f"{_RESTARTS}_total", label, slot.times_restarted) for label, slot in zip(labels, slots, strict=True)]
        yield Family(_UP, "gauge", "1: the worker process of that number runs", up)
        yield Family(_RESTARTS, "counter", "Times that it was started again", again)


def _states(families: list[Family]) -> list[Family]:
    """Those that are not added up."""
    return [family for family in families if not family.is_added]


def _routes(together: Together) -> list[Any]:
    @get("/readyz", role=None, any_parameters=True)
    async def is_ready(request: Request[Any, Any, Any]) -> Response[Ready]:
        """200 if store and transports could do their work now and every process runs, else 503; why, is said to who has
        a token, and on loopback."""
        return await readiness(request, await together.checks())

    @get("/metrics", role=Role.VIEWER, whole=True, free_on_loopback=True, any_parameters=True, media_type="text/plain")
    async def show_metrics() -> Response[bytes]:
        """For Prometheus. Needs a viewer's token, except where the server listens on loopback only."""
        return Response(rendered(await together.metrics()), headers={"Content-Type": CONTENT_TYPE_LATEST})

    return [is_ready, show_metrics]
