"""The OpenSearch store keeps every promise of a store, on a real cluster."""

from __future__ import annotations

import pytest

from redrive.testing.stores import StoreBackend, StoreSuite
from tests.conformance.opensearch_indexes import OpenSearchBackend
from tests.servers.opensearch import OpenSearch


class TestOpenSearch(StoreSuite):
    @pytest.fixture
    def backend(self, opensearch_server: OpenSearch) -> StoreBackend:
        return OpenSearchBackend(opensearch_server, "suite")
