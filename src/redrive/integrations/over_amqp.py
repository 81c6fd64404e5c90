"""The ground of ways back that go through a RabbitMQ: published with confirms, many in flight at once."""

from __future__ import annotations

from collections.abc import Sequence

from redrive.errors import TransportUnavailable
from redrive.integrations.send_only import SendOnly
from redrive.model import Message
from redrive.transports.base import SendResult
from redrive.transports.rabbitmq.link import Link
from redrive.transports.rabbitmq.options import options_of
from redrive.transports.rabbitmq.publisher import Parcel, Publisher, result_of


class OverAmqp(SendOnly):
    """A subclass says in `parcel_of` how a message travels. What no queue takes is not accepted."""

    def __init__(self, url: str) -> None:
        super().__init__()
        options = options_of(url)
        self._name = options.shown
        self._link = Link(options)
        self._publisher = Publisher(self._link, options.confirm_timeout)

    def parcel_of(self, message: Message) -> Parcel:
        raise NotImplementedError

    async def send(self, messages: Sequence[Message]) -> Sequence[SendResult]:
        outcomes = await self._publisher.outcomes([self.parcel_of(message) for message in messages])
        return [result_of(outcome) for outcome in outcomes]

    async def check(self) -> None:
        channel = await self._link.channel()
        await channel.close()
        if self._publisher.blocked:
            raise TransportUnavailable(self._name, f"it takes nothing from publishers: {self._publisher.blocked}")

    async def aclose(self) -> None:
        await self._publisher.aclose()
