"""Any client of the library as one that is awaited."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from redrive.errors import ConfigError


class ThreadedClient:
    """A blocking client (`opensearchpy.OpenSearch`), asked in threads so that nothing else waits for its answers."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.transport = self

    async def perform_request(self, *request: Any, **more: Any) -> Any:
        return await asyncio.to_thread(self._client.transport.perform_request, *request, **more)

    async def close(self) -> None:
        await asyncio.to_thread(self._client.close)


def awaited(client: Any) -> Any:
    """The client itself if it is asynchronous, else one that asks it in threads. ConfigError for anything else."""
    ask = getattr(getattr(client, "transport", None), "perform_request", None)
    if not callable(ask) or inspect.isclass(client):
        raise ConfigError(f"{client!r} is no client of OpenSearch: give an opensearchpy.AsyncOpenSearch or OpenSearch")
    return client if asyncio.iscoroutinefunction(ask) else ThreadedClient(client)
