"""Indexes of a test's own on the shared OpenSearch: making some takes longer than most tests, so they are emptied."""

from __future__ import annotations

from typing import Any

import msgspec
from opensearchpy import AsyncOpenSearch

from redrive.model import Letter
from redrive.stores.base import Store
from redrive.stores.opensearch import open_store
from redrive.stores.shape import Document, DocumentShape
from redrive.testing.stores import StoreBackend
from tests.servers.opensearch import OpenSearch


class TaskShape(DocumentShape):
    """What a contract could ask for: names and types of its own, and Redrive's fields under the key the store uses."""

    name = "task"
    mapping = {  # noqa: RUF012
        "task_id": {"type": "keyword"},
        "status": {"type": "keyword"},
        "retry_count": {"type": "integer"},
        "next_retry_at": {"type": "date"},
        "updated_at": {"type": "date"},
        "error": {"type": "text"},
        "task": {"type": "object", "enabled": False},
    }

    def dump(self, letter: Letter) -> Document:
        return {
            "task_id": letter.message.id,
            "status": letter.state.value,
            "retry_count": letter.retries,
            "next_retry_at": None if letter.next_retry_at is None else letter.next_retry_at.isoformat(),
            "updated_at": letter.updated_at.isoformat(),
            "error": letter.last.message,
            "task": {"id": letter.message.id, "": [{"deep": None}]},
            "redrive": msgspec.to_builtins(letter),
        }

    def load(self, document: Document) -> Letter:
        assert document["task"]["id"] == document["task_id"]
        return msgspec.convert(document["redrive"], Letter)


class OpenSearchBackend(StoreBackend):
    """A store on indexes of that name, which are empty again when it is closed."""

    def __init__(self, server: OpenSearch, index: str) -> None:
        self.server = server
        self.index = index
        self.url = f"opensearch://{server.address}/{index}?timeout=60s"

    async def open(self) -> Store:
        return open_store(self.url)

    async def aclose(self) -> None:
        async with AsyncOpenSearch(self.server.url, timeout=60) as client:
            await empty(client, self.index)


async def empty(client: AsyncOpenSearch, index: str) -> None:
    """Delete every document of the store's indexes."""
    everything: dict[str, Any] = {"query": {"match_all": {}}}
    await client.indices.refresh(index=f"{index}*")
    await client.delete_by_query(index=f"{index}*", body=everything, params={"refresh": "true"})
