"""RabbitMQ as a transport: competing consumers, confirmed publishing, retries in queues that wait."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from msgspec.structs import replace

from redrive.clock import Clock
from redrive.errors import TransportUnavailable
from redrive.model import Done, Message, Release, Retry
from redrive.transports.base import Delivery, Depth, Features, Settlement
from redrive.transports.rabbitmq.declaring import Declaring, is_there
from redrive.transports.rabbitmq.link import Link
from redrive.transports.rabbitmq.options import BuryIn, Options, RetryBy, options_of
from redrive.transports.rabbitmq.parking import DeadLetterQueues
from redrive.transports.rabbitmq.publisher import Parcel, Publisher
from redrive.transports.rabbitmq.subscription import SUSPICIOUS, Held, Overdue, Subscription, Taken, is_suspicious
from redrive.transports.rabbitmq.topology import Declared, Topology, declared, retry_exchange, retry_key
from redrive.transports.rabbitmq.wire import Arrived, copy_of, properties_of

if TYPE_CHECKING:
    from redrive.transports.rabbitmq.examining import Examined


class RabbitTransport:
    """A source is a queue. Each has its retry queues and its dead-letter queue beside it (topology.py)."""

    features = Features(
        durable=True,
        native_delay=True,
        counts_attempts=True,
        keeps_history=True,
        ordered_by="none",
        idempotent_send=False,
        shared=True,
        urgent_first=False,
    )

    def __init__(self, options: Options, *, clock: Clock, lease: timedelta) -> None:
        self.options = options
        self.features = replace(self.features, keeps_history=options.retry is RetryBy.PUBLISH)
        self._clock = clock
        self._lease = lease
        self._link = Link(options)
        self._publisher = Publisher(Link(options), options.confirm_timeout)
        self._declaring = Declaring(self._link, options)
        self._subscriptions: dict[str, Subscription] = {}
        self._subscribing: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    # -- receiving ---------------------------------------------------------------------------------------------------

    async def receive(self, source: str, limit: int) -> Sequence[Delivery]:
        while True:
            subscription = await self._subscribed(source)
            if subscription.is_narrow:
                taken = await subscription.receive_alone(self._adopt)
            elif not (taken := await subscription.receive(limit, self._adopt)):
                await self._narrow(subscription)
            if taken:
                return taken

    async def _narrow(self, subscription: Subscription) -> None:
        """What was taken ahead goes back as it was: nobody has begun it."""
        ahead = await subscription.narrow()
        kept = ahead
        try:
            outcomes = await self._publisher.outcomes([_unchanged(subscription, one) for one in ahead])
            subscription.ack([one[0] for one, error in zip(ahead, outcomes, strict=True) if error is None])
            kept = [one for one, error in zip(ahead, outcomes, strict=True) if error is not None]
        finally:
            subscription.keep(kept)

    async def _subscribed(self, source: str) -> Subscription:
        async with self._subscribing[source]:
            known = self._subscriptions.get(source)
            if known is not None and known.closed is None:
                return known
            if known is not None:
                self._declaring.forget(source)
                await known.aclose()
            await self._declaring.ensure(source)
            channel = await self._link.channel()
            made = Subscription(source, channel, self._clock, self._lease, self._count)
            try:
                await made.begin(self.options.prefetch)
            except BaseException:
                channel.abandon()  # with all that was sent ahead on it
                raise
            self._subscriptions[source] = made
            return made

    async def _adopt(self, subscription: Subscription) -> None:
        """Somebody had them and settled nothing. RabbitMQ does not count that, so a copy does: it goes in at the end
        of the queue, and only then is the old one acknowledged."""
        taken = subscription.suspects()
        unsettled = taken
        try:
            outcomes = await self._publisher.outcomes([_counted(subscription, one) for one in taken])
            subscription.ack([one[0] for one, error in zip(taken, outcomes, strict=True) if error is None])
            unsettled = [one for one, error in zip(taken, outcomes, strict=True) if error is not None]
        finally:
            subscription.take_back(unsettled)
        for error in outcomes:
            if error is not None:
                raise error

    async def _count(self, subscription: Subscription, overdue: Sequence[Overdue]) -> None:
        """Their leases ended in our hands: they were tried, and are suspicious. Where that cannot be written, they
        just go back."""
        parcels = [
            _copied(came, attempt=came.message.attempt + 1, unsettled=max(came.unsettled, SUSPICIOUS))
            for _, came in overdue
        ]
        outcomes = await self._publisher.outcomes(parcels)
        for (tag, _), error in zip(overdue, outcomes, strict=True):
            if error is None:
                subscription.ack([tag])
            else:
                subscription.reject(tag, requeue=True)

    async def extend(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        return [one for one in deliveries if not _held(one).subscription.extend(_held(one).tag)]

    # -- settling ----------------------------------------------------------------------------------------------------

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Delivery]:
        """Copies are confirmed before anything is acknowledged that they stand for."""
        lost: list[Delivery] = []
        done: list[Settlement] = []
        copied: list[Settlement] = []
        for one in settlements:
            held = _held(one.delivery)
            if not held.subscription.holds(held.tag):
                lost.append(one.delivery)
            elif isinstance(one.outcome, Done):
                done.append(one)
            elif isinstance(one.outcome, Retry) and self.options.retry is RetryBy.REJECT:
                held.subscription.reject(held.tag, requeue=False)
            else:
                copied.append(one)
        _ack(done)
        if copied:
            await self._copy(copied)
        return lost

    async def _copy(self, settlements: Sequence[Settlement]) -> None:
        outcomes = await self._publisher.outcomes([self._parcel(one) for one in settlements])
        _ack([one for one, error in zip(settlements, outcomes, strict=True) if error is None])
        for error in outcomes:
            if error is not None:
                raise error

    def _parcel(self, one: Settlement) -> Parcel:
        held, delivery, outcome = _held(one.delivery), one.delivery, one.outcome
        message, failures = delivery.message, delivery.failures
        if isinstance(outcome, Retry):
            failures = failures if one.failure is None else (*failures, one.failure)
            wait, attempt = outcome.after, message.attempt + 1
        else:
            assert isinstance(outcome, Release)
            wait, attempt = outcome.pause, message.attempt
        unsettled = min(held.came.unsettled, 1)  # it has not taken its worker down, but may have a letter
        properties = copy_of(held.came, attempt=attempt, unsettled=unsettled, failures=failures)
        return Parcel(*self._way(message.source, wait), properties, message.body)

    def _way(self, source: str, wait: timedelta) -> tuple[str, str]:
        """Exchange and key: of the shortest wait that is long enough, or of the longest there is."""
        if wait <= timedelta():
            return "", source
        delays = sorted(self.options.delays)
        chosen = next((one for one in delays if one >= wait), delays[-1])
        return retry_exchange(source), retry_key(chosen if len(delays) > 1 else None)

    # -- sending -----------------------------------------------------------------------------------------------------

    async def send(self, messages: Sequence[Message]) -> None:
        for source in dict.fromkeys(message.source for message in messages):
            await self._declaring.ensure(source)
        now = self._clock.now()
        parcels = []
        for message in messages:
            wait = timedelta() if message.not_before is None else message.not_before - now
            properties = properties_of(message)
            parcels.append(Parcel(*self._way(message.source, wait), properties, message.body))
        await self._publisher.publish(parcels)

    # -- the rest ----------------------------------------------------------------------------------------------------

    async def depths(self) -> dict[str, Depth]:
        """Of the queues that this instance knows; what other workers hold is not among them."""
        found: dict[str, Depth] = {}
        for source in list(self._declaring.known):
            ready, delayed = await self._declaring.counts(source)
            mine = self._subscriptions.get(source)
            if mine is not None and mine.closed is None:
                found[source] = Depth(ready + mine.waiting, delayed, mine.leased)
            else:
                found[source] = Depth(ready, delayed, 0)
        return {source: depth for source, depth in found.items() if depth.total or source in self._subscriptions}

    async def check(self) -> None:
        channel = await self._link.channel()
        await channel.close()
        if self._publisher.blocked:
            raise TransportUnavailable(self._link.name, f"it takes nothing from publishers: {self._publisher.blocked}")

    @property
    def makes_queues(self) -> bool:
        return self.options.declare

    async def examined(self, sources: Sequence[str]) -> Examined:
        """How the broker differs from what these sources need. Nothing is missing of a queue that we are to make and
        nobody has used yet; of one that we are not to make, its arguments are not ours."""
        from redrive.transports.rabbitmq.examining import examined
        from redrive.transports.rabbitmq.management import Management

        options = self.options
        used = [one for one in sources if not options.declare or await is_there(self._link, one)]
        management = Management(options.management_url, vhost=options.vhost)
        try:
            wanted = declared(Topology(tuple(map(options.queue, used)))) if used else Declared((), (), ())
            found = await examined(self._link, management, wanted)
        finally:
            await management.aclose()
        if options.declare:
            return found
        return replace(found, missing=tuple([one for one in found.missing if self._needs(one)]), clashes=())

    def _needs(self, part: str) -> bool:
        is_parking = part.endswith(".dlq") or part.startswith("exchange dlq.")
        return not is_parking or self.options.bury is not BuryIn.STORE

    def dead_letter_place(self, source: str) -> DeadLetterQueues | None:
        """`q.X.dlq`, beside the store or instead of it, by the option `bury`."""
        bury = self.options.bury
        if bury is BuryIn.STORE:
            return None
        return DeadLetterQueues(self._publisher, name=self._link.name, replaces_store=bury is BuryIn.DLQ)

    async def aclose(self) -> None:
        """What was taken ahead and not begun goes back as it was: it was not delivered to anybody."""
        subscriptions, self._subscriptions = self._subscriptions, {}
        for one in subscriptions.values():
            try:
                await one.stop()
                await self._give_back(one)
            except TransportUnavailable:
                pass  # it comes back by itself, as delivered before
            await one.aclose()
        await self._link.aclose()
        await self._publisher.aclose()

    async def _give_back(self, subscription: Subscription) -> None:
        suspects = subscription.suspects()
        parcels = [_counted(subscription, one) for one in suspects]
        unread = subscription.unread()
        parcels += [_unchanged(subscription, one) for one in unread]
        outcomes = await self._publisher.outcomes(parcels)
        taken = [*suspects, *unread]
        subscription.ack([one[0] for one, error in zip(taken, outcomes, strict=True) if error is None])


def _counted(subscription: Subscription, taken: Taken) -> Parcel:
    """A copy that says that somebody had it before. Who was handed out with nothing taken ahead has been tried; of
    the others nobody can tell."""
    came = subscription.read(taken)
    return _copied(came, attempt=came.message.attempt + is_suspicious(came), unsettled=came.unsettled + 1)


def _unchanged(subscription: Subscription, taken: Taken) -> Parcel:
    came = subscription.read(taken)
    return _copied(came, attempt=came.message.attempt, unsettled=came.unsettled)


def _copied(came: Arrived, *, attempt: int, unsettled: int) -> Parcel:
    properties = copy_of(came, attempt=attempt, unsettled=unsettled, failures=came.failures)
    return Parcel("", came.message.source, properties, came.message.body)


def _held(delivery: Delivery) -> Held:
    held: Held = delivery.token
    return held


def _ack(settlements: Sequence[Settlement]) -> None:
    tags: dict[Subscription, list[int]] = defaultdict(list)
    for one in settlements:
        held = _held(one.delivery)
        tags[held.subscription].append(held.tag)
    for subscription, some in tags.items():
        subscription.ack(some)


def open_transport(url: str, *, clock: Clock, lease: timedelta) -> RabbitTransport:
    """`amqp://user:password@host/vhost`."""
    return RabbitTransport(options_of(url), clock=clock, lease=lease)
