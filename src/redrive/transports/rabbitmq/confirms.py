"""A channel on which everything that is published is confirmed or refused, each message for itself.

The broker closes a channel, or the connection, for one message that it finds wrong, and does not say which; if only one
was in flight, it is known.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from math import inf
from typing import Any

from msgspec import Struct
from pika import BasicProperties
from pika.exceptions import AMQPError, ProtocolSyntaxError, ShortStringTooLong
from pika.spec import Basic

from redrive.errors import TransportUnavailable
from redrive.transports.base import ACCEPTED, SendResult, SendStatus
from redrive.transports.rabbitmq.link import Channel, ChannelClosed

_TOO_LARGE = re.compile(r"message size \d+ is larger than configured max size (\d+)")
Outcomes = list[TransportUnavailable | None]


class Parcel(Struct, frozen=True):
    """A message and where it goes.

    spare   headers that it goes without where they do not fit into a frame, the first ones first
    """

    exchange: str
    key: str
    properties: BasicProperties
    body: bytes
    spare: Sequence[str] = ()


class NotTaken(TransportUnavailable):
    """The broker does not have it, and may take it later."""

    status = SendStatus.BUSY


class Unroutable(NotTaken):
    """No queue takes it: it was not published, and is kept where it came from. Somebody may make the queue."""


class NeverTaken(TransportUnavailable):
    """It cannot be said in AMQP, or is larger than the broker takes."""

    status = SendStatus.REFUSED


_FOR_A_MESSAGE: dict[int, type[TransportUnavailable]] = {  # why the broker closes who publishes, and what that says
    403: NotTaken,  # access refused: we may not publish there
    404: NotTaken,  # there is no such exchange
    311: NeverTaken,  # content too large
    406: NeverTaken,  # precondition failed: a property or a header that it does not allow
    501: NeverTaken,  # frame error: headers that fill one
    502: NeverTaken,  # syntax error
    541: NeverTaken,  # internal error: it fails on it, as on a number that is none
}


def result_of(outcome: TransportUnavailable | None) -> SendResult:
    """What an outcome says to who sent it. Of what was published, and never answered, nobody knows."""
    if outcome is None:
        return ACCEPTED
    status = outcome.status if isinstance(outcome, NotTaken | NeverTaken) else SendStatus.UNKNOWN
    return SendResult(status, str(outcome))


class Batch:
    """What is published together: one future for all of it."""

    def __init__(self, size: int) -> None:
        self.outcomes: Outcomes = [None] * size
        self.known: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._unknown = size

    def answer(self, number: int, error: TransportUnavailable | None) -> None:
        if error is not None:
            self.outcomes[number] = error
        self._unknown -= 1
        if not self._unknown and not self.known.done():
            self.known.set_result(None)


class Confirms:
    """A channel, and what is published on it and not yet confirmed. Both end together."""

    def __init__(self, channel: Channel, name: str) -> None:
        self.channel = channel
        self._name = name
        self.suspects = 0  # were in flight when the broker closed it for one of them
        self._sent = 0
        self._first = 1  # no tag below it is open
        self._open: dict[int, tuple[Batch, int, Parcel]] = {}
        self._returned: dict[int, TransportUnavailable] = {}  # each comes back before its confirm

    async def begin(self) -> None:
        raw = self.channel.raw
        self.channel.on_close.append(self._fail)
        raw.add_on_return_callback(self._came_back)
        await self.channel.call(raw.confirm_delivery, self._confirmed)

    def publish(self, parcel: Parcel, batch: Batch, number: int) -> None:
        """Its tag is counted once it is on its way: what cannot be encoded never had one."""
        channel = self.channel
        if channel.closed is not None:
            return batch.answer(number, NotTaken(self._name, channel.closed.why))
        try:
            channel.raw.basic_publish(parcel.exchange, parcel.key, parcel.body, parcel.properties, mandatory=True)
        except AMQPError as error:
            why = str(error) or type(error).__name__
            is_bad = isinstance(error, ProtocolSyntaxError | ShortStringTooLong)
            return batch.answer(number, NeverTaken(self._name, why) if is_bad else NotTaken(self._name, why))
        self._sent += 1
        self._open[self._sent] = batch, number, parcel
        return None

    def end(self, reason: TransportUnavailable) -> None:
        self.channel.closed = self.channel.closed or reason
        self._fail(reason)
        self.channel.abandon()

    def _confirmed(self, frame: Any) -> None:
        method = frame.method
        error = self._refused() if isinstance(method, Basic.Nack) else None
        last = method.delivery_tag
        if not method.multiple:
            return self._answer(last, error)
        for tag in range(self._first, last + 1):
            self._answer(tag, error)
        self._first = last + 1
        return None

    def _answer(self, tag: int, error: TransportUnavailable | None) -> None:
        found = self._open.pop(tag, None)
        if found is not None:
            batch, number, _ = found
            batch.answer(number, self._returned.pop(tag, error) if self._returned else error)

    def _came_back(self, _: Any, method: Any, properties: BasicProperties, body: bytes) -> None:
        """Note a message that no queue took. The broker does not say which it is; those that look like it are alike."""
        way = (method.exchange, method.routing_key, properties.message_id, body)
        for tag, (_batch, _number, parcel) in self._open.items():
            if tag not in self._returned and way == _way(parcel):
                self._returned[tag] = self._unroutable(method)
                return

    def _fail(self, reason: TransportUnavailable) -> None:
        """Of what is open nobody knows; but if the broker closed the channel for a size, or for the only one, it is
        known for which, and that must not take along what is published beside it the next time."""
        found = _TOO_LARGE.search(reason.why)
        most = int(found[1]) if found else inf
        code = reason.code if isinstance(reason, ChannelClosed) else 0
        is_only = len(self._open) == 1
        self.suspects = len(self._open) if code in _FOR_A_MESSAGE and not is_only else 0
        for tag, (_, _, parcel) in tuple(self._open.items()):
            is_wrong = len(parcel.body) > most or (is_only and code in _FOR_A_MESSAGE)
            self._answer(tag, _FOR_A_MESSAGE.get(code, NeverTaken)(self._name, reason.why) if is_wrong else reason)

    def _refused(self) -> NotTaken:
        return NotTaken(self._name, "the broker refused a message: the queue may be at its limit")

    def _unroutable(self, method: Any) -> Unroutable:
        where = f"exchange {method.exchange!r} with key {method.routing_key!r}"
        return Unroutable(self._name, f"no queue takes what is published to {where} ({method.reply_text})")


def _way(parcel: Parcel) -> tuple[str, str, str | None, bytes]:
    return parcel.exchange, parcel.key, parcel.properties.message_id, parcel.body
