"""The ground of transports to other people's workers: letters are sent back through them, and nothing is received."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from redrive.errors import ConfigError
from redrive.model import Message
from redrive.transports.base import Delivery, Depth, Features, SendResult, Settlement


class SendOnly:
    """Sends through a client that blocks, in a thread, one batch after the other.

    A subclass has `name`, says in `publish` what became of each message, and in `examine` whether it could send now.
    """

    name = "a transport that only sends"
    features = Features(
        durable=True,
        native_delay=False,
        counts_attempts=False,
        keeps_history=False,
        ordered_by="none",
        idempotent_send=False,
        shared=True,
        urgent_first=False,
    )

    def __init__(self) -> None:
        self._sending = asyncio.Lock()

    def publish(self, messages: Sequence[Message]) -> Sequence[SendResult]:
        """Put each where its worker takes it from; answers for each. Raises TransportUnavailable."""
        raise NotImplementedError

    def examine(self) -> None:
        """Raise TransportUnavailable, saying why, if it could not send now."""
        raise NotImplementedError

    def close(self) -> None:
        """Let go of its connections."""

    async def send(self, messages: Sequence[Message]) -> Sequence[SendResult]:
        async with self._sending:
            return await asyncio.to_thread(self.publish, messages)

    async def check(self) -> None:
        async with self._sending:
            await asyncio.to_thread(self.examine)

    async def depths(self) -> dict[str, Depth]:
        return {}

    async def aclose(self) -> None:
        async with self._sending:
            await asyncio.to_thread(self.close)

    async def receive(self, source: str, limit: int) -> Sequence[Delivery]:
        raise ConfigError(f"{self.name} runs its messages itself: no handler of Redrive can receive {source!r} from it")

    async def extend(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        return deliveries

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Delivery]:
        return [settlement.delivery for settlement in settlements]
