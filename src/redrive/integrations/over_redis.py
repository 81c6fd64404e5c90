"""The ground of ways back that go through a Redis: `taskiq+redis://…` is `redis://…` to whoever connects."""

from __future__ import annotations

from collections.abc import Sequence

from redrive.drivers.redis import Link
from redrive.errors import TransportUnavailable
from redrive.integrations.send_only import SendOnly
from redrive.model import Message
from redrive.transports.base import SendResult


class OverRedis(SendOnly):
    """Holds the connections. A subclass says in `send` what became of each message."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.link = Link(url, unavailable=TransportUnavailable)

    async def send(self, messages: Sequence[Message]) -> Sequence[SendResult]:
        raise NotImplementedError

    async def check(self) -> None:
        await self.link.command("PING")

    async def aclose(self) -> None:
        await self.link.aclose()

    async def types_of(self, keys: Sequence[str]) -> dict[str, str]:
        """What lies under each key: `list`, `stream`, `none`, …"""
        wanted = sorted(set(keys))
        answers = await self.link.commands([("TYPE", key) for key in wanted])
        return {key: bytes(answer).decode() for key, answer in zip(wanted, answers, strict=True)}
