"""Publishing with confirms, many in flight at once: it is done when the broker has taken every one of them.

Everything is mandatory. What no queue takes comes back and is an error, never a message that is gone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

from msgspec import Struct
from pika import BasicProperties
from pika.exceptions import AMQPError
from pika.spec import Basic

from redrive.errors import TransportUnavailable
from redrive.transports.rabbitmq.link import Channel, Link

_AT_ONCE = 1000  # in flight
_BREATH = 100  # published before the loop may do something else


class Parcel(Struct, frozen=True):
    """A message and where it goes."""

    exchange: str
    key: str
    properties: BasicProperties
    body: bytes


class Unroutable(TransportUnavailable):
    """No queue takes it: it was not published, and is kept where it came from."""


class Publisher:
    """One channel for all that is published. Its order is the order of the calls."""

    def __init__(self, link: Link, patience: timedelta) -> None:
        self._link = link
        self._patience = patience.total_seconds()
        self._channel: Channel | None = None
        self._opening = asyncio.Lock()
        self._sent = 0
        self._unconfirmed: deque[tuple[int, asyncio.Future[None], Parcel]] = deque()

    async def publish(self, parcels: Sequence[Parcel]) -> None:
        """Returns when all are confirmed; raises the first error when all are known."""
        for error in await self.outcomes(parcels):
            if error is not None:
                raise error

    async def outcomes(self, parcels: Sequence[Parcel]) -> list[TransportUnavailable | None]:
        """For each None, once it is confirmed, or why it is not."""
        found: list[TransportUnavailable | None] = []
        for start in range(0, len(parcels), _AT_ONCE):
            found += await self._some(parcels[start : start + _AT_ONCE])
        return found

    async def _some(self, parcels: Sequence[Parcel]) -> list[TransportUnavailable | None]:
        if self._link.blocked:
            raise self._unavailable(f"it takes nothing from publishers: {self._link.blocked}")
        channel = await self._opened()
        confirms: list[asyncio.Future[None]] = []
        for number, parcel in enumerate(parcels, 1):
            confirms.append(self._publish(channel, parcel))
            if not number % _BREATH:
                await asyncio.sleep(0)
        try:
            async with asyncio.timeout(self._patience):
                await asyncio.wait(confirms)
        except TimeoutError:
            await self._give_up(channel)
        return [_outcome(one) for one in confirms]

    def _publish(self, channel: Channel, parcel: Parcel) -> asyncio.Future[None]:
        confirmed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if channel.closed is not None:
            confirmed.set_exception(channel.closed)
            return confirmed
        self._sent += 1
        self._unconfirmed.append((self._sent, confirmed, parcel))
        try:
            channel.raw.basic_publish(parcel.exchange, parcel.key, parcel.body, parcel.properties, mandatory=True)
        except AMQPError as error:
            _fail(confirmed, channel.closed or self._unavailable(str(error) or type(error).__name__))
        return confirmed

    async def _opened(self) -> Channel:
        async with self._opening:
            if self._channel is None or self._channel.closed is not None:
                channel = await self._link.channel()
                self._sent = 0
                self._unconfirmed = deque()
                channel.on_close.append(self._closed)
                channel.raw.add_on_return_callback(self._returned)
                await channel.call(channel.raw.confirm_delivery, self._confirmed)
                self._channel = channel
            return self._channel

    async def _give_up(self, channel: Channel) -> None:
        """No confirm in time: the channel is left, so that a late one is not taken for another's."""
        why = f"nothing was confirmed within {self._patience:g} s"
        if self._link.blocked:
            why += f": {self._link.blocked}"
        self._fail_all(self._unavailable(why))
        self._channel = None
        channel.on_close.clear()
        if channel.raw.is_open:
            channel.raw.close()

    # -- what the broker says ----------------------------------------------------------------------------------------

    def _confirmed(self, frame: Any) -> None:
        method = frame.method
        bad = isinstance(method, Basic.Nack)
        last, queue = method.delivery_tag, self._unconfirmed
        if method.multiple:
            while queue and queue[0][0] <= last:
                self._answer(queue.popleft()[1], bad)
        elif queue and queue[0][0] == last:
            self._answer(queue.popleft()[1], bad)
        else:
            self._answer(next((one for tag, one, _ in queue if tag == last), None), bad)
        while queue and queue[0][1].done():
            queue.popleft()

    def _answer(self, confirmed: asyncio.Future[None] | None, bad: bool) -> None:
        if confirmed is None or confirmed.done():
            return
        if bad:
            confirmed.set_exception(self._unavailable("the broker refused a message: the queue may be at its limit"))
        else:
            confirmed.set_result(None)

    def _returned(self, _: Any, method: Any, properties: BasicProperties, body: bytes) -> None:
        """It comes before the confirm of the same message; ids tell which that is."""
        why = f"no queue takes what is published to exchange {method.exchange!r} with key {method.routing_key!r}"
        for _tag, confirmed, parcel in self._unconfirmed:
            same = (parcel.exchange, parcel.key, parcel.properties.message_id) == (
                method.exchange,
                method.routing_key,
                properties.message_id,
            )
            if same and not confirmed.done() and len(parcel.body) == len(body):
                return _fail(confirmed, Unroutable(self._link.name, f"{why} ({method.reply_text})"))
        return None

    def _closed(self, reason: TransportUnavailable) -> None:
        self._fail_all(reason)

    def _fail_all(self, reason: TransportUnavailable) -> None:
        waiting, self._unconfirmed = self._unconfirmed, deque()
        _fail_each((one for _, one, _ in waiting), reason)

    def _unavailable(self, why: str) -> TransportUnavailable:
        return TransportUnavailable(self._link.name, why)


def _fail_each(waiting: Iterable[asyncio.Future[None]], reason: TransportUnavailable) -> None:
    for one in waiting:
        _fail(one, reason)


def _fail(confirmed: asyncio.Future[None], reason: TransportUnavailable) -> None:
    if not confirmed.done():
        confirmed.set_exception(reason)


def _outcome(confirmed: asyncio.Future[None]) -> TransportUnavailable | None:
    error = confirmed.exception()
    assert error is None or isinstance(error, TransportUnavailable)
    return error
