"""RabbitMQ as a transport: competing consumers, confirmed publishing, retries in queues that wait."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from redrive.clock import Clock
from redrive.errors import ConfigError, TransportUnavailable
from redrive.model import Done, Message, Release, Retry
from redrive.transports.base import (
    Block,
    CannotReturn,
    Delivery,
    Depth,
    Features,
    Listing,
    QueueState,
    SendResult,
    Settlement,
    busy,
)
from redrive.transports.rabbitmq.block import TakenBlock, are_plain
from redrive.transports.rabbitmq.dead_letter_queues import DeadLetterQueues
from redrive.transports.rabbitmq.declaring import Declaring, is_there
from redrive.transports.rabbitmq.link import ChannelClosed, Link
from redrive.transports.rabbitmq.options import MOST_PREFETCHED, BuryIn, Options, Redeliveries, RetryBy, options_of
from redrive.transports.rabbitmq.publisher import NeverTaken, Parcel, Publisher, Unroutable, result_of
from redrive.transports.rabbitmq.redelivery import Event, Redelivery, after
from redrive.transports.rabbitmq.subscription import Subscription, Taken, delivery_of
from redrive.transports.rabbitmq.topology import Declared, Topology, declared, retry_exchange, retry_key
from redrive.transports.rabbitmq.wire import SPARE, Arrived, copy_of, properties_of

if TYPE_CHECKING:
    from redrive.transports.rabbitmq.examining import Examined

Refused: TypeAlias = list[tuple[Taken, TransportUnavailable]]  # what the broker did not take, and why


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
        counts_leased=False,
    )

    def __init__(self, options: Options, *, clock: Clock, lease: timedelta) -> None:
        self.options = options
        self.features = replace(self.features, keeps_history=options.retry is RetryBy.PUBLISH)
        self._counts = options.redeliveries is Redeliveries.COUNT
        self._clock = clock
        self._lease = lease
        self._link = Link(options)
        self._publisher = Publisher(Link(options), options.confirm_timeout)
        self._declaring = Declaring(self._link, options)
        self._held: dict[str, int] = {}  # how many a batch handler holds at a time
        self._subscriptions: dict[str, Subscription] = {}
        self._subscribing: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._pauses: dict[str, asyncio.Event] = {}  # of paused sources: set when they go on

    def prefetch(self, source: str, number: int) -> None:
        self._held[source] = min(number, MOST_PREFETCHED)

    # -- receiving ---------------------------------------------------------------------------------------------------

    async def receive(self, source: str, limit: int) -> Sequence[Delivery]:
        return [delivery_of(taken) for taken in await self._take(source, limit)]

    async def receive_block(self, source: str, limit: int) -> Sequence[Delivery] | Block:
        leased = await self._take(source, limit)
        return TakenBlock(leased) if are_plain(leased) else [delivery_of(taken) for taken in leased]

    async def _take(self, source: str, limit: int) -> list[Taken]:
        while True:
            while source in self._pauses:
                await self._pauses[source].wait()
            subscription = await self._subscribed(source)
            if leased := await subscription.take(limit, self._count):
                return leased
            if subscription.inbox.must_slow_down:
                await self._slow_down(subscription)

    async def set_paused(self, sources: Collection[str]) -> None:
        """Cancel their consumers, and give back what was prefetched. A source that nobody has received from yet is not
        subscribed to before it goes on."""
        for source in sources:
            self._pauses.setdefault(source, asyncio.Event())
            await self._pause(source)
        for source in [source for source in self._pauses if source not in sources]:
            await self._resume(source)
            self._pauses.pop(source).set()

    async def _pause(self, source: str) -> None:
        async with self._subscribing[source]:
            subscription = self._subscriptions.get(source)
            if subscription is not None and subscription.closed is None:
                await subscription.pause()
                await self._empty(subscription)

    async def _resume(self, source: str) -> None:
        async with self._subscribing[source]:
            subscription = self._subscriptions.get(source)
            if subscription is not None and subscription.closed is None:
                await subscription.resume()

    async def _empty(self, subscription: Subscription) -> None:
        """Give back what was handed out to nobody; what the broker does not take stays here, untried, and is given back
        or handed out later."""
        if not self._counts:
            for taken in (*subscription.inbox.take_uncounted(), *subscription.inbox.take_ready()):
                subscription.reject(taken.tag, requeue=True)
            return
        uncounted = waiting = subscription.inbox.take_uncounted()
        ready = kept = subscription.inbox.take_ready()
        try:
            waiting = [taken for taken, _ in await self._copy_all(subscription, uncounted, Event.REDELIVERED)]
            kept = [taken for taken, _ in await self._copy_all(subscription, ready, Event.NOT_STARTED)]
        finally:
            if subscription.closed is None:
                subscription.inbox.put_back_uncounted(waiting)
                subscription.inbox.put_back(kept)

    async def _slow_down(self, subscription: Subscription) -> None:
        """Stop prefetching, and give back what nobody has started."""
        kept = prefetched = await subscription.slow_down()
        try:
            kept = [taken for taken, _ in await self._copy_all(subscription, prefetched, Event.NOT_STARTED)]
        finally:
            if subscription.closed is None:
                subscription.inbox.put_back(kept)

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
            made = Subscription(source, channel, self._clock, self._lease, self._expire, counts=self._counts)
            try:
                await made.begin(max(self.options.prefetch, self._held.get(source, 0)))
            except BaseException:
                channel.abandon()  # with all that was sent ahead on it
                raise
            self._subscriptions[source] = made
            if source in self._pauses:  # since `receive` has looked
                await made.pause()
                await self._empty(made)
            return made

    async def _count(self, subscription: Subscription) -> None:
        """Count the redeliveries in the inbox: RabbitMQ does not, so a copy at the end of the queue does. What can have
        no copy is handed out, and says so: it holds up nothing."""
        refused: Refused = []
        uncounted = waiting = subscription.inbox.take_uncounted()
        never: list[Taken] = []
        try:
            refused = await self._copy_all(subscription, uncounted, Event.REDELIVERED)
            never = [_uncountable(taken, error) for taken, error in refused if isinstance(error, NeverTaken)]
            waiting = [taken for taken, error in refused if not isinstance(error, NeverTaken)]
        finally:
            if subscription.closed is None:
                subscription.inbox.put_back(never)
                subscription.inbox.put_back_uncounted(waiting)
        for _, error in refused:
            if not never and not isinstance(error, NeverTaken):
                raise error

    async def _expire(self, subscription: Subscription, expired: Sequence[Taken]) -> None:
        """Give back messages whose lease ended in our hands. Where that cannot be counted, they just go back."""
        if self._counts:
            expired = [taken for taken, _ in await self._copy_all(subscription, expired, Event.LEASE_EXPIRED)]
        for taken in expired:
            subscription.reject(taken.tag, requeue=True)

    async def _copy_all(self, subscription: Subscription, messages: Sequence[Taken], event: Event) -> Refused:
        """Put copies that say what happened at the end of the queue, and acknowledge those that are confirmed.

        Returns the others, each with why it was not.
        """
        outcomes = await self._publisher.outcomes([_copy_after(taken.came, event) for taken in messages])
        subscription.ack([taken.tag for taken, error in zip(messages, outcomes, strict=True) if error is None])
        return [(taken, error) for taken, error in zip(messages, outcomes, strict=True) if error is not None]

    async def extend(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        return [delivery for delivery in deliveries if not _extended(_taken(delivery))]

    # -- settling ----------------------------------------------------------------------------------------------------

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Delivery]:
        """Copies are confirmed before anything is acknowledged that they stand for."""
        lost: list[Delivery] = []
        done: list[Settlement] = []
        copied: list[Settlement] = []
        for settlement in settlements:
            taken, outcome = _taken(settlement.delivery), settlement.outcome
            if not taken.subscription.holds(taken.tag):
                lost += [settlement.delivery] if taken.subscription.has_lost(taken.tag) else []
            elif isinstance(outcome, Done):
                done.append(settlement)
            elif isinstance(outcome, Retry) and self.options.retry is RetryBy.REJECT:
                taken.subscription.reject(taken.tag, requeue=False)
            elif isinstance(outcome, Release) and not self._counts:
                taken.requeue(outcome.pause)
            else:
                copied.append(settlement)
        _ack(done)
        if copied:
            await self._copy(copied)
        return lost

    def settle_block(self, block: Block) -> Sequence[Delivery]:
        assert isinstance(block, TakenBlock)
        return block.ack()

    async def _copy(self, settlements: Sequence[Settlement]) -> None:
        outcomes = await self._publisher.outcomes([self._parcel(settlement) for settlement in settlements])
        answers = list(zip(settlements, outcomes, strict=True))
        _ack([settlement for settlement, error in answers if error is None])
        never = [(settlement, error) for settlement, error in answers if isinstance(error, NeverTaken)]
        for settlement, _ in never:
            if isinstance(settlement.outcome, Release):
                _taken(settlement.delivery).requeue(settlement.outcome.pause)
        if why := {id(settlement.delivery): error.why for settlement, error in never if _is_retry(settlement)}:
            raise CannotReturn(why)
        for error in outcomes:
            if error is not None and not isinstance(error, NeverTaken):
                raise error

    def _parcel(self, settlement: Settlement) -> Parcel:
        delivery, outcome = settlement.delivery, settlement.outcome
        came, failures = _taken(delivery).came, delivery.failures
        if isinstance(outcome, Retry):
            failures = failures if settlement.failure is None else (*failures, settlement.failure)
            wait, following = outcome.after, after(came.state, Event.RETRIED)
        else:
            assert isinstance(outcome, Release)
            wait, following = outcome.pause, after(came.state, Event.RELEASED)
        message = delivery.message
        properties = copy_of(
            came, attempt=message.attempt + following.attempts, state=following.state, failures=failures
        )
        return Parcel(*self._way(message.source, wait), properties, message.body, SPARE)

    def _way(self, source: str, wait: timedelta) -> tuple[str, str]:
        """Exchange and key: of the shortest wait that is long enough, or of the longest there is."""
        if wait <= timedelta():
            return "", source
        delays = sorted(self.options.delays)
        chosen = next((delay for delay in delays if delay >= wait), delays[-1])
        return retry_exchange(source), retry_key(chosen if len(delays) > 1 else None)

    # -- sending -----------------------------------------------------------------------------------------------------

    async def send(self, messages: Sequence[Message]) -> Sequence[SendResult]:
        """A source whose queue cannot be used is not tried; the others do not wait for it. Nothing is declared for what
        is sent back: its queue was there when it died, and may be somebody else's, made otherwise."""
        made = {message.source for message in messages if not message.was_sent_back}
        unusable = await self._unusable(made, self._declaring.ensure)
        unusable |= await self._unusable({message.source for message in messages} - made, self._declaring.look)
        usable = [message for message in messages if message.source not in unusable]
        outcomes = await self._publisher.outcomes([self._parcel_of(message) for message in usable])
        for message, outcome in zip(usable, outcomes, strict=True):
            if isinstance(outcome, Unroutable):
                self._declaring.forget(message.source)  # it was deleted: the next time it is made again
        results = iter(outcomes)
        return [unusable.get(message.source) or result_of(next(results)) for message in messages]

    async def _unusable(
        self, sources: Collection[str], prepare: Callable[[str], Awaitable[None]]
    ) -> dict[str, SendResult]:
        """The sources whose queue cannot be used now, and why."""
        found: dict[str, SendResult] = {}
        for source in sources:
            try:
                await prepare(source)
            except (ChannelClosed, ConfigError) as error:
                found[source] = busy(error)
            except TransportUnavailable as error:  # nobody is there, for none of them
                return dict.fromkeys(sources, busy(error))
        return found

    def _parcel_of(self, message: Message) -> Parcel:
        wait = timedelta() if message.not_before is None else message.not_before - self._clock.now()
        return Parcel(*self._way(message.source, wait), properties_of(message), message.body)

    # -- the rest ----------------------------------------------------------------------------------------------------

    async def depths(self) -> dict[str, Depth]:
        """The depths of the queues that this instance knows; what other workers hold is not counted."""
        found: dict[str, Depth] = {}
        for source in self._declaring.sources:
            ready, delayed = await self._declaring.counts(source)
            mine = self._subscriptions.get(source)
            if mine is not None and mine.closed is None:
                found[source] = Depth(ready + len(mine.inbox), delayed, mine.leased)
            else:
                found[source] = Depth(ready, delayed, 0)
        return {source: depth for source, depth in found.items() if depth.total or source in self._subscriptions}

    async def check(self) -> None:
        channel = await self._link.channel()
        await channel.close()
        if self._publisher.blocked:
            raise TransportUnavailable(self._link.name, f"it takes nothing from publishers: {self._publisher.blocked}")

    @property
    def holder(self) -> str:
        return ""

    async def listing(
        self, source: str, *, state: QueueState | None = None, after: str | None = None, limit: int = 100
    ) -> Listing:
        """Counts, in words: RabbitMQ shows a message only to who takes it."""
        from redrive.transports.rabbitmq.listing import notes

        if not await is_there(self._link, source):
            return Listing(notes=(f"the broker has no queue {source!r}",))
        return Listing(notes=tuple(await notes(self._link, self.options, source)))

    async def has_source(self, source: str) -> bool:
        return await is_there(self._link, source)

    @property
    def makes_queues(self) -> bool:
        return self.options.declare

    async def examined(self, sources: Sequence[str]) -> Examined:
        """How the broker differs from what these sources need. Nothing is missing of a queue that we are to make and
        nobody has used yet; of one that we are not to make, its arguments are not ours."""
        from redrive.transports.rabbitmq.examining import examined
        from redrive.transports.rabbitmq.management import Management

        options = self.options
        used = [source for source in sources if not options.declare or await is_there(self._link, source)]
        management = Management(options.management_url, vhost=options.vhost)
        try:
            wanted = declared(Topology(tuple(map(options.queue, used)))) if used else Declared((), (), ())
            found = await examined(self._link, management, wanted)
        finally:
            await management.aclose()
        if options.declare:
            return found
        return replace(found, missing=tuple([part for part in found.missing if self._needs(part)]), clashes=())

    def _needs(self, part: str) -> bool:
        is_dead_letter = part.endswith(".dlq") or part.startswith("exchange dlq.")
        return not is_dead_letter or self.options.bury is not BuryIn.STORE

    def dead_letter_place(self, source: str) -> DeadLetterQueues | None:
        """`q.X.dlq`, beside the store or instead of it, by the option `bury`."""
        bury = self.options.bury
        if bury is BuryIn.STORE:
            return None
        return DeadLetterQueues(self._publisher, name=self._link.name, replaces_store=bury is BuryIn.DLQ)

    async def aclose(self) -> None:
        """Close it. What was prefetched and not started goes back as it was: it was not delivered to anybody."""
        subscriptions, self._subscriptions = self._subscriptions, {}
        for subscription in subscriptions.values():
            try:
                await subscription.stop()
                if self._counts:  # otherwise they go back by themselves
                    await self._give_back(subscription)
            except TransportUnavailable:
                pass  # it comes back by itself, as delivered before
            await subscription.aclose()
        await self._link.aclose()
        await self._publisher.aclose()

    async def _give_back(self, subscription: Subscription) -> None:
        await self._copy_all(subscription, subscription.inbox.take_uncounted(), Event.REDELIVERED)
        await self._copy_all(subscription, subscription.inbox.take_ready(), Event.NOT_STARTED)


def _copy_after(came: Arrived, event: Event) -> Parcel:
    """The message as it goes back to the end of its queue after that event."""
    following, message = after(came.state, event), came.message
    attempt = message.attempt + following.attempts
    properties = copy_of(came, attempt=attempt, state=following.state, failures=came.failures)
    return Parcel("", message.source, properties, message.body, SPARE)


def _uncountable(taken: Taken, error: TransportUnavailable) -> Taken:
    return replace(taken, state=Redelivery.RETURNED, uncountable=error.why)


def _is_retry(settlement: Settlement) -> bool:
    return isinstance(settlement.outcome, Retry)


def _taken(delivery: Delivery) -> Taken:
    taken: Taken = delivery.token
    return taken


def _extended(taken: Taken) -> bool:
    return taken.subscription.extend(taken.tag)


def _ack(settlements: Sequence[Settlement]) -> None:
    tags: dict[Subscription, list[int]] = defaultdict(list)
    for settlement in settlements:
        taken = _taken(settlement.delivery)
        tags[taken.subscription].append(taken.tag)
    for subscription, finished in tags.items():
        subscription.ack(finished)


def open_transport(url: str, *, clock: Clock, lease: timedelta) -> RabbitTransport:
    """`amqp://user:password@host/vhost`."""
    return RabbitTransport(options_of(url), clock=clock, lease=lease)
