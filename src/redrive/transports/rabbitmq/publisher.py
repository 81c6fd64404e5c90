"""Publishing with confirms, many in flight at once: it is done when the broker has taken every one of them.

Everything is mandatory. What no queue takes comes back and is an error, never a message that is gone.

The broker closes a channel, or the connection, for one message that it finds wrong, and does not say which. So what
was in flight then is published one by one the next time: the wrong one takes no other along for ever.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from datetime import timedelta

from pika.exceptions import AMQPError

from redrive.errors import TransportUnavailable
from redrive.transports.rabbitmq.confirms import (
    Batch,
    Confirms,
    NeverTaken,
    NotTaken,
    Outcomes,
    Parcel,
    Unroutable,
    result_of,
)
from redrive.transports.rabbitmq.link import Link
from redrive.transports.rabbitmq.properties import is_small, size_of

__all__ = ["NeverTaken", "NotTaken", "Outcomes", "Parcel", "Publisher", "Unroutable", "result_of"]
_AROUND = 8 + 12  # bytes of a frame around the properties
_AT_ONCE = 1000  # in flight
_BREATH = 100  # published before the loop may do something else


class Publisher:
    """One channel for all that is published, on a connection of its own: a broker whose memory is full reads nothing
    from who publishes, and the acks of consumers must still reach it."""

    def __init__(self, link: Link, patience: timedelta) -> None:
        self._link = link
        self._patience = patience.total_seconds()
        self._confirms: Confirms | None = None
        self._opening = asyncio.Lock()
        self._alone = asyncio.Lock()
        self._one_by_one = 0  # so many are to be published alone: one of them may be wrong

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
                found += await self._next(parcels[len(found) : len(found) + _AT_ONCE])
            except TransportUnavailable as error:  # before any of these was published
                found += [NotTaken(error.name, error.why)] * (len(parcels) - len(found))
        return found

    async def _next(self, parcels: Sequence[Parcel]) -> Outcomes:
        """The outcomes of the first of them, or of all."""
        if not self._one_by_one:
            return await self._some(parcels)
        async with self._alone:
            self._one_by_one = max(self._one_by_one - 1, 0)
            return await self._some(parcels[:1])

    async def _some(self, parcels: Sequence[Parcel]) -> Outcomes:
        if self.blocked:
            raise self._unavailable(f"it takes nothing from publishers: {self.blocked}")
        confirms = await self._opened()
        batch = Batch(len(parcels))
        for number, parcel in enumerate(parcels):
            if why := self._prepared(parcel):
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
        self._one_by_one, confirms.suspects = max(self._one_by_one, confirms.suspects), 0
        return batch.outcomes

    def _prepared(self, parcel: Parcel) -> str:
        """Make it fit into a frame, without what it can spare. Says why it cannot be published; empty: it can."""
        properties, capacity = parcel.properties, self._link.frame_max - _AROUND
        if properties.user_id is not None and properties.user_id != self._link.user:
            properties.user_id = None  # the broker closes the channel of who says to be another
        try:
            if is_small(properties, capacity) or (size := size_of(properties)) <= capacity:
                return ""
            for name in parcel.spare:
                if properties.headers.pop(name, None) is not None and (size := size_of(properties)) <= capacity:
                    return ""
        except (ValueError, TypeError, AttributeError, AMQPError, AssertionError, struct.error) as error:
            return f"{properties.message_id!r} cannot be said in AMQP: {error}"
        return (
            f"the headers of {properties.message_id!r} fill a frame: they take {size:,} bytes, and it has {capacity:,}"
        )

    async def _opened(self) -> Confirms:
        async with self._opening:
            if self._confirms is None or self._confirms.channel.closed is not None:
                made = Confirms(await self._link.channel(), self._link.name)
                try:
                    await made.begin()
                except BaseException:
                    made.channel.abandon()
                    raise
                self._confirms = made
            return self._confirms

    def _give_up(self, confirms: Confirms) -> None:
        """Leave a channel that has not confirmed in time; whoever waits on it gets the error."""
        why = f"nothing was confirmed within {self._patience:g} s"
        confirms.end(self._unavailable(f"{why}: {self.blocked}" if self.blocked else why))
        if self._confirms is confirms:
            self._confirms = None

    def _unavailable(self, why: str) -> TransportUnavailable:
        return TransportUnavailable(self._link.name, why)
