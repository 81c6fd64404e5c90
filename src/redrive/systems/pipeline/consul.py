"""Consul through its HTTP API: modules enter and leave, engines learn who is healthy."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from urllib.parse import quote

from redrive.clock import Pause
from redrive.errors import MissingExtra

try:
    import httpx
except ImportError as error:
    raise MissingExtra("Consul", "grpc") from error

_WAIT = 30  # seconds that a blocking query may take
_SHORTEST, _LONGEST = 0.2, 5.0
log = logging.getLogger("redrive.pipeline")


class Registration:
    """An instance of a module in Consul, which checks its gRPC health and forgets it when it is gone for a minute."""

    def __init__(self, url: str, module: str, host: str, port: int, *, tls: bool = False) -> None:
        self._url = url.rstrip("/")
        self._id = f"{module}-{host}-{port}"
        check: dict[str, Any] = {
            "GRPC": f"{host}:{port}",
            "GRPCUseTLS": tls,
            "TLSSkipVerify": tls,
            "Interval": "2s",
            "Timeout": "2s",
            "Status": "passing",  # it listens already, so nobody waits for the first check
            "DeregisterCriticalServiceAfter": "1m",
        }
        self._body = {"ID": self._id, "Name": module, "Address": host, "Port": port, "Check": check}

    async def enter(self) -> None:
        """Register it, again and again until Consul answers: a module need not die because Consul is away."""
        pause = Pause(_SHORTEST, _LONGEST)
        while True:
            try:
                await self._put("register", json=self._body)
                return
            except httpx.HTTPError as error:
                log.warning("Consul at %s does not take %s: %s", self._url, self._id, error)
            await asyncio.sleep(pause.next())

    async def leave(self) -> None:
        """Deregister it. If Consul is away, its health check finds out later."""
        try:
            await self._put(f"deregister/{quote(self._id, safe='')}")
        except httpx.HTTPError as error:
            log.warning("Consul at %s was not told that %s is gone: %s", self._url, self._id, error)

    async def _put(self, what: str, **body: Any) -> None:
        async with httpx.AsyncClient(timeout=5) as client:
            (await client.put(f"{self._url}/v1/agent/service/{what}", **body)).raise_for_status()


class Watch:
    """The healthy instances of one module, kept current by blocking queries.

    While Consul is away the last answer stands, for `keep`; after that there is none.
    """

    def __init__(self, url: str, module: str, *, keep: timedelta, elapsed: Callable[[], float]) -> None:
        self.why = "Consul has not answered yet"
        self._url = f"{url.rstrip('/')}/v1/health/service/{quote(module, safe='')}"
        self._keep = keep.total_seconds()
        self._elapsed = elapsed
        self._found: tuple[str, ...] = ()
        self._heard: float | None = None  # when the last answer came; None: none is missing
        self._first = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def addresses(self) -> tuple[str, ...]:
        """Those known now; the first time it waits until Consul has answered, or failed to."""
        if self._task is None:
            self._task = asyncio.create_task(self._follow())
        if not self._first.is_set():
            await self._first.wait()
        if self._heard is not None and self._elapsed() - self._heard > self._keep:
            return ()
        return self._found

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _follow(self) -> None:
        index, pause = 0, Pause(_SHORTEST, _LONGEST)
        async with httpx.AsyncClient(timeout=httpx.Timeout(5, read=_WAIT * 1.1 + 5)) as client:
            while True:
                try:
                    index = await self._ask(client, index)
                    pause.reset()
                except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
                    index = 0
                    self._failed(error)
                    await asyncio.sleep(pause.next())

    async def _ask(self, client: httpx.AsyncClient, index: int) -> int:
        asked: dict[str, Any] = {"passing": "1", "index": index, "wait": f"{_WAIT}s"}
        answer = await client.get(self._url, params=asked)
        answer.raise_for_status()
        self._found = tuple(sorted(_address(entry) for entry in answer.json()))
        self.why = "" if self._found else "Consul knows no healthy instance of it"
        self._heard = None
        self._first.set()
        following = int(answer.headers.get("X-Consul-Index", 0))
        return following if following >= index else 0  # an index that went back: Consul began anew

    def _failed(self, error: Exception) -> None:
        """Note that Consul does not answer: from now on its last answer ages."""
        if self._heard is None:
            self._heard = self._elapsed()
            log.warning("Consul does not answer (%s): going on with the %d addresses known", error, len(self._found))
        self.why = f"Consul does not answer: {str(error) or type(error).__name__}"
        self._first.set()


def _address(entry: dict[str, Any]) -> str:
    service = entry["Service"]
    host = service["Address"] or entry["Node"]["Address"]
    return f"[{host}]:{service['Port']}" if ":" in host else f"{host}:{service['Port']}"
