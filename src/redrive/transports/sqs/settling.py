"""Carries outcomes out.

    standard   done       deleted
               retried,   a copy that says so is sent first, held back for as long as it waits, and then the original is
               released   deleted: SQS cannot change a message, and the count of a copy begins anew. So whatever SQS
                          has counted is leases that ended unsettled, and a release counts nowhere
    FIFO       done       deleted
               retried,   hidden for as long as it waits, in its place: its group waits with it, and stays in order
               released

A message that has grown too large for a copy is hidden in its place, too.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import timedelta
from math import ceil
from typing import Any

from redrive.clock import Clock
from redrive.errors import TransportUnavailable
from redrive.model import Done, Release, Retry
from redrive.transports.base import Delivery, SendResult, SendStatus, Settlement
from redrive.transports.sqs.api import Api, is_throttled
from redrive.transports.sqs.batching import tens
from redrive.transports.sqs.leases import Known, Lease
from redrive.transports.sqs.queues import Queue
from redrive.transports.sqs.sending import LONGEST_DELAY, Sender, delayed
from redrive.transports.sqs.wire import Packed, pack

_AT_ONCE = 16  # requests
Entry = Callable[[Lease], dict[str, Any]]


class Settler:
    """Settles and renews what was received."""

    def __init__(self, api: Api, sender: Sender, clock: Clock, known: Known, *, lease: timedelta, fifo: bool) -> None:
        self._api = api
        self._sender = sender
        self._clock = clock
        self._known = known
        self._lease = lease
        self._fifo = fifo
        self._requests = asyncio.Semaphore(_AT_ONCE)
        self._hidden: dict[str, list[float]] = defaultdict(list)  # by queue: when what we hid can be received again

    def waiting(self, url: str) -> int:
        """How many messages of that queue we have hidden until their time: SQS counts them as if they were in hand."""
        now = self._clock.elapsed()
        self._hidden[url] = [until for until in self._hidden[url] if until > now]
        return len(self._hidden[url])

    async def settle(self, settlements: Sequence[Settlement]) -> list[Delivery]:
        """Returns what was lost. What was carried out before something failed is not carried out again."""
        now = self._clock.elapsed()
        lost = [item.delivery for item in settlements if _is_lost(item.delivery, now)]
        ours = [item for item in settlements if lease_of(item.delivery).is_ours(now)]
        done = [item for item in ours if isinstance(item.outcome, Done)]
        back = [item for item in ours if not isinstance(item.outcome, Done)]
        hidden, error = (back, None) if self._fifo else await self._copy(back)
        done += [item for item in back if lease_of(item.delivery).is_copied]
        lost += await self._delete([item.delivery for item in done])
        lost += await self._hide(hidden)
        if error is not None:
            raise error
        return _in_order(settlements, lost)

    async def extend(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Renew their leases; returns what was lost."""
        now, span = self._clock.elapsed(), self._lease.total_seconds()
        ours = [delivery for delivery in deliveries if lease_of(delivery).is_ours(now)]

        def renewed(lease: Lease) -> dict[str, Any]:
            return {"VisibilityTimeout": max(0, ceil(min(span, lease.left(now))))}

        gone = set(map(id, await self._each("ChangeMessageVisibilityBatch", ours, renewed)))
        for delivery in ours:
            lease = lease_of(delivery)
            lease.until = 0.0 if id(delivery) in gone else now + min(span, lease.left(now))
        return [delivery for delivery in deliveries if not lease_of(delivery).is_ours(now)]

    # -- what does not stay --------------------------------------------------------------------------------------

    async def _delete(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        def settled(lease: Lease) -> None:
            lease.is_settled = True
            self._known.forget(lease.id)

        return await self._each("DeleteMessageBatch", deliveries, lambda _: {}, settled)

    async def _copy(self, items: Sequence[Settlement]) -> tuple[list[Settlement], TransportUnavailable | None]:
        """Send the copies that take their place. Returns those that can have none, and why others have none now."""
        parcels: dict[Queue, list[tuple[int, Packed]]] = defaultdict(list)
        for number, item in enumerate(items):
            lease = lease_of(item.delivery)
            if not lease.is_copied:
                parcels[lease.queue].append((number, self._copy_of(item)))
        results: dict[int, SendResult] = {}
        for queue, some in parcels.items():
            results |= await self._sender.put(queue, items[some[0][0]].delivery.message.source, some)
        for number, result in results.items():
            if result.status is SendStatus.ACCEPTED:
                lease_of(items[number].delivery).is_copied = True
        never = [items[number] for number, result in results.items() if result.status is SendStatus.REFUSED]
        late = [result for result in results.values() if result.status in (SendStatus.BUSY, SendStatus.UNKNOWN)]
        return never, TransportUnavailable(self._api.name, late[0].why) if late else None

    def _copy_of(self, item: Settlement) -> Packed:
        message, failures = item.delivery.message, item.delivery.failures
        wait = waits(item).total_seconds()
        retried = isinstance(item.outcome, Retry)
        packed = pack(
            message,
            attempt=message.attempt + retried,
            failures=(*failures, item.failure) if retried and item.failure is not None else failures,
            redelivered=item.delivery.redelivered,
            not_before=self._clock.now() + timedelta(seconds=wait) if wait > LONGEST_DELAY else None,
        )
        return delayed(packed, wait)

    # -- what stays in its place ---------------------------------------------------------------------------------

    async def _hide(self, items: Sequence[Settlement]) -> list[Delivery]:
        """Hide them until they may be received again."""
        now = self._clock.elapsed()
        spans = {id(lease_of(item.delivery)): waits(item).total_seconds() for item in items}
        untried = {id(lease_of(item.delivery)) for item in items if isinstance(item.outcome, Release)}

        def hidden(lease: Lease) -> dict[str, Any]:
            return {"VisibilityTimeout": max(0, min(ceil(spans[id(lease)]), ceil(lease.left(now))))}

        def settled(lease: Lease) -> None:
            lease.is_settled = True
            self._known.settled(lease.id, untried=id(lease) in untried)
            if spans[id(lease)] > 0:
                self._hidden[lease.queue.url].append(now + spans[id(lease)])

        return await self._each("ChangeMessageVisibilityBatch", [item.delivery for item in items], hidden, settled)

    async def _each(
        self,
        action: str,
        deliveries: Sequence[Delivery],
        entry: Entry,
        settled: Callable[[Lease], None] = lambda lease: None,
    ) -> list[Delivery]:
        """Do that to each. Returns those of which SQS says that their receipt is no longer good."""
        by_queue: dict[Queue, list[Delivery]] = defaultdict(list)
        for delivery in deliveries:
            by_queue[lease_of(delivery).queue].append(delivery)
        requests = [
            self._request(action, queue, batch, entry, settled)
            for queue, some in by_queue.items()
            for batch in tens(some)
        ]
        answers = await asyncio.gather(*requests, return_exceptions=True)  # whatever fails, the others end first
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return [delivery for answer in answers if not isinstance(answer, BaseException) for delivery in answer]

    async def _request(
        self,
        action: str,
        queue: Queue,
        batch: Sequence[Delivery],
        entry: Entry,
        settled: Callable[[Lease], None],
    ) -> list[Delivery]:
        leases = [lease_of(delivery) for delivery in batch]
        entries = [
            {"Id": str(number), "ReceiptHandle": lease.receipt, **entry(lease)} for number, lease in enumerate(leases)
        ]
        async with self._requests:
            answer = await self._api.call(action, QueueUrl=queue.url, Entries=entries)
        failed = {int(said["Id"]): said for said in answer.get("Failed") or ()}
        for number, lease in enumerate(leases):
            if number not in failed:
                settled(lease)
        late = [said for said in failed.values() if not said.get("SenderFault") or is_throttled(str(said.get("Code")))]
        if late:
            raise TransportUnavailable(self._api.name, f"{late[0].get('Code')}: {late[0].get('Message') or action}")
        for number in failed:
            leases[number].until = 0.0
        return [batch[number] for number in failed]


def lease_of(delivery: Delivery) -> Lease:
    lease: Lease = delivery.token
    return lease


def waits(item: Settlement) -> timedelta:
    """How long it may not be received."""
    outcome = item.outcome
    wait = outcome.after if isinstance(outcome, Retry) else outcome.pause if isinstance(outcome, Release) else None
    return max(wait or timedelta(), timedelta())


def _is_lost(delivery: Delivery, now: float) -> bool:
    lease = lease_of(delivery)
    return not lease.is_settled and not lease.is_ours(now)


def _in_order(settlements: Sequence[Settlement], lost: Sequence[Delivery]) -> list[Delivery]:
    gone = set(map(id, lost))
    return [item.delivery for item in settlements if id(item.delivery) in gone]
