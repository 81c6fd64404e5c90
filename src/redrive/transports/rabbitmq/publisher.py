"""Publishing with confirms, many in flight at once: it is done when the broker has taken every one of them.

Everything is mandatory. What no queue takes comes back and is an error, never a message that is gone.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from datetime import timedelta
from math import inf
from typing import Any

from msgspec import Struct
from pika import BasicProperties
from pika.exceptions import AMQPError, ProtocolSyntaxError, ShortStringTooLong
from pika.spec import Basic

from redrive.errors import TransportUnavailable
from redrive.transports.base import ACCEPTED, SendResult, SendStatus
from redrive.transports.rabbitmq.link import Channel, Link
from redrive.transports.rabbitmq.wire import fits

_AT_ONCE = 1000  # in flight
_BREATH = 100  # published before the loop may do something else
_TOO_LARGE = re.compile(r"message size \d+ is larger than configured max size (\d+)")
Outcomes = list[TransportUnavailable | None]


class Parcel(Struct, frozen=True):
    """A message and where it goes."""

    exchange: str
    key: str
    properties: BasicProperties
    body: bytes


class NotTaken(TransportUnavailable):
    """The broker does not have it, and may take it later."""

    status = SendStatus.BUSY


class Unroutable(NotTaken):
    """No queue takes it: it was not published, and is kept where it came from. Somebody may make the queue."""


class NeverTaken(TransportUnavailable):
    """It cannot be said in AMQP, or is larger than the broker takes."""

    status = SendStatus.REFUSED


def result_of(outcome: TransportUnavailable | None) -> SendResult:
    """What an outcome says to who sent it. Of what was published, and never answered, nobody knows."""
    if outcome is None:
        return ACCEPTED
    status = outcome.status if isinstance(outcome, NotTaken | NeverTaken) else SendStatus.UNKNOWN
    return SendResult(status, str(outcome))


class Publisher:
    """One channel for all that is published, on a connection of its own: a broker whose memory is full reads nothing
    from who publishes, and the acks of consumers must still reach it."""

    def __init__(self, link: Link, patience: timedelta) -> None:
        self._link = link
        self._patience = patience.total_seconds()
        self._confirms: _Confirms | None = None
        self._opening = asyncio.Lock()

    @property
    def blocked(self) -> str:
        """Why the broker takes nothing now."""
        return self._link.blocked

    async def aclose(self) -> None:
        await self._link.aclose()

    async def publish(self, parcels: Sequence[Parcel]) -> None:
        """Returns when all are confirmed; raises the first error when all are known."""
        for error in await self.outcomes(parcels):
            if error is not None:
                raise error

    async def outcomes(self, parcels: Sequence[Parcel]) -> Outcomes:
        """For each None, once it is confirmed, or why it is not: NotTaken, NeverTaken, or, where nobody can tell,
        another TransportUnavailable. After a broken connection the rest is not tried."""
        found: Outcomes = []
        while len(found) < len(parcels):
            try:
                found += await self._some(parcels[len(found) : len(found) + _AT_ONCE])
            except TransportUnavailable as error:  # before any of these was published
                found += [NotTaken(error.name, error.why)] * (len(parcels) - len(found))
        return found

    async def _some(self, parcels: Sequence[Parcel]) -> Outcomes:
        if self.blocked:
            raise self._unavailable(f"it takes nothing from publishers: {self.blocked}")
        confirms = await self._opened()
        batch = _Batch(len(parcels))
        for number, parcel in enumerate(parcels):
            if not fits(parcel.properties.headers or {}):
                why = f"the headers of {parcel.properties.message_id!r} fill a frame"
                batch.answer(number, NeverTaken(self._link.name, why))
            else:
                confirms.publish(parcel, batch, number)
            if number % _BREATH == _BREATH - 1:
                await asyncio.sleep(0)
        try:
            async with asyncio.timeout(self._patience):
                await batch.known
        except TimeoutError:
            self._give_up(confirms)
        return batch.outcomes

    async def _opened(self) -> _Confirms:
        async with self._opening:
            if self._confirms is None or self._confirms.channel.closed is not None:
                made = _Confirms(await self._link.channel(), self._link.name)
                try:
                    await made.begin()
                except BaseException:
                    made.channel.abandon()
                    raise
                self._confirms = made
            return self._confirms

    def _give_up(self, confirms: _Confirms) -> None:
        """Leave a channel that has not confirmed in time; whoever waits on it gets the error."""
        why = f"nothing was confirmed within {self._patience:g} s"
        confirms.end(self._unavailable(f"{why}: {self.blocked}" if self.blocked else why))
        if self._confirms is confirms:
            self._confirms = None

    def _unavailable(self, why: str) -> TransportUnavailable:
        return TransportUnavailable(self._link.name, why)


class _Batch:
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


class _Confirms:
    """A channel, and what is published on it and not yet confirmed. Both end together."""

    def __init__(self, channel: Channel, name: str) -> None:
        self.channel = channel
        self._name = name
        self._sent = 0
        self._first = 1  # no tag below it is open
        self._open: dict[int, tuple[_Batch, int, Parcel]] = {}
        self._returned: dict[int, TransportUnavailable] = {}  # each comes back before its confirm

    async def begin(self) -> None:
        raw = self.channel.raw
        self.channel.on_close.append(self._fail)
        raw.add_on_return_callback(self._came_back)
        await self.channel.call(raw.confirm_delivery, self._confirmed)

    def publish(self, parcel: Parcel, batch: _Batch, number: int) -> None:
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
        """Of what is open nobody knows; but if the broker closed the channel for a size, it is known who was too large,
        and must not take along what is published beside it the next time."""
        found = _TOO_LARGE.search(reason.why)
        most = int(found[1]) if found else inf
        refusal = NeverTaken(self._name, reason.why)
        for tag, (_, _, parcel) in tuple(self._open.items()):
            self._answer(tag, refusal if len(parcel.body) > most else reason)

    def _refused(self) -> NotTaken:
        return NotTaken(self._name, "the broker refused a message: the queue may be at its limit")

    def _unroutable(self, method: Any) -> Unroutable:
        where = f"exchange {method.exchange!r} with key {method.routing_key!r}"
        return Unroutable(self._name, f"no queue takes what is published to {where} ({method.reply_text})")


def _way(parcel: Parcel) -> tuple[str, str, str | None, bytes]:
    return parcel.exchange, parcel.key, parcel.properties.message_id, parcel.body
