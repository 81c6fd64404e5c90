"""The promises of a transport, as tests. Whoever writes one gets them all by five lines:

    class TestMyTransport(TransportSuite):
        @pytest.fixture
        def backend(self) -> TransportBackend:
            return MyBackend()

Nothing is skipped: where `features` say that a promise is not made, what holds instead is asserted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from redrive.testing.transports.backend import TransportBackend, drain, take
from redrive.testing.transports.batches import Batches
from redrive.testing.transports.carrying import ROUND_TRIPS, Carrying
from redrive.testing.transports.finding import Finding
from redrive.testing.transports.leases import Leases
from redrive.testing.transports.listing import Listed
from redrive.testing.transports.pausing import Pausing
from redrive.testing.transports.receiving import Receiving
from redrive.testing.transports.sending import Sending
from redrive.testing.transports.settling import Settling
from redrive.testing.transports.standing import Standing
from redrive.transports.base import Transport

__all__ = ["ROUND_TRIPS", "TransportBackend", "TransportSuite", "drain", "take"]


class TransportSuite(Carrying, Sending, Receiving, Leases, Settling, Standing, Finding, Listed, Pausing, Batches):
    """Every promise in redrive.transports.base, tested on what the fixture `backend` gives."""

    pytestmark = pytest.mark.asyncio

    @pytest.fixture
    def backend(self) -> TransportBackend:
        raise NotImplementedError("give the suite a fixture `backend`")

    @pytest_asyncio.fixture
    async def transport(self, backend: TransportBackend) -> AsyncIterator[Transport]:
        transport = await backend.open()
        yield transport
        await transport.aclose()
        await backend.aclose()
