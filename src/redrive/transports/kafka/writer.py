"""The producer: what it has sent is on every replica in sync when `send` returns."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from redrive.clock import microseconds
from redrive.errors import TransportUnavailable, UsageError
from redrive.model import Failure, Message
from redrive.transports.base import ACCEPTED, SendResult, busy, refused, unknown
from redrive.transports.kafka.driver import (
    INVALID,
    NAME,
    NOT_TAKEN,
    TOO_LARGE,
    KafkaError,
    KafkaException,
    Producer,
    driver_log,
    inner,
    log,
    why,
)
from redrive.transports.kafka.options import Options, topic_named
from redrive.transports.kafka.wire import headers_of, value_of

_TICK = 0.2
_PLACE = re.compile(r"(.+)\[(\d{1,9})\]@\d+")


class Parcel(Struct, frozen=True):
    """One record to be written."""

    topic: str
    value: bytes | None
    key: bytes | None
    headers: list[tuple[str, bytes | None]]
    at: datetime
    partition: int | None = None


class Refused(UsageError):
    """The topic will never take this record."""


class NotTaken(TransportUnavailable):
    """The record was not written, and may be later."""


class TooLarge(Refused):
    """The topic refuses a message of that size."""

    def __init__(self, topic: str, size: int) -> None:
        self.topic = topic
        super().__init__(
            f"topic {topic!r} refuses a message of {size:,} bytes: raise its `max.message.bytes`, or send a reference"
        )


def result_of(error: Exception | None) -> SendResult:
    """What an outcome says to who sent it. A driver that gave up waiting cannot tell whether a broker has it."""
    match error:
        case None:
            return ACCEPTED
        case UsageError():
            return refused(error)
        case NotTaken():
            return busy(error.why)
        case TransportUnavailable():
            return unknown(error.why)
    raise error


def raise_unless_too_large(errors: Iterable[Exception | None]) -> None:
    """Raise the first error that is not about a size: what is too large is the caller's to deal with."""
    for error in errors:
        if error is not None and not isinstance(error, TooLarge):
            raise error


class Writer:
    """One producer, made when it is first needed, and the thread that reads its reports.

    one_by_one   it makes no batches: what a broker says of a message's size is then said of that message
    """

    def __init__(self, options: Options, *, one_by_one: bool = False) -> None:
        self._options = options
        self._one_by_one = one_by_one
        self._singly: Writer | None = None
        self._producer: Any = None
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()

    async def outcomes(self, parcels: Sequence[Parcel]) -> list[Exception | None]:
        """For each None if it was written, or why not; returns when all are known."""
        if not parcels:
            return []
        producer = self._opened()
        sending = _Sending(len(parcels))
        for number, parcel in enumerate(parcels):
            await self._produce(producer, parcel, number, sending)
        await sending.future
        errors = [None if error is None else self._error(parcels[n], error) for n, error in enumerate(sending.errors)]
        for number, error in enumerate(sending.errors):
            if error is not None and error.code() == KafkaError._UNKNOWN_PARTITION:
                # its topic was made anew, and the partition that it came from is gone
                [errors[number]] = await self.outcomes([replace(parcels[number], partition=None)])
        return errors if self._one_by_one else await self._surely(parcels, errors)

    async def _surely(self, parcels: Sequence[Parcel], errors: list[Exception | None]) -> list[Exception | None]:
        """A broker refuses a batch as a whole: what was only beside something too large, or too many, is sent again,
        each on its own."""
        refused = [number for number, error in enumerate(errors) if isinstance(error, Refused)]
        if refused:
            self._singly = self._singly or Writer(self._options, one_by_one=True)
            again = await self._singly.outcomes([parcels[number] for number in refused])
            for number, error in zip(refused, again, strict=True):
                errors[number] = error
        return errors

    async def aclose(self) -> None:
        if self._singly is not None:
            await self._singly.aclose()
        if self._producer is None or self._closing.is_set():
            return
        self._closing.set()
        assert self._thread is not None
        await asyncio.to_thread(self._thread.join)
        await asyncio.to_thread(self._producer.flush, 5)

    def _opened(self) -> Any:
        if self._producer is None:
            own = {"batch.num.messages": 1} if self._one_by_one else {}
            try:
                self._producer = Producer({**self._options.producer(), **own, "error_cb": _say, "logger": driver_log})
            except KafkaException as error:
                raise UsageError(f"the URL of Kafka cannot be used: {why(error, self._options.servers)}") from error
            self._thread = threading.Thread(target=self._listen, name="redrive-kafka-write", daemon=True)
            self._thread.start()
        return self._producer

    def _listen(self) -> None:
        while not self._closing.is_set():
            self._producer.poll(_TICK)

    async def _produce(self, producer: Any, parcel: Parcel, number: int, sending: _Sending) -> None:
        partition = {} if parcel.partition is None else {"partition": parcel.partition}
        while True:
            try:
                producer.produce(
                    parcel.topic,
                    value=parcel.value,
                    key=parcel.key,
                    headers=parcel.headers,
                    timestamp=_timestamp(parcel.at),
                    on_delivery=lambda error, _: sending.report(number, error),
                    **partition,
                )
                return
            except BufferError:  # it holds all it may: wait until some of it is gone
                await asyncio.sleep(0.01)
            except KafkaException as error:
                sending.report(number, inner(error))
                return

    def _error(self, parcel: Parcel, error: Any) -> Exception:
        if error.code() in TOO_LARGE:
            return TooLarge(parcel.topic, len(parcel.value or b""))
        text = why(error, self._options.servers, parcel.topic)
        if error.code() in INVALID:
            return Refused(f"topic {parcel.topic!r} refuses a record: {text}")
        return NotTaken(NAME, text) if error.code() in NOT_TAKEN else TransportUnavailable(NAME, text)


class _Sending:
    """One call of `send` under way."""

    def __init__(self, count: int) -> None:
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[None] = self._loop.create_future()
        self.errors: list[KafkaError | None] = [None] * count
        self._left = count
        self._lock = threading.Lock()

    def report(self, number: int, error: KafkaError | None) -> None:
        """Note the report of one record; called in whatever thread."""
        with self._lock:
            self._left -= 1
            self.errors[number] = error
            is_last = not self._left
        if is_last and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        if not self.future.done():
            self.future.set_result(None)


def parcel_of(message: Message) -> Parcel:
    """The message on its way to its source. What is sent back goes to the partition that it came from."""
    place = _PLACE.fullmatch(message.origin) if message.was_sent_back else None
    is_home = place is not None and place[1] == message.source
    return Parcel(
        topic=topic_named(message.source),
        value=value_of(message),
        key=message.key,
        headers=headers_of(message),
        at=message.enqueued_at,
        partition=int(place[2]) if place is not None and is_home else None,
    )


def delayed_parcel(message: Message, topic: str, due: datetime, failures: tuple[Failure, ...]) -> Parcel:
    """The message on its way to a retry topic, as young as its retry: a topic keeps records by their age, and would not
    keep one that is as old as the message may be until it is due."""
    return Parcel(
        topic=topic,
        value=value_of(message),
        key=message.key,
        headers=headers_of(message, due=due, failures=failures),
        at=due,
    )


def _timestamp(at: datetime) -> int:
    """Brokers refuse what is from the future; 0 is now. The exact time travels in the envelope."""
    millis = microseconds(at) // 1000
    return millis if 0 < millis <= time.time() * 1000 else 0


def _say(error: Any) -> None:
    log.debug("the producer: %s", error.str())
