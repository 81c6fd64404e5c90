"""Letters, ledger and documents in OpenSearch: for many processes, many letters, and people who search by hand."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from redrive.clock import Clock, SystemClock
from redrive.forensics.searchable import Searchable
from redrive.stores.base import StoreFeatures
from redrive.stores.opensearch.access import Access
from redrive.stores.opensearch.address import DEFAULT_INDEX, DEFAULT_TIMEOUT, connected
from redrive.stores.opensearch.client import awaited
from redrive.stores.opensearch.documents import OpenSearchDocuments
from redrive.stores.opensearch.health import Health, health_of
from redrive.stores.opensearch.ledger import OpenSearchLedger
from redrive.stores.opensearch.letters import OpenSearchLetters
from redrive.stores.opensearch.schema import Schema
from redrive.stores.opensearch.series import OpenSearchSeries
from redrive.stores.opensearch.versions import OpenSearchVersions
from redrive.stores.shape import NATIVE, Shape

if TYPE_CHECKING:
    from opensearchpy import AsyncOpenSearch, OpenSearch


class OpenSearchStore:
    """Letters are in `index`, the rest in `index-ledger`, `index-documents` and `index-series`; all are made when first
    needed.

    The client may be a blocking one, which is asked in threads. It is the caller's: closing the store leaves it open,
    unless `owned`. How long one request may take is the client's; `timeout` is how long an index that no node serves
    yet is waited for.
    """

    features = StoreFeatures(durable=True, atomic_claims=True, shared=True, counted_groups=False, indexed_texts=True)

    def __init__(
        self,
        client: AsyncOpenSearch | OpenSearch,
        *,
        index: str = DEFAULT_INDEX,
        shape: Shape = NATIVE,
        shards: int = 1,
        replicas: int | None = None,
        clock: Clock | None = None,
        owned: bool = False,
        timeout: timedelta = DEFAULT_TIMEOUT,
    ) -> None:
        self._access = Access(awaited(client), clock or SystemClock(), timeout)
        schema = Schema(self._access, index, shape, shards, replicas)
        self.documents = OpenSearchDocuments(self._access, schema)
        self.series = OpenSearchSeries(self._access, schema)
        self.letters = OpenSearchLetters(self._access, schema, shape, self.series)
        self.versions = OpenSearchVersions(self._access, schema.documents, self.letters)
        self.ledger = OpenSearchLedger(self._access, schema, self.letters, self.documents)
        self._schema = schema
        self._owned = owned

    def search_as(self, searchable: Searchable) -> None:
        self.letters.texts.search_as(searchable)

    async def index_texts(self, most: int) -> int:
        return await self.letters.texts.index(most)

    async def check(self) -> None:
        """Check by trying to write, if there is an index: a read can succeed where a full disk would not."""
        if await self._schema.exists():
            for index in self._schema.all:
                await self._access.try_to_write(index)

    async def is_made(self) -> bool:
        """Whether its indexes are there: the first use of its letters, ledger or documents makes them."""
        return await self._schema.exists()

    async def health(self) -> Health:
        """The health of the cluster. Makes no index."""
        return await health_of(self._access, self._schema)

    async def aclose(self) -> None:
        await self._access.aclose(close_client=self._owned)


def open_store(url: str) -> OpenSearchStore:
    """`opensearch://user:password@host:9200/index?timeout=10s`, or `opensearch+https://…`."""
    client, index, options = connected(url)
    return OpenSearchStore(
        client,
        index=index,
        owned=True,
        shards=options.shards,
        replicas=options.replicas,
        timeout=options.timeout,
    )
