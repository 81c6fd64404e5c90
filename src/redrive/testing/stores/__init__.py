"""The promises of a store, as tests. Whoever writes one gets them all by five lines:

    class TestMyStore(StoreSuite):
        @pytest.fixture
        def backend(self) -> StoreBackend:
            return MyBackend()

Nothing is skipped: where `features` say that a promise is not made, what holds instead is asserted. What a store has
to answer is said by redrive.testing.reference.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from redrive.stores.base import Store
from redrive.testing.stores.backend import StoreBackend
from redrive.testing.stores.claiming import Claiming
from redrive.testing.stores.documents import Documents
from redrive.testing.stores.examples import LETTERS, corpus
from redrive.testing.stores.groups import Groups
from redrive.testing.stores.ledger import Ledger
from redrive.testing.stores.moving import Moving
from redrive.testing.stores.pruning import Pruning
from redrive.testing.stores.queries import QUERIES
from redrive.testing.stores.recording import Recording
from redrive.testing.stores.searching import Searching
from redrive.testing.stores.series import Series
from redrive.testing.stores.standing import Standing
from redrive.testing.stores.trail import AuditTrail
from redrive.testing.stores.versions import Versions

__all__ = ["LETTERS", "QUERIES", "StoreBackend", "StoreSuite", "corpus"]


class StoreSuite(
    Recording,
    Searching,
    Groups,
    Claiming,
    Moving,
    Versions,
    Pruning,
    Ledger,
    Documents,
    Series,
    AuditTrail,
    Standing,
):
    """Every promise in redrive.stores.base, tested on what the fixture `backend` gives."""

    pytestmark = pytest.mark.asyncio

    @pytest.fixture
    def backend(self) -> StoreBackend:
        raise NotImplementedError("give the suite a fixture `backend`")

    @pytest_asyncio.fixture
    async def store(self, backend: StoreBackend) -> AsyncIterator[Store]:
        store = await backend.open()
        yield store
        await store.aclose()
        await backend.aclose()
