"""One run of a replay: its letters go back batch by batch, and the ledger says what became of each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from redrive.clock import Clock
from redrive.flow.lineage import said_version
from redrive.flow.order import AT_REST, Fate, Order, Place
from redrive.flow.resend import Resend, Results
from redrive.flow.waiting import Wait, Waits
from redrive.forensics.query import Query
from redrive.model import OPEN, Letter, LetterId, State
from redrive.stores.base import Entry, EntryStatus, Store
from redrive.telemetry.events import BackendDown, Events
from redrive.transports.base import SendStatus

_UNSENT = (State.PENDING, State.EXHAUSTED, State.REPLAYING)
_CHANGED = "it was changed since it was selected"
_DIED_SINCE = "it died again after it was selected: what it is now was not part of the plan"
_WHY_NOT = {
    State.RESOLVED: "it was resolved after it was selected",
    State.ARCHIVED: "it was archived after it was selected",
    State.RETRYING: "an automatic retry has it",
    State.SENT: "it was sent back by somebody else after it was selected",
}


class Batch(Struct, frozen=True):
    """How a batch fared."""

    asked: int = 0  # messages that were sent to a transport
    finished: int = 0  # letters whose line in the ledger is written
    left: int = 0  # letters that are asked for again
    untold: int = 0  # letters that went to consumers that are not ours
    size: int = 0  # bytes of the bodies that were sent


class Taken(Struct, frozen=True):
    """Letters that are to be sent next, claimed."""

    ids: Sequence[LetterId] = ()
    claimed: Mapping[LetterId, Letter] = {}
    resting: int = 0  # letters that are asked for again, because their target is left alone for now
    given_up: int = 0  # letters that were skipped, because their target was given up
    at: float = 0.0  # when they were asked for, by `Clock.elapsed`


class Sorted(Struct, frozen=True):
    """What is to become of the letters of a batch."""

    going: list[Letter]
    skipped: dict[LetterId, str]


class Sending:
    """Sends what it is given, and knows what it has to wait for.

    newest   letters that died later than this are not as they were selected
    since    letters that were edited later than this are not, either
    order    the lines of the replay, if it keeps order
    """

    def __init__(
        self,
        store: Store,
        way: Resend,
        events: Events,
        clock: Clock,
        *,
        replay: str,
        waits: Sequence[Wait],
        newest: datetime | None = None,
        since: datetime | None = None,
        order: Order | None = None,
    ) -> None:
        self._store = store
        self._way = way
        self._events = events
        self._clock = clock
        self._replay = replay
        self._newest = newest
        self._since = since
        self._order = order
        self.waits = Waits(waits)
        self.before_lines: Callable[[], Awaitable[None]] | None = (
            None  # called before the first letter of a line is sent
        )

    async def take(self, ids: Sequence[LetterId]) -> Taken:
        """Claim them. It may be done while those before them are sent: what is not sent in the end is given back."""
        at = self._clock.elapsed()
        if not ids:
            return Taken(at=at)
        taken = await self._without_waits(Taken(ids)) if self.waits else Taken(ids)
        return replace(taken, claimed=await self._claim(taken.ids), at=at)

    @property
    def lease(self) -> float:
        """For how many seconds a claim is ours."""
        return self._way.lease.total_seconds()

    async def send(self, taken: Taken) -> Batch:
        """Send, confirm; write what is known into the ledger. The rest stays claimed, and is asked for again."""
        if not taken.ids:
            return Batch(0, taken.given_up, taken.resting)
        if self.waits:  # for what those before them were told, since they were claimed
            taken = await self._without_waits(taken)
        ids, claimed = taken.ids, taken.claimed
        missing = await self._found([id for id in ids if id not in claimed]) if len(claimed) < len(ids) else {}
        going, before = self._placed(ids, claimed, missing)
        if self.before_lines is not None and self._order is not None and self._order.is_used:
            await self.before_lines()
            self.before_lines = None
        results = await self._way.send(going.going)
        self._learn(going.going, results)
        later = [id for id, result in results.items() if result.status in (SendStatus.BUSY, SendStatus.UNKNOWN)]
        finished = await self._write(going, results, before, claimed)
        untold = sum(letter.foreign for letter in going.going if _is_accepted(results, letter.id))
        size = sum(len(letter.message.body) for letter in going.going)
        return Batch(len(going.going), finished + taken.given_up, taken.resting + len(later), untold, size)

    async def skip(self, why: Mapping[LetterId, str]) -> None:
        """Give these back as they were, and write why into the ledger."""
        if why:
            page = await self._store.letters.search(Query(ids=tuple(why)), limit=len(why))
            await self._way.undo(page.letters)
            await self._store.ledger.mark([self._skipped(id, text) for id, text in why.items()])

    # -- what goes, and what does not --------------------------------------------------------------------------------

    async def _claim(self, ids: Sequence[LetterId]) -> dict[LetterId, Letter]:
        """Claim what may still be sent, in the order given. A letter that is SENT may be sent again, but not by the
        replay that sent it: that one died before it could write so into the ledger."""
        if not ids:
            return {}
        claimed = {
            letter.id: letter for letter in await self._way.claim(Query(ids=tuple(ids), states=_UNSENT), len(ids))
        }
        if len(claimed) < len(ids):
            left = tuple(id for id in ids if id not in claimed)
            page = await self._store.letters.search(Query(ids=left, states=(State.SENT,)), limit=len(left))
            again = tuple(letter.id for letter in page.letters if letter.replay != self._replay)
            query = Query(ids=again, states=(State.SENT,))
            claimed |= {letter.id: letter for letter in (await self._way.claim(query, len(again)) if again else ())}
        return {id: claimed[id] for id in ids if id in claimed}

    async def _found(self, ids: Sequence[LetterId]) -> dict[LetterId, Letter]:
        page = await self._store.letters.search(Query(ids=tuple(ids)), limit=len(ids))
        return {letter.id: letter for letter in page.letters}

    def _placed(
        self, ids: Sequence[LetterId], claimed: Mapping[LetterId, Letter], missing: Mapping[LetterId, Letter]
    ) -> tuple[Sorted, set[LetterId]]:
        """What becomes of each; and those that an earlier run of this replay sent, and died before it could write so
        into the ledger."""
        going, before = Sorted([], {}), set[LetterId]()
        for id in ids:
            letter = claimed.get(id) or missing.get(id)
            if id not in claimed and letter is not None and self._was_sent(letter):
                before.add(id)
                if self._order is not None:
                    self._order.place(letter)
            elif id not in claimed:
                self._unclaimed(id, letter, going)
            elif letter is not None:
                self._ours(letter, going)
        return going, before

    def _ours(self, letter: Letter, going: Sorted) -> None:
        place = Place.GO if self._order is None else self._order.place(letter)
        if why := self._changed(letter):
            self._skip(letter, why, going)
        elif place is Place.GO:
            going.going.append(letter)
        elif place is Place.SKIP and self._order is not None:
            self._skip(letter, behind(self._order.dead_ahead(letter)), going)

    def _changed(self, letter: Letter) -> str:
        """Why it is not what was selected; empty, if it is."""
        if self._newest is not None and letter.created_at > self._newest:
            return _DIED_SINCE
        if self._since is not None and letter.edit is not None and letter.edit.at > self._since:
            return f"it was edited after it was selected, by {letter.edit.by}"
        return ""

    def _skip(self, letter: Letter, why: str, going: Sorted) -> None:
        going.skipped[letter.id] = why
        self._passed_over(letter, is_open=True, going=going)

    def _unclaimed(self, id: LetterId, letter: Letter | None, going: Sorted) -> None:
        waits = letter is not None and letter.state in AT_REST and bool(letter.depends_on)
        if waits and letter is not None and self._order is not None:
            self._order.children[id] = letter.depends_on
            return
        if letter is None:
            going.skipped[id] = "it was deleted after it was selected"
            if self._order is not None:
                self._order.learn([(id, Fate.DONE, None)])
            return
        going.skipped[id] = _why_not(letter)
        self._passed_over(letter, is_open=letter.state in OPEN, going=going)

    def _passed_over(self, letter: Letter, *, is_open: bool, going: Sorted) -> None:
        if self._order is not None:
            late = self._order.forget(letter, is_open=is_open)
            going.skipped.update((id, behind(first)) for id, first in late)

    def _was_sent(self, letter: Letter) -> bool:
        """What is archived may have been before it was sent; what waits for a parent was not."""
        if letter.replay != self._replay or letter.state is State.ARCHIVED:
            return False
        return not (letter.state in AT_REST and letter.depends_on)

    async def _without_waits(self, taken: Taken) -> Taken:
        """Without those whose target is to be left alone for now: they stay claimed, if they were."""
        resting, given_up = await self._put_off(taken.ids)
        return Taken(
            [id for id in taken.ids if id not in resting and id not in given_up],
            {id: letter for id, letter in taken.claimed.items() if id not in resting and id not in given_up},
            taken.resting + len(resting),
            taken.given_up + len(given_up),
            taken.at,
        )

    async def _put_off(self, ids: Sequence[LetterId]) -> tuple[set[LetterId], set[LetterId]]:
        """Those whose target is to be left alone for now; and those whose target is given up, which are skipped."""
        now = self._clock.now()
        page = await self._store.letters.search(Query(ids=tuple(ids)), limit=len(ids))
        waits = {letter.id: wait for letter in page.letters if (wait := self.waits.of(letter)) is not None}
        given_up = {id: wait for id, wait in waits.items() if wait.given_up}
        if given_up:
            await self._way.undo([letter for letter in page.letters if letter.id in given_up])
            await self._store.ledger.mark(self._skipped(id, _given_up(wait)) for id, wait in given_up.items())
            await self._leave([letter for letter in page.letters if letter.id in given_up])
        return {id for id, wait in waits.items() if wait.again_at > now} - given_up.keys(), set(given_up)

    async def _leave(self, letters: Iterable[Letter]) -> None:
        """Those behind a letter that was given up are skipped as well."""
        if self._order is not None:
            late = [pair for letter in letters for pair in self._order.forget(letter, is_open=True)]
            await self.skip({id: behind(first) for id, first in late})

    # -- what became of it -------------------------------------------------------------------------------------------

    def _learn(self, letters: Sequence[Letter], results: Results) -> None:
        now = self._clock.now()
        doubtful = [letter.id for letter in letters if self._way.may_double(letter, results[letter.id])]
        for wait in self.waits.learn(letters, results, now, doubtful=doubtful):
            self._events.emit(BackendDown(backend=wait.transport, why=wait.why, pause=wait.again_at - now))

    async def _write(
        self, going: Sorted, results: Results, before: Collection[LetterId], claimed: Mapping[LetterId, Letter]
    ) -> int:
        """Write into the ledger what was sent and what was skipped; returns how many lines that were."""
        refused = {id: result.why for id, result in results.items() if result.status is SendStatus.REFUSED}
        for id in refused:
            self._passed_over(claimed[id], is_open=True, going=going)
        skipped = {**going.skipped, **refused}
        undone = [claimed[id] for id in skipped if id in claimed]
        late = {id: why for id, why in skipped.items() if id not in claimed and self._order is not None}
        if undone:
            await self._way.undo(undone)
        if late:  # they may be claimed from an earlier batch, behind what is skipped now
            await self.skip(late)
        now = self._clock.now()
        sent = [id for id in results if _is_accepted(results, id)]
        entries = [
            Entry(self._replay, id, EntryStatus.SENT, now, said_version(claimed[id].version) if id in claimed else "")
            for id in (*sent, *before)
        ]
        entries += [self._skipped(id, why) for id, why in skipped.items() if id not in late]
        if entries:
            await self._store.ledger.mark(entries)
        return len(entries) + len(late)

    def _skipped(self, id: LetterId, why: str) -> Entry:
        return Entry(self._replay, id, EntryStatus.SKIPPED, self._clock.now(), why)


def behind(first: LetterId | None) -> str:
    """Why a letter is skipped whose key has another one before it."""
    return f"it is behind {first or 'another'} of its key, which died again or was not sent"


def _is_accepted(results: Results, id: LetterId) -> bool:
    return id in results and results[id].status is SendStatus.ACCEPTED


def _why_not(letter: Letter) -> str:
    if letter.state is State.REPLAYING:
        return f"replay {letter.replay} has it"
    if letter.state in AT_REST and letter.depends_on:
        return f"it waits for another that is not resolved: {', '.join(letter.depends_on)[:100]}"
    return _WHY_NOT.get(letter.state, _CHANGED)


def _given_up(wait: Wait) -> str:
    return f"given up after {wait.tries} tries: {wait.why}"
