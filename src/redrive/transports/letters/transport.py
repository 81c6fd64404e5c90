"""A transport whose messages are the letters of a store.

    receive   what was sent back, then what is due: claimed for us alone, for the time of a lease
    extend    the claim is made again by its owner
    done      the letter is resolved, unless its outcome is written already
    retry     the failure joins the letter, with its next time
    release   the claim is undone
    send      a letter is to be had at once (sent.py)

Every message that is received has the lineage of its letter, so that its outcome finds the letter and the ledger of
its replay. Only what is sent back is accepted: a message without a letter has no place here.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import count

from msgspec.structs import replace

from redrive.clock import Clock
from redrive.errors import StoreUnavailable
from redrive.flow.lineage import lineage, sent_back
from redrive.flow.pauses import StorePauses
from redrive.forensics.query import Query
from redrive.model import Done, Failure, Letter, LetterId, Message, Owner, Reason, Release, Retry, State
from redrive.stores.base import Store
from redrive.stores.paging import every_letter
from redrive.transports.base import (
    ACCEPTED,
    Delivery,
    Depth,
    Features,
    Listing,
    Paused,
    QueueState,
    SendResult,
    SendStatus,
    Settlement,
    number_after,
    translated_errors,
)
from redrive.transports.letters.sent import IN_FLIGHT, Lease, SentLetters

_OWNER = "letters:"
_PAUSES = "letters of this store"  # under this name the store keeps the pauses of its letters as a source
_REPLAY = "replay:"  # the owner of what a replay has claimed (flow/replay.py)
_NO_LETTER = "only letters are sent back here, and this message has none"


class LettersTransport:
    """Leases the letters of a store that are due, and those that are sent back through it.

    A dead worker's lease ends by itself, and `rescue` gives back what it had claimed.

    interval    how soon a receive sees what has become due, or was sent by another process
    resolves    whether done resolves the letter. It need not where whoever settles has written the outcome into this
                very store already, as the core does
    hint        told to whoever sends a message that has no letter
    """

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        lease: timedelta,
        interval: timedelta = timedelta(seconds=1),
        resolves: bool = True,
        hint: str = _NO_LETTER,
        owned: bool = False,
    ) -> None:
        self.features = Features(
            durable=store.features.durable,
            native_delay=True,
            counts_attempts=False,
            keeps_history=False,  # the letter has it
            ordered_by="none",
            idempotent_send=True,
            shared=store.features.shared,
        )
        self._store = store
        self._sent = SentLetters(store, clock, lease)
        self._pauses = StorePauses(store.documents, _PAUSES, clock)
        self._clock = clock
        self._lease = lease
        self._interval = interval
        self._resolves = resolves
        self._hint = hint
        self._owned = owned
        self._owner = f"{_OWNER}{clock.new_id()}"
        self._numbers = count(1)
        self._held: dict[LetterId, Owner] = {}
        self._claiming = asyncio.Lock()
        self._arrived = asyncio.Event()
        self._returning: set[asyncio.Task[None]] = set()

    # -- taking ----------------------------------------------------------------------------------------------------

    async def receive(self, source: str, limit: int) -> Sequence[Delivery]:
        while True:
            self._arrived.clear()
            with translated_errors():
                await self.rescue(source)
                taken = () if await self._is_paused(source) else await self._taken(source, limit)
            if taken:
                return taken
            await self._clock.wait(self._arrived, self._interval.total_seconds())

    async def _is_paused(self, source: str) -> bool:
        return any(paused.source == source for paused in await self._pauses.pauses())

    async def _taken(self, source: str, limit: int) -> Sequence[Delivery]:
        """What a receive that is cancelled has claimed is given back."""
        claiming = asyncio.ensure_future(self.take(source, limit))
        try:
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:
            returning = asyncio.get_running_loop().create_task(self._return(claiming))
            self._returning.add(returning)
            returning.add_done_callback(self._returning.discard)
            raise

    async def _return(self, claiming: asyncio.Future[list[Delivery]]) -> None:
        await self.settle([Settlement(delivery, Release()) for delivery in await claiming])

    async def take(self, source: str, limit: int, *, due: datetime | None = None) -> list[Delivery]:
        """What is to be had now, or was due then, without waiting for it. Raises StoreUnavailable, as `take_one` and
        `rescue` do."""
        async with self._claiming:
            owner = self._new_owner()
            taken = await self._sent.take(source, owner, limit, self._is_lost)
            if len(taken) < limit:
                query = Query(sources=(source,), states=(State.PENDING,), due=due or self._clock.now())
                letters = await self._claim(query, State.RETRYING, owner, limit - len(taken))
                taken += [self._delivery(letter) for letter in letters]
            self._held.update((delivery.token.letter.id, owner) for delivery in taken)
            return taken

    async def take_one(self, id: LetterId) -> Delivery | None:
        """That letter, due or not, for a retry that a person asks for: it counts as none of the automatic ones."""
        async with self._claiming:
            owner = self._new_owner()
            letters = await self._claim(Query(ids=(id,)), State.REPLAYING, owner, 1)
            self._held.update((letter.id, owner) for letter in letters)
            return next((self._delivery(letter, by_hand=True) for letter in letters), None)

    async def _claim(self, query: Query, to: State, owner: Owner, limit: int) -> Sequence[Letter]:
        now = self._clock.now()
        return await self._store.letters.claim(
            query, to=to, owner=owner, now=now, until=now + self._lease, limit=limit
        )  # fmt: skip

    def _delivery(self, letter: Letter, *, by_hand: bool = False) -> Delivery:
        assert letter.owner is not None
        return Delivery(sent_back(letter, now=self._clock.now(), by_hand=by_hand), Lease(letter, letter.owner))

    def _new_owner(self) -> Owner:
        """Each claim has an owner of its own: who lost a lease cannot settle the next one."""
        return f"{self._owner}:{next(self._numbers)}"

    def _is_lost(self, letter: LetterId, owner: Owner) -> bool:
        """Whether a claim of ours is one whose answer never reached us."""
        return owner.startswith(f"{self._owner}:") and self._held.get(letter) != owner

    # -- holding ---------------------------------------------------------------------------------------------------

    async def extend(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        renewed: set[tuple[LetterId, Owner]] = set()
        with translated_errors():
            for (owner, state), ids in _claims(deliveries).items():
                mine = Query(ids=tuple(ids), states=(state,), owner=owner)
                renewed |= {(letter.id, owner) for letter in await self._claim(mine, state, owner, len(ids))}
            for lease in (delivery.token for delivery in deliveries):
                if lease.document is not None and await self._sent.extend(lease):
                    renewed.add((lease.letter.id, lease.owner))
        lost = [item for item in deliveries if (item.token.letter.id, item.token.owner) not in renewed]
        self.forget(lost)
        return lost

    def forget(self, deliveries: Iterable[Delivery]) -> None:
        """Forget our leases on them: `rescue` gives back those that are claimed all the same."""
        for lease in (delivery.token for delivery in deliveries):
            if self._held.get(lease.letter.id) == lease.owner:
                del self._held[lease.letter.id]

    async def rescue(self, source: str) -> Counter[State]:
        """Give back what dead workers had claimed, and claims of ours whose answers got lost; how many, and to where.

        What a replay has claimed is the replay's: it is run on by somebody.
        """
        rescued: Counter[State] = Counter()
        async with self._claiming:  # a claim that is just being made is not one that got lost
            for letter in await self._abandoned(source):
                assert letter.owner is not None
                to = _undone(letter)
                rescued[to] += await self._move(Lease(letter, letter.owner), to)
        return +rescued

    async def _abandoned(self, source: str) -> list[Letter]:
        claimed = every_letter(self._store.letters, Query(sources=(source,), states=IN_FLIGHT))
        return [letter async for letter in claimed if self._is_abandoned(letter)]

    def _is_abandoned(self, letter: Letter) -> bool:
        owner = letter.owner
        if owner is None or letter.lease_until is None or self._held.get(letter.id) == owner:
            return False
        if owner.startswith(_REPLAY):
            return False
        return letter.lease_until < self._clock.now() or self._is_lost(letter.id, owner)

    # -- settling --------------------------------------------------------------------------------------------------

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Delivery]:
        done = [settlement.delivery for settlement in settlements if _is_claim_done(settlement)]
        with translated_errors():
            lost = {id(delivery) for delivery in await self._finish(done)}
            for settlement in settlements:
                if not _is_claim_done(settlement) and not await self._is_settled(settlement):
                    lost.add(id(settlement.delivery))
        deliveries = [settlement.delivery for settlement in settlements]
        self.forget(deliveries)
        self._arrived.set()
        return [delivery for delivery in deliveries if id(delivery) in lost]

    async def _finish(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Resolve what still is as we claimed it; what is at rest by now has its outcome. Returns what others have."""
        if not deliveries or not self._resolves:
            return []
        ids = tuple(delivery.token.letter.id for delivery in deliveries)
        page = await self._store.letters.search(Query(ids=ids, states=IN_FLIGHT), limit=len(ids))
        owners = {letter.id: letter.owner for letter in page.letters}
        for lease in (delivery.token for delivery in deliveries):
            if owners.get(lease.letter.id) == lease.owner:
                await self._move(lease, State.RESOLVED)
        leases = [(delivery, delivery.token) for delivery in deliveries]
        return [delivery for delivery, lease in leases if owners.get(lease.letter.id, lease.owner) != lease.owner]

    async def _is_settled(self, settlement: Settlement) -> bool:
        """Whether it was still ours to settle."""
        delivery, lease = settlement.delivery, settlement.delivery.token
        match settlement.outcome:
            case Done():
                return await self._sent.finish(lease)
            case Release(pause) if lease.document is not None:
                return await self._sent.release(lease, pause)
            case Retry(after) if lease.document is not None:
                return await self._sent.retry(delivery, settlement.failure, after)
            case Retry(after) if settlement.failure is not None:
                return await self._park(delivery, settlement.failure, after)
        return await self._move(lease, _undone(lease.letter))

    async def _park(self, delivery: Delivery, failure: Failure, after: timedelta) -> bool:
        if await self.extend([delivery]):
            return False
        now = self._clock.now()
        await self._store.letters.record([_parked(delivery, failure, now, now + after)])
        return True

    async def _move(self, lease: Lease, to: State) -> bool:
        moved = await self._store.letters.move(
            [lease.letter.id], expect=[lease.letter.state], to=to, owner=lease.owner, now=self._clock.now()
        )
        return bool(moved)

    # -- sending and standing --------------------------------------------------------------------------------------

    async def send(self, messages: Sequence[Message]) -> Sequence[SendResult]:
        results: list[SendResult] = []
        for message in messages:
            origin = lineage(message)
            if origin is None:
                results.append(SendResult(SendStatus.REFUSED, self._hint))
                continue
            try:
                await self._sent.put(message, origin)
            except StoreUnavailable as error:  # the answer may have got lost, and the others need the same store
                results += [SendResult(SendStatus.UNKNOWN, str(error))] * (len(messages) - len(results))
                break
            results.append(ACCEPTED)
        self._arrived.set()
        return results

    async def depths(self) -> dict[str, Depth]:
        """The depths of what was sent back. Letters that are due are counted as letters."""
        with translated_errors():
            return await self._sent.depths()

    @property
    def holder(self) -> str:
        return self._owner

    async def listing(
        self, source: str, *, state: QueueState | None = None, after: str | None = None, limit: int = 100
    ) -> Listing:
        """What was sent back. Letters that are due are letters, and shown as such."""
        with translated_errors():
            return await self._sent.listing(source, state, number_after(after), limit)

    async def pause(self, paused: Paused) -> Paused:
        with translated_errors():
            return await self._pauses.pause(paused)

    async def resume(self, source: str) -> Paused | None:
        with translated_errors():
            ended = await self._pauses.resume(source)
        self._arrived.set()
        return ended

    async def pauses(self) -> Sequence[Paused]:
        with translated_errors():
            return await self._pauses.pauses()

    async def check(self) -> None:
        with translated_errors():
            await self._store.check()

    async def aclose(self) -> None:
        if self._returning:
            await asyncio.wait(self._returning)
        if self._owned:
            await self._store.aclose()


def _claims(deliveries: Sequence[Delivery]) -> dict[tuple[Owner, State], list[LetterId]]:
    """The letters that were claimed, by their claim."""
    found: dict[tuple[Owner, State], list[LetterId]] = defaultdict(list)
    for lease in (delivery.token for delivery in deliveries):
        if lease.document is None:
            found[lease.owner, lease.letter.state].append(lease.letter.id)
    return found


def _is_claim_done(settlement: Settlement) -> bool:
    return isinstance(settlement.outcome, Done) and settlement.delivery.token.document is None


def _undone(letter: Letter) -> State:
    """The state before the claim: exhausted if it had been sent back before and no retry is planned, else pending."""
    was_exhausted = letter.state is State.REPLAYING and letter.next_retry_at is None and letter.resends > 1
    return State.EXHAUSTED if was_exhausted else State.PENDING


def _parked(delivery: Delivery, failure: Failure, now: datetime, due: datetime) -> Letter:
    """The letter with one more failure and its next time; because it is parked, its attempts go on counting."""
    letter: Letter = delivery.token.letter
    origin = lineage(delivery.message)
    return replace(
        letter,
        message=replace(letter.message, attempt=delivery.message.attempt + 1),
        failures=(failure,),
        state=State.PENDING,
        reason=Reason.PARKED,
        next_retry_at=due,
        updated_at=now,
        retries=letter.retries if origin is None else origin.retries,
        owner=None,
        lease_until=None,
    )
