"""Kafka as a transport: messages of one key in order, different keys in parallel, offsets committed only up to the
lowest unfinished message.

    receive   the reader's thread polls; what it has put on the shelf is leased from there, lane by lane
    settle    attempts are counted durably, then the shelf moves on; the reader's thread commits how far it came
    send      confirmed by every replica in sync

A lease is held in this process: another worker gets a message when its partition moves, at the end of the session.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import timedelta
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from redrive.clock import Clock, Steady
from redrive.errors import TransportUnavailable
from redrive.model import Done, Failure, Holds, Message, Release, Retry
from redrive.transports.base import (
    Block,
    Delivery,
    Depth,
    Features,
    Listing,
    QueueState,
    SendResult,
    Settlement,
    busy,
    refused,
    translated_errors,
)
from redrive.transports.kafka.block import RecordBlock, are_plain
from redrive.transports.kafka.counters import FORGETFUL, Counters, open_counters
from redrive.transports.kafka.dlq import DeadLetterTopic
from redrive.transports.kafka.driver import NAME, log
from redrive.transports.kafka.options import Options, is_topic, not_a_topic, options_of, topic_named
from redrive.transports.kafka.peek import Peek, counted, lags
from redrive.transports.kafka.reader import Reader
from redrive.transports.kafka.shelf import Place, Record
from redrive.transports.kafka.topics import Topics
from redrive.transports.kafka.writer import (
    Parcel,
    Writer,
    delayed_parcel,
    parcel_of,
    raise_unless_too_large,
    result_of,
)

T = TypeVar("T")


class Examined(Struct, frozen=True):
    """What of Kafka is not as it has to be."""

    missing: tuple[str, ...] = ()
    clashes: tuple[str, ...] = ()
    alarms: tuple[str, ...] = ()
    unseen: str = ""


Name = Callable[[Message], str]
"""What the attempts of a message are counted under."""
_MOST_FAILURES = 100
_UNTOLD = (
    "Kafka does not tell which of these a worker has in hand, or lets wait for a retry in its own memory: they are "
    "shown as ready until their offset is committed"
)


class KafkaTransport:
    """Topics are sources. Topics have to exist; retry topics are made where they are used."""

    features = Features(
        durable=True,
        native_delay=True,
        counts_attempts=False,  # but with counters in Redis or SQLite
        keeps_history=True,
        ordered_by="key",
        idempotent_send=False,
        shared=True,
        urgent_first=False,
        counts_leased=False,
        sets_aside=False,  # but with retry topics
    )

    makes_queues = False  # a topic has partitions, which its owner decides on

    def __init__(
        self,
        options: Options,
        *,
        clock: Clock,
        lease: timedelta,
        counters: Counters | None = None,
        name: Name | None = None,
    ) -> None:
        self.options = options
        self.counters = open_counters(options.counters) if counters is None else counters
        self.writer = Writer(options)
        self.topics = Topics(options)
        self.features = replace(
            self.features, counts_attempts=self.counters.durable, sets_aside=bool(options.retry_topics)
        )
        self._clock = clock
        self._steady = Steady(clock)
        self._lease = lease
        self._name: Name = name or _id
        self._worker = ""  # its name, where it has one
        self._holds: dict[str, Holds] = {}
        self._held: dict[str, int] = {}  # how many a batch handler holds at a time
        self._readers: dict[str, Reader] = {}
        self._paused: frozenset[str] = frozenset()
        self._opening = asyncio.Lock()
        self._sent: set[str] = set()
        self._closed = False

    def keep_order(self, source: str, holds: Holds) -> None:
        """Prepare for a worker; warns once if the counts of attempts would not survive it."""
        if not self.counters.durable and not self._holds:
            log.warning(FORGETFUL)
        self._holds[source] = holds

    @property
    def moves(self) -> int:
        return sum(reader.moves for reader in self._readers.values())

    def prefetch(self, source: str, number: int) -> None:
        self._held[source] = number

    def join_as(self, worker: str) -> None:
        """Be known to the group by that name, unless `static=no`."""
        self._worker = worker if self.options.static else ""

    def is_ours(self, delivery: Delivery) -> bool:
        record, turn = delivery.token
        return bool(record.turn == turn and record.partition.alive)

    def dead_letter_place(self, source: str) -> DeadLetterTopic | None:
        """The topic of the option `dlq`, beside the store or, with `dlq_only`, instead of it."""
        if self.options.dlq is None:
            return None
        return DeadLetterTopic(self.writer, self.options.dlq, replaces_store=self.options.dlq_only)

    # -- receiving -----------------------------------------------------------------------------------------------

    async def receive(self, source: str, limit: int) -> Sequence[Delivery]:
        reader, taken = await self._taken(source, limit)
        return reader.deliveries(taken)

    async def receive_block(self, source: str, limit: int) -> Sequence[Delivery] | Block:
        reader, taken = await self._taken(source, limit)
        return RecordBlock.of(reader.shelf, taken) if are_plain(taken) else reader.deliveries(taken)

    async def _taken(self, source: str, limit: int) -> tuple[Reader, list[Record]]:
        reader = self._readers.get(source) or await self._open(source)
        if reader.shelf.leased:  # let them run first: they are settled, and committed, while the next ones run
            await asyncio.sleep(0)
        while True:
            reader.arrived.clear()
            if taken := reader.take(limit):
                if not self.counters.is_empty:
                    await self._count(reader, taken)
                    if self.counters.durable:  # those in memory answer at once: nothing else happened meanwhile
                        taken = reader.still_first(taken)
                if taken:
                    return reader, taken
                continue
            if reader.trouble is not None:
                trouble, reader.trouble = reader.trouble, None
                raise TransportUnavailable(NAME, trouble)
            await self._clock.wait(reader.arrived, reader.wait_seconds())

    async def _open(self, source: str) -> Reader:
        async with self._opening:
            if source not in self._readers:
                partitions = await self.topics.partitions(topic_named(source))
                holds = self._holds.get(source, Holds.KEY)
                rungs = self.options.rungs(source) if holds is Holds.NOTHING else []
                await self.topics.make(rungs, partitions)
                self._readers[source] = Reader(
                    self.options,
                    source,
                    [source, *rungs],
                    lease=self._lease,
                    holds=holds,
                    elapsed=self._clock.elapsed,
                    steady=self._steady,
                    worker=self._worker,
                    paused=source in self._paused,
                    most_held=self._held.get(source, 0),
                )
            return self._readers[source]

    async def set_paused(self, sources: Collection[str]) -> None:
        """Pause their partitions, those of their retry topics too, through rebalances and without leaving the group."""
        self._paused = frozenset(sources)
        for source, reader in self._readers.items():
            reader.set_paused(source in self._paused)

    async def _count(self, reader: Reader, records: Sequence[Record]) -> None:
        """What earlier workers have tried. Where the last one did not end cleanly, an attempt counts before it is
        made: the message may be what ended it."""
        fresh = [record for record in records if not record.known]
        try:
            for record, number in zip(fresh, await self._counts(fresh), strict=True):
                record.known = True
                if number:
                    record.tried, record.counted = number, True
            suspects = [record for record in records if record.suspect]
            if suspects and self.counters.durable:
                with translated_errors():
                    await self.counters.put({self._name(record.message): record.tried + 1 for record in suspects})
                for record in suspects:
                    record.counted = True
        except BaseException:
            with reader.lock:
                for record in records:
                    reader.shelf.give_back(record, self._clock.elapsed())
            reader.settled()
            raise

    async def _counts(self, records: Sequence[Record]) -> Sequence[int]:
        with translated_errors():
            return await self.counters.get([self._name(record.message) for record in records])

    async def extend(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        now, lost = self._clock.elapsed(), []
        for reader, some in self._by_reader(deliveries, lambda delivery: delivery):
            if reader is None:
                lost += some
                continue
            with reader.lock:
                reader.shelf.ripen(now)
                for delivery in some:
                    if self.is_ours(delivery):
                        reader.shelf.extend(delivery.token[0], now)
                    else:
                        lost.append(delivery)
        return lost

    # -- settling ------------------------------------------------------------------------------------------------

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Delivery]:
        """What has to be durable first is written first: until then nothing is settled, and all can be repeated."""
        if slow := [
            settlement
            for settlement in settlements
            if type(settlement.outcome) is not Done or settlement.delivery.token[0].counted
        ]:
            ours = [settlement for settlement in slow if self.is_ours(settlement.delivery)]
            await self._set_aside([settlement for settlement in ours if self._goes_aside(settlement)])
            await self._write_counts(ours)
        lost: list[Delivery] = []
        for reader, some in self._by_reader(settlements, _delivery):
            lost += map(_delivery, some) if reader is None else self._carry_out(reader, some)
        return lost

    def settle_block(self, block: Block) -> Sequence[Delivery]:
        assert isinstance(block, RecordBlock)
        reader = next((reader for reader in self._readers.values() if reader.shelf is block.shelf), None)
        if reader is None:  # it was closed
            return block.deliveries()
        with reader.lock:
            lost = block.finish()
        reader.settled()
        return lost

    def _carry_out(self, reader: Reader, settlements: Sequence[Settlement]) -> list[Delivery]:
        lost, finished, kept = [], [], []
        with reader.lock:
            for settlement in settlements:
                record, turn = settlement.delivery.token
                if record.turn != turn or not record.partition.alive:
                    lost.append(settlement.delivery)
                elif type(settlement.outcome) is Done or record.aside:
                    finished.append(record)
                else:
                    kept.append(settlement)
            reader.shelf.finish(finished)
            for settlement in kept:
                self._put_back(reader, settlement)
        reader.settled()
        return lost

    def _put_back(self, reader: Reader, settlement: Settlement) -> None:
        """In place: it waits on the shelf, and what is behind it in its lane with it."""
        record: Record = settlement.delivery.token[0]
        match settlement.outcome:
            case Retry(span):
                record.is_tried()
                record.counted = True
                if settlement.failure is not None:
                    record.failures = remembered(record.failures, settlement.failure)
            case Release(span):
                pass
            case _:
                raise AssertionError(settlement.outcome)
        reader.shelf.give_back(record, self._clock.elapsed() + span.total_seconds())

    def _goes_aside(self, settlement: Settlement) -> bool:
        holds = self._holds.get(settlement.delivery.message.source)
        return holds is Holds.NOTHING and self.features.sets_aside and isinstance(settlement.outcome, Retry)

    async def _set_aside(self, settlements: Sequence[Settlement]) -> None:
        """A copy on a retry topic, confirmed; the original is then done with. What is too large for it waits here."""
        waiting = [settlement for settlement in settlements if not settlement.delivery.token[0].aside]
        errors = await self.writer.outcomes([self._delayed(settlement) for settlement in waiting])
        for settlement, error in zip(waiting, errors, strict=True):
            settlement.delivery.token[0].aside = error is None
        raise_unless_too_large(errors)

    def _delayed(self, settlement: Settlement) -> Parcel:
        assert isinstance(settlement.outcome, Retry)
        message, after = settlement.delivery.message, settlement.outcome.after
        delays = self.options.retry_topics
        rung = next((delay for delay in delays if delay >= after), delays[-1])
        failures = settlement.delivery.failures
        return delayed_parcel(
            replace(message, attempt=message.attempt + 1),
            self.options.rung(message.source, rung),
            self._clock.now() + after,
            failures if settlement.failure is None else (*failures, settlement.failure),
        )

    async def _write_counts(self, settlements: Sequence[Settlement]) -> None:
        counts = {}
        for settlement in settlements:
            record = settlement.delivery.token[0]
            if isinstance(settlement.outcome, Retry) and not record.aside:
                counts[self._name(record.message)] = record.tried + 1
            elif record.counted:
                counts[self._name(record.message)] = record.tried if isinstance(settlement.outcome, Release) else 0
        if counts:
            with translated_errors():
                await self.counters.put(counts)

    # -- the rest ------------------------------------------------------------------------------------------------

    async def send(self, messages: Sequence[Message]) -> Sequence[SendResult]:
        named = [message for message in messages if is_topic(message.source)]
        outcomes = iter(await self._outcomes(named))
        return [
            next(outcomes) if is_topic(message.source) else refused(not_a_topic(message.source)) for message in messages
        ]

    async def _outcomes(self, messages: Sequence[Message]) -> list[SendResult]:
        """Send them; a broker that was never there is not waited for, as the driver would for half a minute."""
        if messages and not self.topics.answered:
            try:
                await self.topics.check()
            except TransportUnavailable as error:
                return [busy(error.why)] * len(messages)
        found = await self.writer.outcomes([parcel_of(message) for message in messages])
        self._sent.update(message.source for message in messages)
        return [result_of(outcome) for outcome in found]

    async def depths(self) -> dict[str, Depth]:
        """The depths of the topics that this group has read, and of those that this process has sent to."""
        committed = await self.topics.committed()
        rungs = {rung: source for source in self._known(committed) for rung in self.options.rungs(source)}
        sources = self._known(committed) - rungs.keys()
        depths = dict.fromkeys(sources, Depth(0, 0, 0))
        seen = set()
        for place, (first, following) in (await self.topics.reach({*sources, *rungs})).items():
            source = rungs.get(place[0], place[0])
            seen.add(source)
            depths[source] = _sum(depths[source], self._depth(source, place, committed.get(place, first), following))
        return {
            source: depth for source, depth in depths.items() if depth.total or source in self._readers.keys() & seen
        }

    def _known(self, committed: dict[Place, int]) -> set[str]:
        return {topic for topic, _ in committed} | self._readers.keys() | self._sent

    def _depth(self, source: str, place: Place, committed: int, following: int) -> Depth:
        reader = self._readers.get(source)
        if reader is not None:
            with reader.lock:
                if place in reader.shelf.partitions:
                    return reader.shelf.depth(place, following, self._clock.elapsed())
        waiting = max(following - committed, 0)
        return Depth(waiting, 0, 0) if place[0] == source else Depth(0, waiting, 0)

    async def check(self) -> None:
        await self.topics.check()

    @property
    def holder(self) -> str:
        return ""

    async def listing(
        self, source: str, *, state: QueueState | None = None, after: str | None = None, limit: int = 100
    ) -> Listing:
        """Look from the committed offsets on, and into the retry topics, as a reader that joins no group."""
        if not await self.has_source(source):
            return Listing(notes=(f"there is no topic {source!r} on {self.options.servers}",))
        reach = await self.topics.reach([source, *self.options.rungs(source)])
        peek = Peek(self.options, source, self._steady.micros())
        stretches = await self.topics.ask(lambda _: peek.stretches(reach))
        wanted = [stretch for stretch in stretches if _may_stand(stretch.place[0] == source, state)]
        page = await self.topics.ask(lambda _: peek.page(wanted, state, after, limit))
        counts = await self._counts_of([queued.message for queued in page.messages])
        readers = await self.topics.readers()
        return Listing(tuple(counted(page.messages, counts)), page.after, (*lags(stretches, readers), _UNTOLD))

    async def _counts_of(self, messages: Sequence[Message]) -> Sequence[int]:
        with translated_errors():
            return await self.counters.get([self._name(message) for message in messages])

    async def has_source(self, source: str) -> bool:
        return is_topic(source) and not await self.topics.missing([source])

    async def examined(self, sources: Sequence[str]) -> Examined:
        """Which topics are missing: of these sources, and that for dead letters. Retry topics are made by a worker."""
        dlq = [self.options.dlq] if self.options.dlq is not None else []
        missing = await self.topics.missing(sources, made_on_sending=dlq)
        return Examined(tuple(f"topic {topic}" for topic in missing))

    async def aclose(self) -> None:
        readers, self._readers = list(self._readers.values()), {}
        await asyncio.gather(*(reader.aclose() for reader in readers))
        await self.writer.aclose()
        await self.topics.aclose()
        if not self._closed:
            self._closed = True
            await self.counters.aclose()

    def _by_reader(
        self, items: Sequence[T], delivery: Callable[[T], Delivery]
    ) -> Iterator[tuple[Reader | None, list[T]]]:
        """The items by their reader; None for those whose reader was closed."""
        if len(self._readers) == 1:  # of another that was closed nothing is ours any more
            yield next(iter(self._readers.values())), list(items)
            return
        grouped: dict[str, list[T]] = defaultdict(list)
        for item in items:
            grouped[delivery(item).message.source].append(item)
        for source, some in grouped.items():
            yield self._readers.get(source), some


def remembered(failures: tuple[Failure, ...], last: Failure) -> tuple[Failure, ...]:
    """The failures that we hold: as a rule all; of a message that fails for hours the first and the last."""
    found = (*failures, last)
    return found if len(found) <= _MOST_FAILURES else (*found[: _MOST_FAILURES // 2], *found[-_MOST_FAILURES // 2 :])


def _delivery(settlement: Settlement) -> Delivery:
    return settlement.delivery


def _id(message: Message) -> str:
    return message.id


def _may_stand(is_source: bool, state: QueueState | None) -> bool:
    """Whether a topic may have messages that stand so: on the topic of the source itself nothing is delayed for others
    to see."""
    return state is None or (state is QueueState.READY) or (state is QueueState.DELAYED and not is_source)


def _sum(depth: Depth, other: Depth) -> Depth:
    return Depth(depth.ready + other.ready, depth.delayed + other.delayed, depth.leased + other.leased)


def open_transport(url: str, *, clock: Clock, lease: timedelta) -> KafkaTransport:
    """`kafka://host:9092/?group=billing`."""
    return KafkaTransport(options_of(url), clock=clock, lease=lease)
