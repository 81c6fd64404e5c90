"""Dead tickets back to their topic in Kafka transactions: what is sent and how far the DLQ topic was read become true
together, so that a crash neither loses nor doubles a ticket (for who reads committed records only)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from msgspec import Struct

from redrive.clock import Clock, SystemClock
from redrive.errors import TransportUnavailable
from redrive.flow.lineage import LETTER, Lineage, proof
from redrive.model import Letter
from redrive.systems.tickets.reader import TicketReader
from redrive.systems.tickets.ticket import as_ticket
from redrive.transports.base import Delivery
from redrive.transports.kafka.driver import (
    NAME,
    STARTING,
    TOO_LARGE,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
    inner,
    quietly,
    why,
)
from redrive.transports.kafka.options import Options
from redrive.transports.kafka.topics import meet
from redrive.transports.kafka.wire import Reading, own_headers, value_of
from redrive.transports.kafka.writer import TooLarge

T = TypeVar("T")
_PATIENCE = 30.0
_AGAIN = 0.2
_AT_ONCE = 500
_TICK = 1.0
_SINGLY = {"batch.num.messages": 1, "max.in.flight": 1}  # behind one that is refused, others would never be heard of


class Relayed(Struct, frozen=True):
    """What a relay did."""

    sent: int
    stubs: int  # read and not sent: the ticket was too large for the topic, and is in the store only


class Relay:
    """Sends what lies on a DLQ topic back to where it came from, all of it: to choose is what the store is for.

    One runs at a time: a second one fences the first, which then ends with an error.
    """

    def __init__(self, options: Options, dlq_topic: str, topic: str, *, group: str, clock: Clock | None = None) -> None:
        self._options = options
        self._dlq_topic = dlq_topic
        self._topic = topic
        self._group = group
        self._clock = clock or SystemClock()
        self._reading = Reading(dlq_topic)
        self._read = TicketReader(dlq_topic, source=topic)

    async def run(self, *, limit: int | None = None, at_once: int = _AT_ONCE) -> Relayed:
        """Send all that lies there now, from where the last relay ended; at most `limit`."""
        await meet(self._options)
        return await asyncio.to_thread(self._run, limit, at_once)

    def _run(self, limit: int | None, at_once: int) -> Relayed:
        consumer = Consumer(self._consuming())
        try:
            producer = self._producer()
            left = _patiently(lambda: _Left(consumer, self._dlq_topic))
            sent = stubs = 0
            while left.any and (limit is None or sent < limit):
                raws = left.next(at_once if limit is None else min(at_once, limit - sent))
                letters = self._letters(raws)
                try:
                    self._send(consumer, producer, letters, raws)
                except TooLarge:  # a broker refuses a batch as a whole: from now on each goes on its own
                    producer = self._producer(_SINGLY)
                    self._send(consumer, producer, letters, raws)
                sent, stubs = sent + len(letters), stubs + len(raws) - len(letters)
            return Relayed(sent, stubs)
        except KafkaException as error:
            raise TransportUnavailable(NAME, why(error, self._options.servers, self._dlq_topic)) from error
        finally:
            consumer.close()

    def _letters(self, raws: Sequence[Any]) -> list[Letter]:
        now = self._clock.now()
        found = [self._read(Delivery(self._message(raw), None), now) for raw in raws]
        return [letter for letter in found if letter is not None]

    def _message(self, raw: Any) -> Any:
        origin = f"{raw.topic()}[{raw.partition()}]@{raw.offset()}"
        headers = raw.headers()
        return self._reading.full(raw, headers, origin).message if headers else self._reading.plain(raw, origin)

    def _send(self, consumer: Any, producer: Any, letters: Sequence[Letter], raws: Sequence[Any]) -> None:
        """Send records and position in one transaction."""
        if not raws:
            return
        reports = _Reports()
        producer.begin_transaction()
        try:
            for letter in letters:
                message = letter.message
                producer.produce(
                    message.source,
                    value=value_of(message),
                    key=message.key,
                    headers=self._headers(letter),
                    on_delivery=reports.hear,
                )
                producer.poll(0)
            reports.wait(producer, len(letters))
            offsets = {raw.partition(): raw.offset() + 1 for raw in raws}  # those of a partition come in order
            places = [TopicPartition(self._dlq_topic, number, offset) for number, offset in offsets.items()]
            member = consumer.consumer_group_metadata()
            _patiently(lambda: producer.send_offsets_to_transaction(places, member, _PATIENCE))
            _patiently(lambda: producer.commit_transaction(_PATIENCE))
        except BaseException:
            with suppress(KafkaException):  # one that was fenced has nothing to abort any more
                producer.abort_transaction(_PATIENCE)
            raise

    def _headers(self, letter: Letter) -> list[tuple[str, bytes | None]]:
        """The headers of a record: its own, and those by which its success finds its letter."""
        own = [pair for pair in own_headers(letter.message.headers) if pair[0] != LETTER]
        ticket = as_ticket(letter, self._topic)
        origin = Lineage(ticket.id, retries=0, replay=None)
        return [*own, (LETTER, proof(origin, ticket.message.source, ticket.message.id))]

    def _consuming(self) -> dict[str, Any]:
        own = {
            "group.id": self._group,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
        return quietly({**self._options.client(), **own})

    def _producer(self, own: dict[str, Any] | None = None) -> Any:
        """A producer that fences every other of its group."""
        name = f"redrive-{self._group}"
        producer = Producer(quietly({**self._options.producer(), **(own or {}), "transactional.id": name}))
        _patiently(lambda: producer.init_transactions(_PATIENCE))  # aborts what a killed relay has left open
        return producer


def _patiently(work: Callable[[], T]) -> T:
    """Again and again while a coordinator is about to begin, as those of a group or a transaction that are new, or is
    not done yet with what a killed relay has left; the driver says of both whether it can be repeated."""
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            return work()
        except KafkaException as error:
            found = inner(error)
            if not (found.code() in STARTING or found.retriable()) or time.monotonic() > until:
                raise
        time.sleep(_AGAIN)


class _Reports:
    """What the broker says of the records of one transaction."""

    def __init__(self) -> None:
        self._heard = 0
        self._refusal: TooLarge | None = None

    def hear(self, error: Any, record: Any) -> None:
        self._heard += 1
        if error is not None and error.code() in TOO_LARGE:
            self._refusal = self._refusal or TooLarge(record.topic(), len(record.value() or b""))

    def wait(self, producer: Any, number: int) -> None:
        """Wait until so many are reported, or one is refused: those behind it are not reported before the abort."""
        until = time.monotonic() + _PATIENCE
        while self._heard < number and self._refusal is None and time.monotonic() < until:
            producer.poll(_TICK)
        if self._refusal is not None:
            raise self._refusal


class _Left:
    """What lies on a topic between how far the group has come and where the topic ended when this began: what dies
    again meanwhile is for the next relay."""

    def __init__(self, consumer: Any, topic: str) -> None:
        self._consumer = consumer
        known = consumer.list_topics(topic, timeout=_PATIENCE).topics[topic]
        if known.error is not None:
            raise KafkaException(known.error)
        self._ends: dict[int, int] = {}  # of the partitions where something is left
        places = consumer.committed([TopicPartition(topic, number) for number in known.partitions], timeout=_PATIENCE)
        for place in places:
            low, high = consumer.get_watermark_offsets(place, timeout=_PATIENCE)
            place.offset = max(place.offset, low)
            if place.offset < high:
                self._ends[place.partition] = high
        consumer.assign(places)

    @property
    def any(self) -> bool:
        return bool(self._ends)

    def next(self, most: int) -> list[Any]:
        """The next records, up to so many; none if only markers of transactions were left."""
        until = time.monotonic() + _PATIENCE
        while self._ends:
            came = self._consumer.consume(most, timeout=_TICK)
            wanted = [raw for raw in came if raw.partition() in self._ends and self._is_record(raw)]
            if wanted:
                return wanted
            if time.monotonic() > until:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "nothing comes from the DLQ topic"))
        return []

    def _is_record(self, raw: Any) -> bool:
        """Whether it is a record that was there when we began; notes where its partition ends."""
        error, number, end = raw.error(), raw.partition(), self._ends[raw.partition()]
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)
        if error is not None or raw.offset() + 1 >= end:
            del self._ends[number]
        return error is None and raw.offset() < end
