"""What became of the letters of a replay: counted by the ledger, and looked up for those that others wait behind."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

from redrive.flow.guard import Fates
from redrive.flow.order import AT_REST, Fate, Order, fate_of
from redrive.flow.sending import Sending, behind
from redrive.forensics.query import Query
from redrive.model import Letter, LetterId, State
from redrive.stores.base import EntryStatus, Store

_PAGE = 500


async def fates_of(store: Store, replay: str) -> Fates:
    """What became of its letters so far."""
    tally = await store.ledger.tally(replay)
    sent = tally.get(EntryStatus.SENT, 0)
    return Fates(
        selected=tally.get(EntryStatus.SELECTED, 0),
        sent=sent,
        resolved=tally.get(EntryStatus.RESOLVED, 0),
        failed=tally.get(EntryStatus.FAILED, 0),
        skipped=tally.get(EntryStatus.SKIPPED, 0),
        untold=await untold(store, replay) if sent else 0,
    )


async def untold(store: Store, replay: str) -> int:
    """How many of its letters went to consumers that are not ours: one question, where there are none such."""
    if not await store.letters.count(Query(states=(State.SENT,))):
        return 0
    total = 0
    async for ids in _ids(store, replay, EntryStatus.SENT):
        total += await store.letters.count(Query(ids=ids, states=(State.SENT,)))
    return total


class Watching:
    """Looks up the letters that others of a replay wait for."""

    def __init__(self, store: Store, sending: Sending, order: Order | None, replay: str) -> None:
        self._store = store
        self._sending = sending
        self._order = order
        self._replay = replay

    async def recall(self) -> None:
        """Learn from the ledger which letters earlier runs have sent, and which of them died."""
        if self._order is None:
            return
        for status in (EntryStatus.SENT, EntryStatus.FAILED, EntryStatus.SKIPPED):
            async for ids in _ids(self._store, self._replay, status):
                page = await self._store.letters.search(Query(ids=ids), limit=len(ids))
                self._order.recall(page.letters, died=status is not EntryStatus.SENT)

    async def look(self, *, is_through: bool) -> bool:
        """Learn what became of letters that others wait for; whether something moved."""
        if self._order is None:
            return False
        lines = await self._look_ahead(self._order)
        return await self._look_at_parents(self._order, is_through) or lines

    async def _look_ahead(self, order: Order) -> bool:
        moved = False
        watched = order.watched()
        for start in range(0, len(watched), _PAGE):
            ids = watched[start : start + _PAGE]
            found = await self._letters(ids)
            fates = [(id, fate_of(found.get(id)), None) for id in ids]
            moved = moved or any(fate is not Fate.OPEN for _, fate, _ in fates)
            await self._sending.skip({late: behind(first) for late, first in order.learn(fates)})
        return moved

    async def _look_at_parents(self, order: Order, is_through: bool) -> bool:
        """Let children go whose parents are done with; skip those whose parent died, or is no part of this replay."""
        skipped: dict[LetterId, str] = {}
        waiting: dict[LetterId, list[Letter]] = {}
        before = len(order.children)
        for child, parents in list(order.children.items()):
            page = await self._store.letters.search(Query(message_ids=parents), limit=_PAGE)
            open = [letter for letter in page.letters if fate_of(letter) is not Fate.DONE or letter.state is State.SENT]
            if not open:
                order.release(child)
            elif why := self._in_vain(order, open, is_through):
                skipped[child] = why
            else:
                waiting[child] = open
        if is_through:
            skipped |= dict.fromkeys(in_a_circle(waiting), "it depends on letters that depend on it")
        for child in skipped:
            del order.children[child]
        await self._sending.skip(skipped)
        return len(order.children) < before

    def _in_vain(self, order: Order, parents: Sequence[Letter], is_through: bool) -> str:
        """Why there is no point in waiting for these; empty, if there is."""
        for parent in parents:
            if parent.replay == self._replay and parent.state in AT_REST and not order.holds(parent.id):
                return f"it depends on {parent.id}, which died again or was not sent"
            if is_through and parent.state in (*AT_REST, State.SENT) and not order.holds(parent.id):
                return f"it waits for another that is not resolved, and no part of this replay: {parent.id}"
        return ""

    async def _letters(self, ids: Sequence[LetterId]) -> Mapping[LetterId, Letter]:
        page = await self._store.letters.search(Query(ids=tuple(ids)), limit=len(ids))
        return {letter.id: letter for letter in page.letters}


def in_a_circle(waiting: Mapping[LetterId, Sequence[Letter]]) -> set[LetterId]:
    """Of children and the parents each waits for: those that wait for nobody but one another."""
    stuck = set(waiting)
    while freed := {child for child in stuck if any(parent.id not in stuck for parent in waiting[child])}:
        stuck -= freed
    return stuck


async def _ids(store: Store, replay: str, status: EntryStatus) -> AsyncIterator[tuple[LetterId, ...]]:
    after = None
    while True:
        entries, after = await store.ledger.entries(replay, status=status, after=after, limit=_PAGE)
        if entries:
            yield tuple(entry.letter for entry in entries)
        if after is None:
            return
