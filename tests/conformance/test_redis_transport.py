"""The transport on Redis keeps every promise. Its time is the server's, so passing time is done to what is due."""

from __future__ import annotations

import secrets
from datetime import timedelta

import pytest

from redrive.clock import SystemClock
from redrive.testing.transports import TransportBackend, TransportSuite
from redrive.transports.base import Transport
from redrive.transports.redis import RedisTransport
from tests.servers.redis import Redis
from tests.trouble.redis_time import let_time_pass

_SHORT = timedelta(seconds=0.1)


class RedisBackend(TransportBackend):
    """Every test in keys of its own on the shared server."""

    def __init__(self, url: str) -> None:
        self.prefix = f"test-{secrets.token_hex(6)}"
        self.url = f"{url}?prefix={self.prefix}"

    async def open(self) -> Transport:
        return RedisTransport(self.url, clock=SystemClock(), lease=self.lease)

    async def let_pass(self, span: timedelta) -> None:
        if span <= _SHORT:
            await super().let_pass(span)
        else:
            await let_time_pass(self.url, span)


class TestRedis(TransportSuite):
    @pytest.fixture
    def backend(self, redis_server: Redis) -> TransportBackend:
        return RedisBackend(redis_server.url)
