"""Letters that were sent back: each is a small document of its store, which carries the lease of whoever has it.

The letter itself stays with whoever sent it back (a replay, upkeep), so that its outcome is written as for any broker.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import count

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from redrive.clock import Clock
from redrive.flow.lineage import Lineage, lineage, sent_back
from redrive.model import Failure, Letter, LetterId, Message, Owner, Reason, State
from redrive.stores.base import Document, Store
from redrive.transports.base import Delivery, Depth, Listing, Queued, QueueState

KIND = "sent-back"
_MOST = 10_000
IN_FLIGHT = (State.RETRYING, State.REPLAYING)


class Sent(Struct, frozen=True, kw_only=True):
    """One letter on its way back."""

    letter: LetterId
    source: str
    replay: str | None
    retries: int
    at: datetime
    number: int  # among those of one time
    priority: int = 0
    attempt: int = 1
    not_before: datetime | None = None
    owner: Owner | None = None
    until: datetime | None = None
    redelivered: bool = False

    @property
    def turn(self) -> tuple[int, datetime, int]:
        """The most urgent first, then as they were sent."""
        return self.priority, self.at, self.number

    def is_leased(self, now: datetime) -> bool:
        return self.until is not None and self.until > now

    def is_delayed(self, now: datetime) -> bool:
        return self.not_before is not None and self.not_before > now

    def stands(self, now: datetime) -> QueueState:
        if self.is_leased(now):
            return QueueState.LEASED
        return QueueState.DELAYED if self.is_delayed(now) else QueueState.READY

    def is_of(self, letter: Letter) -> bool:
        """Whether the letter is still on the way that began with this sending."""
        if self.replay is not None and letter.reason is not Reason.PARKED:
            return letter.state is State.REPLAYING and letter.replay == self.replay
        origin = lineage(sent_back(letter, now=letter.updated_at))
        return letter.state in IN_FLIGHT and origin is not None and origin.retries == self.retries


class Lease(Struct, frozen=True):
    """What proves that a letter is ours, and the letter as it was when it became so."""

    letter: Letter
    owner: Owner
    document: str | None = None  # of what was sent back; without one, the letter itself is leased


class SentLetters:
    """The documents of a store's letters that were sent back. Every change of one is compare-and-set."""

    def __init__(self, store: Store, clock: Clock, lease: timedelta) -> None:
        self._store = store
        self._clock = clock
        self._lease = lease
        self._numbers = count(1)

    async def put(self, message: Message, origin: Lineage) -> None:
        """Sent once more on the same way it is one, and nobody's: who held it has lost it."""
        sent = Sent(
            letter=origin.letter,
            source=message.source,
            replay=origin.replay,
            retries=origin.retries,
            at=self._clock.now(),
            number=next(self._numbers),
            priority=message.priority,
            attempt=message.attempt,
        )
        id = f"{origin.letter}:{origin.replay or origin.retries}"
        await self._store.documents.put(KIND, id, msgspec.to_builtins(sent))

    async def take(
        self, source: str, owner: Owner, limit: int, is_lost: Callable[[LetterId, Owner], bool]
    ) -> list[Delivery]:
        """At most so many, the most urgent first. `is_lost` says of a lease that nobody knows that he has it."""
        now, taken = self._clock.now(), list[Delivery]()
        found = [(sent, document) for sent, document in await self._all() if sent.source == source]
        for sent, document in sorted(found, key=lambda pair: pair[0].turn):
            if len(taken) == limit:
                break
            unknown = sent.owner is not None and is_lost(sent.letter, sent.owner)
            if not sent.is_delayed(now) and (unknown or not sent.is_leased(now)):
                taken += await self._leased(sent, document, owner, now)
        return taken

    async def _all(self) -> list[tuple[Sent, Document]]:
        documents = await self._store.documents.list(KIND, limit=_MOST)
        return [(msgspec.convert(document.body, Sent), document) for document in documents]

    async def _leased(self, sent: Sent, document: Document, owner: Owner, now: datetime) -> list[Delivery]:
        """It, unless another was faster. What was archived or resolved meanwhile is not to be done any more."""
        again = sent.redelivered or sent.owner is not None
        leased = replace(sent, owner=owner, until=now + self._lease, redelivered=again)
        if not await self._write(leased, document):
            return []
        letter = await self._store.letters.get(sent.letter)
        if letter is None or not sent.is_of(letter):
            await self._store.documents.delete(KIND, document.id)
            return []
        message = replace(sent_back(letter, now=now, replay=sent.replay), attempt=sent.attempt)
        return [Delivery(message, Lease(letter, owner, document.id), redelivered=again)]

    async def _write(self, sent: Sent, document: Document) -> bool:
        return await self._store.documents.put(
            KIND, document.id, msgspec.to_builtins(sent), expect=document.version
        )  # fmt: skip

    async def change(self, lease: Lease, **changes: object) -> bool:
        """Whether it was still ours to change."""
        assert lease.document is not None
        while (document := await self._store.documents.get(KIND, lease.document)) is not None:
            sent = msgspec.convert(document.body, Sent)
            if sent.owner != lease.owner:
                return False
            if await self._write(replace(sent, **changes), document):
                return True
        return False

    async def extend(self, lease: Lease) -> bool:
        return await self.change(lease, until=self._clock.now() + self._lease)

    async def release(self, lease: Lease, pause: timedelta) -> bool:
        return await self.change(lease, owner=None, until=None, not_before=self._clock.now() + pause)

    async def retry(self, delivery: Delivery, failure: Failure | None, after: timedelta) -> bool:
        """The failure is in the letter before another attempt can be had."""
        lease, now = delivery.token, self._clock.now()
        if not await self.extend(lease):
            return False
        if failure is not None:
            kept = replace(lease.letter, failures=(failure,), updated_at=now, owner=None, lease_until=None)
            await self._store.letters.record([kept])
        attempt = delivery.message.attempt + 1
        return await self.change(lease, owner=None, until=None, attempt=attempt, not_before=now + after)

    async def finish(self, lease: Lease) -> bool:
        """Resolve the letter, if nobody has written its outcome, and take the document away."""
        if not await self.extend(lease):
            return False
        letter = await self._store.letters.get(lease.letter.id)
        if letter is not None and (letter.state, letter.replay) == (lease.letter.state, lease.letter.replay):
            await self._store.letters.move(
                [letter.id], expect=[letter.state], to=State.RESOLVED, owner=letter.owner, now=self._clock.now()
            )
        assert lease.document is not None
        await self._store.documents.delete(KIND, lease.document)
        return True

    async def listing(self, source: str, state: QueueState | None, start: int, limit: int) -> Listing:
        """How what was sent back stands, in the order in which it is taken."""
        now = self._clock.now()
        found = sorted((sent for sent, _ in await self._all() if sent.source == source), key=lambda sent: sent.turn)
        wanted = [sent for sent in found if state is None or sent.stands(now) is state]
        page = wanted[start : start + limit]
        letters = [await self._store.letters.get(sent.letter) for sent in page]
        messages = [
            Queued(
                replace(letter.message, attempt=sent.attempt),
                sent.stands(now),
                letter.failures,
                sent.until if sent.is_leased(now) else sent.not_before if sent.is_delayed(now) else None,
                sent.owner.rpartition(":")[0] if sent.owner is not None and sent.is_leased(now) else "",
            )
            for sent, letter in zip(page, letters, strict=True)
            if letter is not None
        ]
        return Listing(tuple(messages), str(start + limit) if len(wanted) > start + limit else None)

    async def depths(self) -> dict[str, Depth]:
        now, counts = self._clock.now(), defaultdict[str, list[int]](lambda: [0, 0, 0])
        for sent, _ in await self._all():
            counts[sent.source][2 if sent.is_leased(now) else 1 if sent.is_delayed(now) else 0] += 1
        return {source: Depth(*numbers) for source, numbers in counts.items()}
