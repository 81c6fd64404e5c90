"""One run of a replay: its letters go back batch by batch, and the ledger says what became of each."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec import Struct

from redrive.clock import Clock
from redrive.flow.lineage import said_version
from redrive.flow.resend import Resend, Results
from redrive.flow.waiting import Wait, Waits
from redrive.forensics.query import Query
from redrive.model import Letter, LetterId, State
from redrive.stores.base import Entry, EntryStatus, Store
from redrive.telemetry.events import BackendDown, Events
from redrive.transports.base import SendStatus

_UNSENT = (State.PENDING, State.EXHAUSTED, State.REPLAYING)
_CHANGED = "it was changed, or waits for another, since it was selected"


class Batch(Struct, frozen=True):
    """How a batch fared."""

    asked: int  # messages that were sent to a transport
    finished: int  # letters whose line in the ledger is written
    left: int  # letters that are asked for again


class Sending:
    """Sends what it is given, and knows what it has to wait for."""

    def __init__(
        self, store: Store, way: Resend, events: Events, clock: Clock, *, replay: str, waits: Sequence[Wait]
    ) -> None:
        self._store = store
        self._way = way
        self._events = events
        self._clock = clock
        self._replay = replay
        self.waits = Waits(waits)

    async def send(self, ids: Sequence[LetterId]) -> Batch:
        """Claim, send, confirm; write what is known into the ledger. The rest stays claimed, and is asked for again."""
        if not ids:
            return Batch(asked=0, finished=0, left=0)
        resting, given_up = await self._put_off(ids) if self.waits else (set(), set())
        ids = [id for id in ids if id not in resting | given_up]
        letters = await self._claim(ids)
        results = await self._way.send(letters)
        self._learn(letters, results)
        later = {id for id, result in results.items() if result.status in (SendStatus.BUSY, SendStatus.UNKNOWN)}
        await self._write([id for id in ids if id not in later], letters, results)
        finished = len(ids) - len(later) + len(given_up)
        return Batch(asked=len(letters), finished=finished, left=len(resting) + len(later))

    async def _claim(self, ids: Sequence[LetterId]) -> Sequence[Letter]:
        """Claim what may still be sent. A letter that is SENT may be sent again, but not by the replay that sent it:
        that one died before it could write so into the ledger."""
        if not ids:
            return ()
        claimed = await self._way.claim(Query(ids=tuple(ids), states=_UNSENT), len(ids))
        if len(claimed) == len(ids):
            return claimed
        left = tuple({*ids} - {letter.id for letter in claimed})
        page = await self._store.letters.search(Query(ids=left, states=(State.SENT,)), limit=len(left))
        again = tuple(letter.id for letter in page.letters if letter.replay != self._replay)
        query = Query(ids=again, states=(State.SENT,))
        return [*claimed, *(await self._way.claim(query, len(again)) if again else ())]

    async def _put_off(self, ids: Sequence[LetterId]) -> tuple[set[LetterId], set[LetterId]]:
        """Those whose target is to be left alone for now; and those whose target is given up, which are skipped."""
        now = self._clock.now()
        page = await self._store.letters.search(Query(ids=tuple(ids)), limit=len(ids))
        waits = {letter.id: wait for letter in page.letters if (wait := self.waits.of(letter)) is not None}
        given_up = {id: wait for id, wait in waits.items() if wait.given_up}
        if given_up:
            await self._way.undo([letter for letter in page.letters if letter.id in given_up])
            await self._store.ledger.mark(self._skipped(id, _given_up(wait)) for id, wait in given_up.items())
        return {id for id, wait in waits.items() if wait.again_at > now} - given_up.keys(), set(given_up)

    def _learn(self, letters: Sequence[Letter], results: Results) -> None:
        now = self._clock.now()
        doubtful = [letter.id for letter in letters if self._way.may_double(letter, results[letter.id])]
        for wait in self.waits.learn(letters, results, now, doubtful=doubtful):
            self._events.emit(BackendDown(backend=wait.transport, why=wait.why, pause=wait.again_at - now))

    async def _write(self, ids: Sequence[LetterId], claimed: Sequence[Letter], results: Results) -> None:
        """Write into the ledger what was sent and what was skipped.

        What the claim did not get is no longer as it was selected, or an earlier run has sent it.
        """
        refused = {id: result.why for id, result in results.items() if result.status is SendStatus.REFUSED}
        going = results.keys() - refused.keys()
        going |= await self._sent_before([id for id in ids if id not in results])
        await self._way.undo([letter for letter in claimed if letter.id in refused])
        now = self._clock.now()
        versions = {letter.id: said_version(letter.version) for letter in claimed}
        await self._store.ledger.mark(
            Entry(self._replay, id, EntryStatus.SENT, now, versions.get(id, ""))
            if id in going
            else self._skipped(id, refused.get(id, _CHANGED))
            for id in ids
        )

    def _skipped(self, id: LetterId, why: str) -> Entry:
        return Entry(self._replay, id, EntryStatus.SKIPPED, self._clock.now(), why)

    async def _sent_before(self, ids: Collection[LetterId]) -> set[LetterId]:
        """Those that a run of this replay sent and confirmed, and died before it could write so into the ledger. What
        is archived may have been before it was sent."""
        if not ids:
            return set()
        page = await self._store.letters.search(Query(ids=tuple(ids)), limit=len(ids))
        sent = [letter for letter in page.letters if letter.replay == self._replay]
        return {letter.id for letter in sent if letter.state is not State.ARCHIVED}


def _given_up(wait: Wait) -> str:
    return f"given up after {wait.tries} tries: {wait.why}"
