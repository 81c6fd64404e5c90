"""Shared by the tests of the pipeline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from tests.servers.kafka import Kafka
from tests.systems.pipeline.world import ModuleProcess, shared_writer


@pytest.fixture(scope="session")
def kafka(kafka_server: Kafka) -> Iterator[str]:
    yield kafka_server.bootstrap
    asyncio.run(shared_writer(f"kafka://{kafka_server.bootstrap}").end())


@pytest.fixture(scope="session")
def flex() -> Iterator[ModuleProcess]:
    """An instance that nobody kills."""
    one = ModuleProcess("flex")
    asyncio.run(one.started())
    yield one
    one.kill()


@pytest.fixture
def start_module() -> Iterator[Callable[..., ModuleProcess]]:
    """Instances that may be killed."""
    begun: list[ModuleProcess] = []

    def start(name: str = "flex", **how: object) -> ModuleProcess:
        begun.append(ModuleProcess(name, **how))  # type: ignore[arg-type]
        return begun[-1]

    yield start
    for one in begun:
        one.kill()
