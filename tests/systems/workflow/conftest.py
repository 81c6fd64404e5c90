"""A queue on a clock of its own, on every kind of store that needs no server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from redrive.systems.workflow import DeadLetterQueue
from redrive.testing.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest_asyncio.fixture(params=["memory", "sqlite"])
async def dlq(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> AsyncIterator[DeadLetterQueue]:
    store = None if request.param == "memory" else tmp_path / "workflow.db"
    async with DeadLetterQueue(max_size=100, store=store, clock=clock) as queue:
        yield queue
