"""`kafka+ssl://user:password@…` against a real broker with TLS and SASL, and what is said when it refuses us."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from redrive.clock import SystemClock
from redrive.errors import TransportUnavailable
from redrive.model import Done
from redrive.testing.builders import make_message
from redrive.transports.base import Settlement
from redrive.transports.kafka.transport import KafkaTransport, open_transport
from tests.servers.kafka import Kafka
from tests.servers.pool import ServerPool
from tests.servers.ports import LOOPBACK, claim_port
from tests.trouble.kafka import Topic
from tests.trouble.test_redis_tls import certificate

__all__ = ["certificate"]
pytestmark = pytest.mark.servers
_LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_ann="s@crt";'


class Guarded(Kafka):
    """With one listener more, for those who have the certificate and the password."""

    def __init__(self, certificate: Path) -> None:
        super().__init__()
        [node] = self.nodes
        self.safe = f"{LOOPBACK}:{claim_port()}"
        self.settings = {
            "listeners": f"PLAINTEXT://{node.address},CONTROLLER://{node.controller_address},SAFE://{self.safe}",
            "advertised.listeners": f"PLAINTEXT://{node.address},SAFE://{self.safe}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SAFE:SASL_SSL",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.safe.plain.sasl.jaas.config": _LOGIN,
            "listener.name.safe.ssl.keystore.type": "PEM",
            "listener.name.safe.ssl.keystore.location": certificate,
        }


@pytest.fixture(scope="module")
def server(certificate: Path) -> Iterator[Guarded]:
    pool = ServerPool()
    yield pool.private(lambda: Guarded(certificate))
    pool.discard()


@asynccontextmanager
async def transport(url: str) -> AsyncIterator[KafkaTransport]:
    made = open_transport(url, clock=SystemClock(), lease=timedelta(seconds=30))
    try:
        yield made
    finally:
        await made.aclose()


async def test_with_certificate_and_password_everything_works(server: Guarded, certificate: Path) -> None:
    topic = Topic(server)
    url = f"kafka+ssl://ann:s%40crt@{server.safe}/?group={topic.group}&ssl.ca.location={certificate}"
    async with transport(url) as kafka:
        await kafka.check()
        await kafka.send([make_message(source=topic.name, body=b"1")])
        [delivery] = await kafka.receive(topic.name, 10)
        assert delivery.message.body == b"1"
        await kafka.settle([Settlement(delivery, Done())])
    assert sum(topic.committed().values()) == 1


async def test_who_is_refused_is_told_why(server: Guarded, certificate: Path) -> None:
    """Both at once: the driver goes on trying for a while before it gives up."""

    async def refused(login: str, more: str, says: str) -> None:
        async with transport(f"kafka+ssl://{login}@{server.safe}/?group=nobody{more}") as kafka:
            with pytest.raises(TransportUnavailable, match=says):
                await kafka.check()

    await asyncio.gather(
        refused("ann:wrong", f"&ssl.ca.location={certificate}", "refuses us: correct the login in the URL"),
        refused("ann:s%40crt", "", "certificate verify failed"),
    )
