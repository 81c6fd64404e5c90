"""The one application API. HTTP, console and CLI all call it, and hold no rule of their own.

Everything shown is redacted; everything done names who did it, and is written to the audit trail.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct

from redrive.alerts.incidents import Incident, Incidents, IncidentState
from redrive.answers import Answers, Unanswered, ask_each
from redrive.app import Redrive
from redrive.errors import NoWayBack, UnknownLetter, UnknownSource, UsageError
from redrive.flow.pauses import SourcePause, pauses_of
from redrive.flow.replay import Progress, Replay, Replays, selectable
from redrive.flow.validate import text_of
from redrive.forensics.measured import Measured, oldest_open, under_way
from redrive.forensics.query import Query
from redrive.forensics.queue import QueuedView, QueuePage, parked_view, queued_view
from redrive.forensics.redact import Redactor
from redrive.forensics.stats import Stats, stats_of
from redrive.forensics.transfer import letters_of, line_of
from redrive.forensics.turns import Fairness, Turns, turns
from redrive.forensics.views import Detail, Summary, detail, summary
from redrive.forensics.ways_back import not_configured
from redrive.forensics.workers import Roll, WorkerState, WorkerView, WorkingOn
from redrive.model import UNRESOLVED, Letter, LetterId, Reason, State
from redrive.sources import SourceFinder
from redrive.stores.base import REPLAYABLE, Cursor, Entry, EntryStatus, Group
from redrive.stores.paging import every_page
from redrive.telemetry.events import Acted, LettersMoved, LettersPruned
from redrive.transports.base import Depth, Lists, Pausable, Paused, QueueState, TakesTurns, Transport
from redrive.upkeep.heartbeat import EVERY, Beat, beats

if TYPE_CHECKING:
    from redrive.doctor import Diagnosis

T = TypeVar("T")
_BATCH = 500
_LOOK_AGAIN = 0.5
_FORCE = "`--force` pauses it all the same, for whoever will receive from it"
AUDIT = "audit"


class Summaries(Struct, frozen=True):
    """A page of letters."""

    letters: list[Summary]
    after: Cursor | None


class Plan(Struct, frozen=True):
    """What a replay would do, before anybody says yes."""

    total: int  # letters it would send
    sources: dict[str, int]
    groups: list[Group]
    left_out: int  # selected, but resolved, archived, sent or on their way already
    not_configured: dict[str, int] = {}  # transports that this process does not have -> letters that would be skipped


class Sources(Struct, frozen=True):
    """The sources that are known, and which backends could not be asked for theirs."""

    sources: list[str]
    unanswered: list[Unanswered]


class ReplayReport(Struct, frozen=True):
    """A replay and what became of its letters."""

    replay: Replay
    entries: dict[EntryStatus, int]


class PauseReport(Struct, frozen=True):
    """The pause that holds, and whether it is this one: if not, somebody was first."""

    is_new: bool
    pause: SourcePause


class Service:
    """Everything that can be asked of Redrive, and done with it.

    `unanswered` is told of each backend that did not answer, whatever was asked; answers that have a place for it name
    it, too.
    """

    def __init__(self, app: Redrive, *, unanswered: Callable[[Unanswered], None] = lambda backend: None) -> None:
        self.app = app
        self._unanswered = unanswered
        self.redactor = Redactor.of(app.settings.redact)
        self.incidents = Incidents(app.store.documents, app.clock, app.events)
        self.replays = Replays(app.store, app.transports, app.events, app.clock)
        self._sources = SourceFinder(app)
        self._roll = Roll(EVERY)

    # -- seeing --------------------------------------------------------------------------------------------------

    async def letters(self, query: Query, *, after: Cursor | None = None, limit: int = 50) -> Summaries:
        """A page of letters, newest first."""
        await self._check(query)
        page = await self.app.store.letters.search(query, after=after, limit=_bounded(limit))
        return Summaries([summary(letter, self.redactor) for letter in page.letters], page.after)

    async def letter(self, id: LetterId) -> Detail:
        """The letter of that id, of the only id that begins so, or of the message with that id."""
        return detail(await self.find(id), self.redactor)

    async def find(self, id: LetterId) -> Letter:
        """The letter itself, unredacted: for what goes back to a transport, never for what is shown."""
        letter = await self.app.store.letters.get(id)
        if letter is not None:
            return letter
        for query in (Query(message_ids=(id,)), Query(id_prefix=id)):
            page = await self.app.store.letters.search(query, limit=2)
            if len(page.letters) > 1:
                names = ", ".join(f"{letter.id} ({letter.message.source})" for letter in page.letters)
                raise UsageError(f"{id!r} means more than one letter: {names}")
            if page.letters and id:
                return page.letters[0]
        raise UnknownLetter(id)

    async def named(self, ids: Iterable[LetterId]) -> Query:
        """Exactly those letters, named as `letter` takes it; one that does not exist is an error."""
        return Query(ids=tuple([(await self.find(id)).id for id in ids]))

    async def groups(self, query: Query, *, limit: int = 50) -> Sequence[Group]:
        """The groups, the largest first."""
        await self._check(query)
        return self._redacted(await self.app.store.letters.groups(query, limit=_bounded(limit)))

    async def stats(self) -> Stats:
        """Letters by state, category and source, how full the queues are and what is paused: all that answered."""
        store = {"store": lambda: self.app.store.letters.tallies()}
        counted, queues, paused = await asyncio.gather(
            self._ask(store), self._ask_transports(_depths), self._ask_pauses(tell=False)
        )
        depths = {
            _shown(name, source): depth for name, found in queues.found.items() for source, depth in found.items()
        }
        silent = [*counted.unanswered, *queues.unanswered]
        pauses = _by_shown_name(paused)
        return stats_of(counted.found.get("store"), depths, self.app.clock.now(), pauses=pauses, unanswered=silent)

    async def measured(self) -> Measured:
        """What a scrape shows of store and transports, all of it asked at once."""
        store: dict[str, Callable[[], Awaitable[Any]]] = {
            "oldest": lambda: oldest_open(self.app.store.letters),
            "replays": lambda: under_way(self.replays, self.app.clock.now()),
        }
        stats, found = await asyncio.gather(self.stats(), ask_each(store))
        silent = {backend.backend for backend in stats.unanswered}
        up = {name: name not in silent for name in ("store", *map("transports.{}".format, self.app.transport_names))}
        return Measured(stats, up, found.found.get("oldest"), found.found.get("replays", {}))

    async def fairness(self, *, limit: int = 50) -> Fairness:
        """How the tenants of each source fare, where they take turns."""

        async def taken(transport: Transport) -> list[Turns]:
            if not isinstance(transport, TakesTurns):
                return []
            sources = sorted({*await transport.depths(), *self.app.sources})
            return [turns(source, await transport.tenants(source, limit)) for source in sources]

        answers = await self._ask_transports(taken)
        shared = [source for found in answers.found.values() for source in found if source.tenants]
        return Fairness(shared, answers.unanswered)

    async def workers(self, *, patiently: bool = False) -> list[WorkerView]:
        """Who works on what. A worker that was seen once, and whose clock says that it is lost, may have a wrong clock.

        patiently   look at such workers until they have had time for another beat
        """
        app, elapsed = self.app, self.app.clock.elapsed
        while True:
            found = await beats(app.store.documents)
            now, at = app.clock.now(), elapsed()
            self._roll.look({id: number for id, (number, _) in found.items()}, at)
            ages = {id: (now - beat.at).total_seconds() for id, (_, beat) in found.items()}
            if not patiently or not any(self._roll.is_unsure(id, age, at) for id, age in ages.items()):
                break
            await app.clock.sleep(_LOOK_AGAIN)
        paused = {(pause.transport, pause.source) for pause in await self.pauses()}
        views = [self._worker(id, beat, ages[id], at, paused) for id, (_, beat) in found.items()]
        return sorted(views, key=lambda view: (view.state is WorkerState.LOST, view.worker, view.started_at))

    def _worker(self, id: str, beat: Beat, age: float, at: float, paused: set[tuple[str, str]]) -> WorkerView:
        is_lost = self._roll.is_lost(id, age, at)
        alive = WorkerState.DRAINING if beat.draining else WorkerState.RUNNING
        sources = [
            WorkingOn(
                working.source,
                working.transport,
                working.concurrency,
                working.in_hand,
                (working.transport, working.source) in paused,
            )
            for working in beat.sources
        ]
        return WorkerView(
            id=id,
            worker=beat.worker,
            host=beat.host,
            pid=beat.pid,
            version=beat.version,
            redrive=beat.redrive,
            state=WorkerState.LOST if is_lost else alive,
            started_at=beat.started_at,
            beat_at=beat.at,
            clock_apart=self._roll.clock_apart(id, age, at),
            in_hand=sum(working.in_hand for working in beat.sources),
            sources=sources,
        )

    async def queue(
        self,
        source: str,
        *,
        state: QueueState | None = None,
        after: str | None = None,
        limit: int = 50,
        transport: str | None = None,
    ) -> QueuePage:
        """How the messages of a source stand: ready, delayed, leased and by whom. Leases and changes nothing."""
        name = await self._sources.transport_of(source, transport)
        its = self.app.transport(name)
        if not isinstance(its, Lists):
            raise UsageError(f"transport {name!r} cannot show its messages; `redrive stats` counts them")
        listing = await its.listing(source, state=state, after=after, limit=_bounded(limit))
        holders = {
            holder: beat.worker
            for _, beat in (await beats(self.app.store.documents)).values()
            for holder in beat.holders
        }
        parked = (
            [] if after is not None or state not in (None, QueueState.DELAYED) else await self._parked(source, limit)
        )
        return QueuePage(
            source=source,
            transport=name,
            depth=(await its.depths()).get(source, Depth(0, 0, 0)),
            paused=_by_shown_name(await self._ask_pauses()).get(_shown(name, source)),
            messages=[*(queued_view(queued, self.redactor, holders) for queued in listing.messages), *parked],
            after=listing.after,
            notes=list(listing.notes),
        )

    async def _parked(self, source: str, limit: int) -> list[QueuedView]:
        """The retries of that source that wait in the store, the newest first."""
        query = Query(sources=(source,), states=(State.PENDING,), scheduled=True)
        page = await self.app.store.letters.search(query, limit=limit)
        return [parked_view(letter, self.redactor) for letter in page.letters if letter.reason is Reason.PARKED]

    async def count(self, query: Query) -> int:
        await self._check(query)
        return await self.app.store.letters.count(query)

    async def sources(self) -> Sources:
        """Every source that has a handler here, is declared, has a letter, or a message waiting."""
        store = {"store": lambda: self.app.store.letters.tallies()}
        counted, queues = await asyncio.gather(self._ask(store), self._ask_transports(_depths))
        known = self.app.sources | {tally.source for found in counted.found.values() for tally in found}
        known |= {source for found in queues.found.values() for source in found}
        return Sources(sorted(known), [*counted.unanswered, *queues.unanswered])

    # -- acting --------------------------------------------------------------------------------------------------

    async def plan(self, query: Query, *, transports: Collection[str] | None = None) -> Plan:
        """What a replay of that query would send, from a process that has these transports, or those of this one."""
        await self._check(query)
        letters = self.app.store.letters
        wanted = _narrowed(selectable(query), REPLAYABLE)
        groups = [] if wanted is None else list(await letters.groups(wanted, limit=10_000))
        total = 0 if wanted is None else await letters.count(wanted)
        sources: dict[str, int] = {}
        for source in {name for group in groups for name in group.sources}:
            if wanted is not None:
                sources[source] = await letters.count(msgspec.structs.replace(wanted, sources=(source,)))
        left_out = await letters.count(query) - total
        here = self.app.transport_names if transports is None else transports
        missing = {} if wanted is None else await not_configured(letters, wanted, total, here)
        return Plan(total, sources, self._redacted(groups[:20]), left_out, missing)

    async def replay(
        self, query: Query, *, actor: str, rate: float | None = None, reason: str = "", id: str | None = None
    ) -> Replay:
        """Freeze the selection; `run_replay` sends it. The same id again gives the replay it already made."""
        await self._check(query)
        replay = await self.replays.start(query, actor=actor, rate=rate, reason=reason, id=id)
        await self.note(actor, "replay", f"{replay.id}: {_letters(replay.total)}")
        return replay

    async def run_replay(self, id: str, *, progress: Progress = lambda sent: None) -> ReplayReport:
        """Send it, or go on sending it."""
        runner = f"{self.app.settings.worker_name}:{self.app.clock.new_id()}"
        await self.replays.run(id, runner=runner, progress=progress)
        return await self.replay_report(id)

    async def cancel_replay(self, id: str, *, actor: str) -> ReplayReport:
        """Send no more of it."""
        await self.replays.cancel(id, actor=actor)
        await self.note(actor, "cancel", id)
        return await self.replay_report(id)

    async def replay_report(self, id: str) -> ReplayReport:
        return ReplayReport(await self.replays.get(id), await self.app.store.ledger.tally(id))

    async def replay_entries(
        self, id: str, *, status: EntryStatus | None = None, after: Cursor | None = None, limit: int = 50
    ) -> tuple[Sequence[Entry], Cursor | None]:
        """Lines of a replay's ledger."""
        await self.replays.get(id)
        entries, more = await self.app.store.ledger.entries(id, status=status, after=after, limit=_bounded(limit))
        return [msgspec.structs.replace(entry, note=self.redactor.text(entry.note)) for entry in entries], more

    async def retry(self, ids: Iterable[LetterId], *, actor: str) -> ReplayReport:
        """Send these back now: a replay of exactly them."""
        letters = [await self.find(id) for id in ids]
        if not letters:
            raise UsageError("no letters were named")
        self.check_way_back(letters)
        query = Query(ids=tuple(letter.id for letter in letters))
        replay = await self.replay(query, actor=actor, reason="retry")
        return await self.run_replay(replay.id)

    def check_way_back(self, letters: Iterable[Letter]) -> None:
        """Raise NoWayBack for the first of them whose transport this process does not have, or cannot open."""
        for letter in letters:
            if letter.transport not in self.app.transport_names:
                raise NoWayBack(letter.id, letter.transport, self.app.transport_names)
            self.app.transport(letter.transport)

    async def archive(self, query: Query, *, actor: str, progress: Progress = lambda moved: None) -> int:
        """Archive letters, whatever their state, except those on their way. Returns how many."""
        await self._check(query)
        total = 0
        try:
            async for page in every_page(self.app.store.letters, query, size=_BATCH, oldest_first=True):
                total += await self._archive_some([letter.id for letter in page], actor)
                progress(len(page))
        except asyncio.CancelledError:
            await self.note(actor, "archive", f"interrupted after {_letters(total)} of {_said(query)}")
            raise
        await self.note(actor, "archive", f"{_letters(total)} of {_said(query)}")
        return total

    async def purge(self, query: Query, *, actor: str, progress: Progress = lambda gone: None) -> int:
        """Delete letters for good, except those on their way. Returns how many."""
        if query.is_empty:
            raise UsageError("purge deletes for good: say which letters, by state, age, source or group")
        await self._check(query)
        total = 0
        try:
            while gone := await self.app.store.letters.prune(query, limit=_BATCH):
                total += len(gone)
                progress(len(gone))
        except asyncio.CancelledError:
            await self.note(actor, "purge", f"interrupted after {_letters(total)} of {_said(query)}")
            raise
        self.app.events.emit(LettersPruned(count=total, why=f"purged by {actor}"))
        await self.note(actor, "purge", f"{_letters(total)} of {_said(query)}")
        return total

    async def export(self, query: Query) -> AsyncIterator[bytes]:
        """The letters as JSON lines, oldest first, unredacted and byte-exact, a page at a time."""
        await self._check(query)
        async for page in every_page(self.app.store.letters, query, size=_BATCH, oldest_first=True):
            yield b"".join(line_of(letter) for letter in page)

    async def import_letters(
        self, lines: Iterable[bytes], *, actor: str, name: str = "the input", progress: Progress = lambda n: None
    ) -> int:
        """Record what an export wrote. Importing it twice changes nothing. Returns how many lines there were."""
        total = 0
        batch: list[Letter] = []
        try:
            for letter in letters_of(lines, name):
                batch.append(_at_rest(letter))
                if len(batch) == _BATCH:
                    total += await self._take_in(batch, progress)
                    batch = []
            total += await self._take_in(batch, progress)
        except asyncio.CancelledError:
            await self.note(actor, "import", f"interrupted after {_letters(total)} from {name}")
            raise
        await self.note(actor, "import", f"{_letters(total)} from {name}")
        return total

    async def acknowledge(self, id: str, *, actor: str) -> Incident:
        """Note that somebody works on that incident: no notice of it is sent until it is resolved."""
        if (await self.incidents.get(id)).state is IncidentState.RESOLVED:
            raise UsageError(f"incident {id} is resolved already")
        incident = await self.incidents.acknowledge(id, actor=actor)
        await self.note(actor, "acknowledge", f"{incident.id}: {incident.alert.summary}")
        return incident

    async def resolve(self, id: str, *, actor: str) -> Incident:
        """Resolve the incident, whatever its rule says; if it happens again, it is opened again."""
        incident = await self.incidents.resolve(id, actor=actor)
        await self.note(actor, "resolve", f"{incident.id}: {incident.alert.summary}")
        return incident

    async def annotate(self, id: str, text: str, *, actor: str) -> Incident:
        """Write something down beside an incident."""
        incident = await self.incidents.note(id, text, actor=actor)
        await self.note(actor, "note", f"{incident.id}: {text}")
        return incident

    async def pause(
        self,
        source: str,
        *,
        actor: str,
        why: str = "",
        span: timedelta | None = None,
        transport: str | None = None,
        force: bool = False,
    ) -> PauseReport:
        """Let nobody receive from that source until it is resumed. If somebody has paused it already, that stays.

        span    after so long it goes on by itself
        force   also a source that nobody knows yet
        """
        name = await self._sources.transport_of(text_of("source", source), transport, force=force, hint=_FORCE)
        now = self.app.clock.now()
        wanted = Paused(source, actor, now, why, None if span is None else now + span)
        held = await self._pausable(name).pause(wanted)
        is_new = held == wanted
        if is_new:
            await self.note(actor, "pause", f"{_shown(name, source)}{': ' + why if why else ''}")
        return PauseReport(is_new, self._seen(SourcePause.of(name, held)))

    async def resume(self, source: str, *, actor: str, transport: str | None = None) -> SourcePause | None:
        """End a pause, whoever made it; returns it, or None if there was none."""
        name = await self._sources.transport_of(source, transport, force=transport is not None)
        ended = await self._pausable(name).resume(source)
        if ended is None:
            return None
        await self.note(actor, "resume", f"{_shown(name, source)}, paused by {ended.by}")
        return self._seen(SourcePause.of(name, ended))

    async def pauses(self) -> list[SourcePause]:
        """What is paused, on every transport that answers, the longest first."""
        found = (await self._ask_pauses()).found
        return sorted((pause for pauses in found.values() for pause in pauses), key=lambda pause: pause.at)

    async def _ask_pauses(self, *, tell: bool = True) -> Answers[list[SourcePause]]:
        """The pauses of each transport, by its name.

        tell    of backends that do not answer; not needed where the same are asked for something else meanwhile
        """

        def asked(name: str) -> Callable[[], Awaitable[list[SourcePause]]]:
            return lambda: self._pauses_of(name)

        questions = {f"transports.{name}": asked(name) for name in self.app.transport_names}
        answers = await (self._ask(questions) if tell else ask_each(questions, masked=self.redactor.text))
        return Answers({name.partition(".")[2]: found for name, found in answers.found.items()}, answers.unanswered)

    async def _pauses_of(self, name: str) -> list[SourcePause]:
        kept = pauses_of(self.app.transport(name), name, self.app.store.documents, self.app.clock)
        if kept is None:
            return []
        return [self._seen(SourcePause.of(name, paused)) for paused in await kept.pauses()]

    def _pausable(self, name: str) -> Pausable:
        kept = pauses_of(self.app.transport(name), name, self.app.store.documents, self.app.clock)
        if kept is None:
            raise UsageError(f"transport {name!r} cannot pause a source: stop its workers instead")
        return kept

    def _seen(self, pause: SourcePause) -> SourcePause:
        return msgspec.structs.replace(pause, why=self.redactor.text(pause.why))

    async def doctor(self) -> Diagnosis:
        """Examine what is reachable, what is unsafe, and how to mend it."""
        from redrive.doctor import examine

        return await examine(self.app)

    async def audit(self, limit: int = 100) -> list[dict[str, Any]]:
        """Who did what, newest first."""
        trail = await self.app.store.documents.list(AUDIT, limit=limit)
        return [{**entry.body, "detail": self.redactor.text(entry.body["detail"])} for entry in trail]

    # -- inside --------------------------------------------------------------------------------------------------

    async def _take_in(self, batch: Sequence[Letter], progress: Progress) -> int:
        if batch:
            await self.app.store.letters.record(batch)
            progress(len(batch))
        return len(batch)

    async def _archive_some(self, ids: Sequence[LetterId], actor: str) -> int:
        now = self.app.clock.now()
        moved = await self.app.store.letters.move(ids, expect=[*UNRESOLVED, State.RESOLVED], to=State.ARCHIVED, now=now)
        self.app.events.emit(LettersMoved(to=State.ARCHIVED, count=len(moved), actor=actor))
        return len(moved)

    def _redacted(self, groups: Sequence[Group]) -> list[Group]:
        return [msgspec.structs.replace(group, message=self.redactor.text(group.message)) for group in groups]

    async def _check(self, query: Query) -> None:
        """Raise UnknownSource for a source that nobody has ever seen: it is a typo, not an empty answer.

        Transports are asked only for what neither the app nor the letters know. While one of them does not answer, it
        may be a source of that one.
        """
        wanted = set(query.sources or ()) - self.app.sources
        if wanted:
            wanted -= {tally.source for tally in await self.app.store.letters.tallies()}
        if not wanted:
            return
        known = await self.sources()
        for source in sorted(wanted - {*known.sources}):
            if not known.unanswered:
                raise UnknownSource(source, known.sources)

    async def _ask_transports(self, question: Callable[[Transport], Awaitable[T]]) -> Answers[T]:
        """What each transport answers, by its name."""

        def asked(name: str) -> Callable[[], Awaitable[T]]:
            return lambda: question(self.app.transport(name))

        answers = await self._ask({f"transports.{name}": asked(name) for name in self.app.transport_names})
        by_name = {about.partition(".")[2]: found for about, found in answers.found.items()}
        return Answers(by_name, answers.unanswered)

    async def _ask(self, questions: Mapping[str, Callable[[], Awaitable[T]]]) -> Answers[T]:
        answers = await ask_each(questions, masked=self.redactor.text)
        for backend in answers.unanswered:
            self._unanswered(backend)
        return answers

    async def note(self, actor: str, action: str, detail: str) -> None:
        """Write to the audit trail who did what."""
        at: datetime = self.app.clock.now()
        body = {"at": at.isoformat(), "actor": actor, "action": action, "detail": detail}
        await self.app.store.documents.put(AUDIT, self.app.clock.new_id(), body)
        self.app.events.emit(Acted(actor=actor, action=action, detail=detail, at=at))


def _shown(transport: str, source: str) -> str:
    return source if transport == "default" else f"{transport}/{source}"


def _by_shown_name(answers: Answers[list[SourcePause]]) -> dict[str, Paused]:
    """Pauses by the name under which the statistics show a source."""
    return {
        _shown(pause.transport, pause.source): Paused(pause.source, pause.by, pause.at, pause.why, pause.until)
        for pauses in answers.found.values()
        for pause in pauses
    }


async def _depths(transport: Transport) -> dict[str, Depth]:
    """How full its sources are. One that names none may not have asked its broker: whether that is there, it says."""
    found = await transport.depths()
    if not found:
        await transport.check()
    return found


def _narrowed(query: Query, states: tuple[State, ...]) -> Query | None:
    """The query narrowed to these states; None if that leaves nothing."""
    left = tuple(state for state in states if query.states is None or state in query.states)
    return msgspec.structs.replace(query, states=left) if left else None


def _at_rest(letter: Letter) -> Letter:
    """The letter as it is imported: one that was on its way is pending, since nobody here has it on its way."""
    state = State.PENDING if letter.state in (State.RETRYING, State.REPLAYING) else letter.state
    return msgspec.structs.replace(letter, state=state, owner=None, lease_until=None)


def _bounded(limit: int) -> int:
    if not 1 <= limit <= 1000:
        raise UsageError(f"limit={limit}: a page has 1 to 1000 letters")
    return limit


def _letters(count: int) -> str:
    return f"{count:,} letter{'' if count == 1 else 's'}"


def _said(query: Query) -> str:
    return msgspec.json.encode(query).decode()
