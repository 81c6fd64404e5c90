"""Sends messages in batches, and answers for each of them."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Sequence
from hashlib import blake2b
from math import ceil
from typing import Any

from redrive.clock import Clock
from redrive.errors import TransportUnavailable
from redrive.model import Message
from redrive.transports.base import ACCEPTED, SendResult, SendStatus, busy, refused, unknown
from redrive.transports.sqs.api import Api, NotConnected, Refusal, is_throttled
from redrive.transports.sqs.batching import fitting
from redrive.transports.sqs.queues import Queue, Queues
from redrive.transports.sqs.wire import Packed, pack

LONGEST_DELAY = 900
"""Seconds for which SQS holds back what is sent. What waits longer is sent again when they are over."""
_AT_ONCE = 16  # requests
_CANNOT_CARRY = (ValueError, TypeError, OverflowError)
_GROUP = re.compile(r"[A-Za-z0-9!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]{1,128}")
_REPLAY = "redrive-replay"


class Sender:
    """Sends to the queues of one endpoint."""

    def __init__(self, api: Api, queues: Queues, clock: Clock, *, fifo: bool) -> None:
        self._api = api
        self._queues = queues
        self._clock = clock
        self._fifo = fifo
        self._requests = asyncio.Semaphore(_AT_ONCE)

    async def send(self, messages: Sequence[Message]) -> list[SendResult]:
        """The answer for each message, in order. What is sent back makes no queue: it was there when it died."""
        by_source: dict[str, list[int]] = defaultdict(list)
        for place, message in enumerate(messages):
            by_source[message.source].append(place)
        results: list[SendResult] = [ACCEPTED] * len(messages)

        async def to(source: str, places: Sequence[int]) -> None:
            make = not all(messages[place].was_sent_back for place in places)
            answers = await self._to_source(source, [messages[place] for place in places], make)
            for place, answer in zip(places, answers, strict=True):
                results[place] = answer

        await asyncio.gather(*(to(source, places) for source, places in by_source.items()))
        return results

    async def put(self, queue: Queue, source: str, parcels: Sequence[tuple[int, Packed]]) -> dict[int, SendResult]:
        """The answers for parcels that have a number each; those that are too large for the queue are refused."""
        results: dict[int, SendResult] = {}
        small = []
        for number, packed in parcels:
            if packed.size > queue.largest:
                results[number] = refused(
                    f"{packed.size:,} bytes with its attributes: queue {queue.name} takes {queue.largest:,} at most"
                )
            else:
                small.append((number, packed))
        batches = list(fitting(small, queue.largest))
        if self._fifo:  # in their order, each after the answer for the one before
            for batch in batches:
                results |= await self._request(queue, source, batch)
        else:
            for answers in await asyncio.gather(*(self._request(queue, source, batch) for batch in batches)):
                results |= answers
        return results

    async def _to_source(self, source: str, messages: Sequence[Message], make: bool) -> list[SendResult]:
        try:
            queue = await self._queues.get(source, make=make)
        except TransportUnavailable as error:  # nothing was sent yet
            return [busy(error.why)] * len(messages)
        parcels, results = [], {}
        for number, message in enumerate(messages):
            try:
                parcels.append((number, self._parcel(message)))
            except _CANNOT_CARRY as error:
                results[number] = refused(f"{type(error).__name__}: {error}")
        results |= await self.put(queue, source, parcels)
        return [results[number] for number in range(len(messages))]

    def _parcel(self, message: Message) -> Packed:
        if self._fifo:
            packed = pack(message)
            packed.fields.update(grouped(message, self._clock))
            return packed
        wait = 0.0 if message.not_before is None else (message.not_before - self._clock.now()).total_seconds()
        return delayed(pack(message, not_before=message.not_before if wait > LONGEST_DELAY else None), wait)

    async def _request(self, queue: Queue, source: str, batch: Sequence[tuple[int, Packed]]) -> dict[int, SendResult]:
        entries = [{"Id": str(number), **packed.fields} for number, packed in batch]
        try:
            async with self._requests:
                answer = await self._api.call("SendMessageBatch", QueueUrl=queue.url, Entries=entries)
        except TransportUnavailable as error:
            return await self._not_taken(queue, source, batch, error)
        failed = {int(entry["Id"]): _failure(entry) for entry in answer.get("Failed") or ()}
        return {number: failed.get(number, ACCEPTED) for number, _ in batch}

    async def _not_taken(
        self, queue: Queue, source: str, batch: Sequence[tuple[int, Packed]], error: TransportUnavailable
    ) -> dict[int, SendResult]:
        """The answers, where SQS has none for each. If it refuses the request as a whole for what is in it, one message
        may be to blame, and each is sent by itself."""
        if isinstance(error, Refusal) and error.is_missing:
            self._queues.forget(source)
        answer = _answer(error)
        if answer.status is not SendStatus.REFUSED or len(batch) == 1:
            return {number: answer for number, _ in batch}
        results: dict[int, SendResult] = {}
        for parcel in batch:
            results |= await self._request(queue, source, [parcel])
        return results


def delayed(packed: Packed, wait: float) -> Packed:
    """The same, held back for so many seconds."""
    if wait > 0:
        packed.fields["DelaySeconds"] = min(ceil(wait), LONGEST_DELAY)
    return packed


def grouped(message: Message, clock: Clock) -> dict[str, Any]:
    """Group and deduplication id of a message in a FIFO queue: its key is its group; without one it is its own."""
    group = clock.new_id() if message.key is None else group_of(message.key)
    return {"MessageGroupId": group, "MessageDeduplicationId": _once(message, clock)}


def group_of(key: bytes) -> str:
    """A key as the id of a group: itself where SQS takes it."""
    text = key.decode("ascii", "replace")
    return text if _GROUP.fullmatch(text) else f"redrive-{blake2b(key, digest_size=16).hexdigest()}"


def _once(message: Message, clock: Clock) -> str:
    """By this SQS takes a message once within five minutes. A replay sends each letter once, so what it sends again
    after a lost answer is the same; anything else that is sent is a message of its own, whatever its id."""
    replay = message.header(_REPLAY) if message.was_sent_back else None
    if replay is None:
        return clock.new_id()
    said = b"\0".join((message.id.encode("utf-8", "surrogatepass"), replay, str(message.attempt).encode()))
    return f"redrive-{blake2b(said, digest_size=20).hexdigest()}"


def _failure(entry: dict[str, Any]) -> SendResult:
    """What SQS says of one message that it did not take."""
    code, text = str(entry.get("Code") or "Unknown"), str(entry.get("Message") or "")
    why = f"{code}: {text}" if text else code
    if is_throttled(code):
        return busy(why)
    return refused(why) if entry.get("SenderFault") else unknown(why)


def _answer(error: TransportUnavailable) -> SendResult:
    """What to say of every message of a request that failed as a whole."""
    if isinstance(error, NotConnected):
        return busy(error.why)
    if not isinstance(error, Refusal):
        return unknown(error.why)
    if error.is_throttled or error.is_missing or error.is_denied:
        return busy(error.why)
    if error.code in (
        "InvalidMessageContents",
        "BatchRequestTooLong",
        "InvalidParameterValue",
        "InvalidAttributeValue",
    ):
        return refused(error.why)
    return unknown(error.why) if error.status >= 500 else busy(error.why)
