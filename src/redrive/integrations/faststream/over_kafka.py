"""The way back through Kafka: to the topic and the partition that a record came from, with its key and headers."""

from __future__ import annotations

import re
from collections.abc import Sequence

from redrive.integrations.faststream.transport import record_headers, record_value
from redrive.integrations.send_only import SendOnly
from redrive.model import Message
from redrive.transports.base import SendResult
from redrive.transports.kafka.options import options_of, topic_named
from redrive.transports.kafka.topics import Topics
from redrive.transports.kafka.writer import Parcel, Writer, result_of

_PLACE = re.compile(r"(.+)\[(\d{1,9})\]@\d+")


class OverKafka(SendOnly):
    """Records that are on every replica in sync when `send` answers."""

    name = "FastStream on Kafka"

    def __init__(self, url: str) -> None:
        super().__init__()
        options = options_of(url)
        self._topics = Topics(options)
        self._writer = Writer(options)

    async def send(self, messages: Sequence[Message]) -> Sequence[SendResult]:
        return [result_of(outcome) for outcome in await self._writer.outcomes([_parcel(m) for m in messages])]

    async def check(self) -> None:
        await self._topics.check()

    async def aclose(self) -> None:
        await self._writer.aclose()
        await self._topics.aclose()


def _parcel(message: Message) -> Parcel:
    place = _PLACE.fullmatch(message.origin)
    return Parcel(
        topic=topic_named(message.source),
        value=record_value(message),
        key=message.key,
        headers=record_headers(message),
        at=message.enqueued_at,
        partition=int(place[2]) if place is not None and place[1] == message.source else None,
    )
