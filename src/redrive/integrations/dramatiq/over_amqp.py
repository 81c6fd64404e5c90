"""The way back to Dramatiq's queues on RabbitMQ, `dramatiq+amqp://`, and its dead-letter queues for `redrive collect`.

A message goes to its queue as Dramatiq publishes it: through the default exchange, persistent, with the priority that
its options name. Each is confirmed. Nothing is declared: the queues are Dramatiq's.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from msgspec.structs import replace

from redrive.clock import Clock
from redrive.integrations.dramatiq.envelope import UNFIT, fields_in, sent_body
from redrive.model import Message
from redrive.transports.base import SendResult, refused
from redrive.transports.rabbitmq.options import BuryIn, Options, Redeliveries, options_of
from redrive.transports.rabbitmq.properties import Properties
from redrive.transports.rabbitmq.publisher import Parcel
from redrive.transports.rabbitmq.transport import RabbitTransport

DEAD = ".XQ"
_SCHEME = "dramatiq+"
_PERSISTENT = 2
_HIGHEST = 255


class DramatiqOverAmqp(RabbitTransport):
    """Queues of Dramatiq on RabbitMQ."""

    def __init__(self, options: Options, *, clock: Clock, lease: timedelta) -> None:
        theirs = replace(options, declare=False, redeliveries=Redeliveries.IGNORE, bury=BuryIn.STORE)
        super().__init__(theirs, clock=clock, lease=lease)

    async def send(self, messages: Sequence[Message]) -> Sequence[SendResult]:
        results = iter(await super().send([message for message in messages if message.header(UNFIT) is None]))
        return [next(results) if (why := message.header(UNFIT)) is None else unfit(why) for message in messages]

    async def dead(self) -> dict[str, int]:
        """How many dead messages lie in each dead-letter queue, by the management API."""
        from redrive.transports.rabbitmq.management import Management

        management = Management(self.options.management_url, vhost=self.options.vhost)
        try:
            held = await management.holding()
        finally:
            await management.aclose()
        return {name: count for name, count in held.items() if name.endswith(DEAD)}

    def _parcel_of(self, message: Message) -> Parcel:
        properties = Properties(delivery_mode=_PERSISTENT, priority=_priority(message.body))
        return Parcel("", message.source, properties, sent_body(message))


def unfit(why: bytes) -> SendResult:
    """A message whose arguments were lost before it became a letter."""
    return refused(why.decode("utf-8", "replace"))


def _priority(body: bytes) -> int | None:
    """`broker_priority` of its options, if it is one."""
    if b'"broker_priority"' not in body:
        return None
    fields = fields_in(body)
    priority = None if fields is None else fields["options"].get("broker_priority")
    return priority if isinstance(priority, int) and 0 <= priority <= _HIGHEST else None


def open_transport(url: str, *, clock: Clock, lease: timedelta) -> DramatiqOverAmqp:
    """`dramatiq+amqp://user:password@host/vhost`."""
    return DramatiqOverAmqp(options_of(url.removeprefix(_SCHEME)), clock=clock, lease=lease)
