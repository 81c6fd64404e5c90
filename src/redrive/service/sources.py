"""Sources: their queues, who works on them, and pauses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec
from msgspec import Struct

from redrive.access.actors import Actor
from redrive.answers import Answers, Unanswered, ask_each
from redrive.app import Redrive
from redrive.errors import UnknownSource, UsageError
from redrive.flow.fits import fits
from redrive.flow.held import held_keys
from redrive.flow.pauses import SourcePause, pauses_of
from redrive.flow.replay import Replays
from redrive.flow.storms import end_storm, storms
from redrive.flow.validate import text_of
from redrive.forensics.held import HeldView, held_view
from redrive.forensics.measured import Measured, oldest_open, under_way
from redrive.forensics.query import Query
from redrive.forensics.queue import QueuedView, QueuePage, parked_view, queued_view
from redrive.forensics.scope import reaches
from redrive.forensics.stats import SourceStats, Stats, stats_of
from redrive.forensics.turns import Fairness, Turns, turns
from redrive.forensics.workers import Roll, WorkerState, WorkerView, WorkingOn
from redrive.model import Reason, State
from redrive.service.acting import acts
from redrive.service.asking import Asking, bounded
from redrive.service.finding import SourceFinder
from redrive.service.redacting import each_off_loop, off_loop
from redrive.telemetry.observed import OpenBreaker
from redrive.transports.base import Depth, Lists, Pausable, Paused, QueueState, TakesTurns, Transport
from redrive.upkeep.heartbeat import EVERY, Beat, beats

_LOOK_AGAIN = 0.5
_FEW_SOURCES = 20
_LOST = 4 * EVERY
_LONGEST_PAUSE = timedelta(days=366)
_FORCE = "`--force` pauses it all the same, for whoever will receive from it"


class SourceView(Struct, frozen=True, kw_only=True):
    """One source as far as its backends answer: its queue, its letters, who works on it, and whether it is paused."""

    source: str
    transport: str
    states: dict[State, int]  # of its letters
    queued: Depth | None  # None: its transport does not say
    paused: SourcePause | None
    workers: int
    concurrency: int  # of all of them
    in_hand: int
    versions: list[str]  # of the code that they run
    rate: float  # messages that finish a second
    done: int  # within the time that the storm guard looks at, where there is one
    buried: int


class BreakerView(OpenBreaker, frozen=True):
    """A circuit breaker that lets nothing through, and the worker that it is of; empty: of this process."""

    worker: str = ""


class Sources(Struct, frozen=True):
    """The sources that are known, how each stands, and which backends could not be asked for theirs."""

    sources: list[str]
    unanswered: list[Unanswered]
    details: list[SourceView] = []
    breakers: list[BreakerView] = []


class PauseReport(Struct, frozen=True):
    """The pause that holds, and whether it is this one: if not, somebody was first."""

    is_new: bool
    pause: SourcePause


class OfSources(Asking):
    """What can be asked of sources and done with them."""

    def __init__(self, app: Redrive, *, unanswered: Callable[[Unanswered], None] = lambda backend: None) -> None:
        super().__init__(app, unanswered=unanswered)
        self.replays = Replays(app.store, app.transports, app.events, app.clock, fits=fits(app.handlers))
        self._sources = SourceFinder(app, self.reaches_whole)
        self._roll = Roll(EVERY)

    async def stats(self) -> Stats:
        """Letters by state, category and source, how full the queues are and what is paused: all that answered."""
        store = {"store": lambda: self.app.store.letters.tallies()}
        counted, queues, paused = await asyncio.gather(
            self._ask(store), self._ask_transports(_depths), self._ask_pauses(tell=False)
        )
        depths = {
            _shown(name, source): depth
            for name, found in queues.found.items()
            for source, depth in found.items()
            if self.reaches_whole(source)
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
        shared = [self._seen_turns(source) for found in answers.found.values() for source in found]
        return Fairness([source for source in shared if source.tenants], answers.unanswered)

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
        paused = {(pause.transport, pause.source): pause.storm for pause in await self.pauses()}
        views = [self._worker(id, beat, ages[id], at, paused) for id, (_, beat) in found.items()]
        views = [view for view in views if view.sources or self.scope.is_everything]
        return sorted(views, key=lambda view: (view.state is WorkerState.LOST, view.worker, view.started_at))

    def _worker(self, id: str, beat: Beat, age: float, at: float, paused: dict[tuple[str, str], bool]) -> WorkerView:
        is_lost = self._roll.is_lost(id, age, at)
        alive = WorkerState.DRAINING if beat.draining else WorkerState.RUNNING
        sources = [
            WorkingOn(
                working.source,
                working.transport,
                working.concurrency,
                working.in_hand,
                (working.transport, working.source) in paused,
                paused.get((working.transport, working.source), False),
                working.rate,
            )
            for working in beat.sources
            if self.reaches_whole(working.source)
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
            in_hand=sum(working.in_hand for working in sources),
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
        await self._check_whole(source)
        name = await self._sources.transport_of(source, transport)
        its = self.app.transport(name)
        if not isinstance(its, Lists):
            raise UsageError(f"transport {name!r} cannot show its messages; `redrive stats` counts them")
        listing = await its.listing(source, state=state, after=after, limit=bounded(limit))
        holders = {
            holder: beat.worker
            for _, beat in (await beats(self.app.store.documents)).values()
            for holder in beat.holders
        }
        parked = (
            [] if after is not None or state not in (None, QueueState.DELAYED) else await self._parked(source, limit)
        )
        shown = await each_off_loop(
            listing.messages,
            lambda queued: queued_view(queued, self.redactor, holders),
            lambda queued: len(queued.message.body),
        )
        return QueuePage(
            source=source,
            transport=name,
            depth=(await its.depths()).get(source, Depth(0, 0, 0)),
            paused=_by_shown_name(await self._ask_pauses()).get(_shown(name, source)),
            messages=[*shown, *parked],
            after=listing.after,
            notes=list(listing.notes),
        )

    async def _parked(self, source: str, limit: int) -> list[QueuedView]:
        """The retries of that source that wait in the store, the newest first."""
        query = Query(sources=(source,), states=(State.PENDING,), scheduled=True)
        page = await self.app.store.letters.search(query, limit=limit)
        parked = [letter for letter in page.letters if letter.reason is Reason.PARKED]
        return await off_loop(parked, lambda letter: parked_view(letter, self.redactor))

    async def held(self, source: str | None = None, *, limit: int = 50) -> list[HeldView]:
        """The keys that a dead letter holds, those with the most behind them first."""
        found = sorted(
            await held_keys(self.app.store.documents, source=source), key=lambda held: (-held.behind, held.since)
        )[: bounded(limit)]
        ids = tuple(held.head for held in found)
        page = await self.app.store.letters.search(Query(ids=ids), limit=max(1, len(ids)))
        letters = {letter.id: letter for letter in page.letters}
        return [held_view(held, letters.get(held.head), self.redactor) for held in found]

    async def sources(self) -> Sources:
        """Every source that has a handler here, is declared, has a letter, or a message waiting."""
        store = {"store": lambda: self.app.store.letters.tallies()}
        counted, queues = await asyncio.gather(self._ask(store), self._ask_transports(_depths))
        known = {source for source in self.app.sources if self.reaches_whole(source)}
        known |= {tally.source for found in counted.found.values() for tally in found}
        known |= {source for found in queues.found.values() for source in found if self.reaches_whole(source)}
        return Sources(sorted(known), [*counted.unanswered, *queues.unanswered])

    async def sources_in_detail(self) -> Sources:
        """The same and those that a worker works on, and how each stands: a backend that does not answer is named, the
        others are told all the same."""
        known, stats, paused, working = await asyncio.gather(
            self.sources(), self.stats(), self._ask_pauses(tell=False), self._ask({"store": self._alive})
        )
        queues = {each.source: each for each in stats.sources}
        pauses = {_shown(pause.transport, pause.source): pause for found in paused.found.values() for pause in found}
        found = working.found.get("store", [])
        worked_on = {
            (on.transport, on.source) for beat in found for on in beat.sources if self.reaches_whole(on.source)
        }
        held = (*pauses, *(name for name, each in queues.items() if each.queued is not None))
        at_rest = sorted({self._place(name, {}) for name in held}, key=lambda place: (place[0] == "default", place))
        homes = {source: transport for transport, source in (*at_rest, *sorted(worked_on))}
        places = {self._place(name, homes) for name in (*queues, *pauses)} | worked_on
        names = {*known.sources, *(source for _, source in places)}
        places |= {(self._home(name, homes), name) for name in names}
        silent = {each.backend: each for each in (*known.unanswered, *stats.unanswered, *working.unanswered)}
        asked = {name for name in self.app.transport_names if f"transports.{name}" not in silent}
        in_order = sorted(places, key=lambda place: place[::-1])
        details = [self._source(*place, queues, pauses, found, asked) for place in in_order]
        return Sources(known.sources, list(silent.values()), details, self._breakers(found))

    def _breakers(self, alive: Sequence[Beat]) -> list[BreakerView]:
        """The breakers that are not closed, of every worker and of this process, each once."""
        own = self.app.settings.worker_name
        told = [(beat.worker, breaker) for beat in alive for breaker in beat.breakers]
        here = [("", breaker) for breaker in self.app.observed.breakers() if (own, breaker) not in told]
        return [
            BreakerView(breaker.target, breaker.position, breaker.since, worker)
            for worker, breaker in (*told, *here)
            if self.scope.is_everything or self.reaches_whole(breaker.target.partition("/")[2])
        ]

    def _place(self, shown: str, homes: Mapping[str, str]) -> tuple[str, str]:
        """The transport and the source that statistics show under that name."""
        transport, _, source = shown.partition("/")
        if source and transport in self.app.transport_names:
            return transport, source
        return self._home(shown, homes), shown

    def _home(self, source: str, homes: Mapping[str, str]) -> str:
        """Its transport: as it is known here, or where a worker receives it, or where a queue or a pause of it is."""
        return self.app.known_transport(source) or homes.get(source, "default")

    async def _alive(self) -> list[Beat]:
        """The beats of workers that are not lost, by our clock."""
        now = self.app.clock.now()
        found = [beat for _, beat in (await beats(self.app.store.documents)).values()]
        return [beat for beat in found if now - beat.at < _LOST]

    def _source(
        self,
        transport: str,
        source: str,
        queues: Mapping[str, SourceStats],
        pauses: Mapping[str, SourcePause],
        alive: Sequence[Beat],
        asked: Collection[str],
    ) -> SourceView:
        name, whole = _shown(transport, source), self.reaches_whole(source)
        letters = queues.get(source)  # which are counted by source alone
        mine = [
            (beat, on)
            for beat in alive
            for on in beat.sources
            if (on.transport, on.source) == (transport, source) and whole
        ]
        queued = queues[name].queued if name in queues else None
        if queued is None and mine and transport in asked:
            queued = Depth(0, 0, 0)  # a transport names only what holds something
        return SourceView(
            source=source,
            transport=transport,
            states={} if letters is None else letters.states,
            queued=queued,
            paused=pauses.get(name),
            workers=len({beat.worker for beat, _ in mine}),
            concurrency=sum(on.concurrency for _, on in mine),
            in_hand=sum(on.in_hand for _, on in mine),
            versions=sorted({beat.version for beat, _ in mine if beat.version}),
            rate=sum(on.rate for _, on in mine),
            done=sum(on.done for _, on in mine),
            buried=sum(on.buried for _, on in mine),
        )

    async def _check(self, query: Query) -> None:
        """Raise UnknownSource for a source that nobody has ever seen: it is a typo, not an empty answer.

        Transports are asked only for what neither the app nor the letters know. While one of them does not answer, it
        may be a source of that one.
        """
        wanted = {name for name in query.sources or () if not (name in self.app.sources and self.reaches_whole(name))}
        if wanted:
            wanted -= await self._with_letters(wanted)
        if not wanted:
            return
        known = await self.sources()
        for source in sorted(wanted - {*known.sources}):
            if not known.unanswered:
                raise UnknownSource(source, known.sources)

    async def _with_letters(self, sources: Collection[str]) -> set[str]:
        """Those that have a letter. A few are looked for one by one: whoever reaches some tenants only has no counters,
        and to count would be to look at every letter."""
        letters = self.app.store.letters
        if len(sources) > _FEW_SOURCES:
            return {tally.source for tally in await letters.tallies()}
        return {name for name in sources if (await letters.search(Query(sources=(name,)), limit=1)).letters}

    @acts("pause")
    async def pause(
        self,
        source: str,
        *,
        actor: Actor,
        why: str = "",
        span: timedelta | None = None,
        transport: str | None = None,
        force: bool = False,
    ) -> PauseReport:
        """Let nobody receive from that source until it is resumed. If somebody has paused it already, that stays; what
        the storm guard has paused becomes an ordinary pause, which that does not end.

        span    after so long it goes on by itself
        force   also a source that nobody knows yet
        """
        check_span(span)
        await self._check_whole(source)
        name = await self._sources.transport_of(text_of("source", source), transport, force=force, hint=_FORCE)
        now = self.app.clock.now()
        wanted = Paused(source, str(actor), now, why, None if span is None else now + span)
        held = await self._pausable(name).pause(wanted)
        is_new = held == wanted
        await end_storm(self.app.store.documents, name, source)  # from now on it is somebody's pause
        if is_new:
            await self.note(actor, "pause", f"{_shown(name, source)}{': ' + why if why else ''}")
        return PauseReport(is_new, self._seen(SourcePause.of(name, held)))

    @acts("resume")
    async def resume(self, source: str, *, actor: Actor, transport: str | None = None) -> SourcePause | None:
        """End a pause, whoever made it, the storm guard included; returns it, or None if there was none."""
        await self._check_whole(source)
        name = await self._sources.transport_of(source, transport, force=transport is not None)
        ended = await self._pausable(name).resume(source)
        storm = await end_storm(self.app.store.documents, name, source)
        if ended is not None:
            was = SourcePause.of(name, ended)
        elif storm is not None:
            was = SourcePause.of_storm(storm)
        else:
            return None
        await self.note(actor, "resume", f"{_shown(name, source)}, paused by {was.by}")
        return self._seen(was)

    def reaches_whole(self, source: str) -> bool:
        """Whether all of that source is in the scope of whoever asks."""
        narrowed = self.scope.tenants or self.scope.systems
        return not narrowed and (not self.scope.sources or reaches(self.scope.sources, source))

    async def _check_whole(self, source: str) -> None:
        """A queue is its source's as a whole: for those who reach a part of it, there is none."""
        if not self.reaches_whole(source):
            raise UnknownSource(source, (await self.sources()).sources)

    def _seen_turns(self, shared: Turns) -> Turns:
        scope = self.scope
        if scope.is_everything:
            return shared
        theirs = [turn for turn in shared.tenants if scope.has(source=shared.source, tenant=turn.tenant or None)]
        return Turns(shared.source, theirs)

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
        documents = self.app.store.documents
        kept = pauses_of(self.app.transport(name), name, documents, self.app.clock)
        paused = [] if kept is None else [SourcePause.of(name, paused) for paused in await kept.pauses()]
        known = {pause.source for pause in paused}
        stormed = [SourcePause.of_storm(state) for _, state in await storms(documents, transport=name)]
        every = (*paused, *(pause for pause in stormed if pause.source not in known))
        return [self._seen(pause) for pause in every if self.reaches_whole(pause.source)]

    def _pausable(self, name: str) -> Pausable:
        kept = pauses_of(self.app.transport(name), name, self.app.store.documents, self.app.clock)
        if kept is None:
            raise UsageError(f"transport {name!r} cannot pause a source: stop its workers instead")
        return kept

    def _seen(self, pause: SourcePause) -> SourcePause:
        return msgspec.structs.replace(pause, why=self.redactor.text(pause.why))


def check_span(span: timedelta | None) -> None:
    """Refuse a pause that outlives whoever would end it, in the same words beside a store and far from it."""
    if span is not None and not timedelta() < span <= _LONGEST_PAUSE:
        raise UsageError("a source is paused for a year at most, or until somebody resumes it")


def _shown(transport: str, source: str) -> str:
    return source if transport == "default" else f"{transport}/{source}"


def _by_shown_name(answers: Answers[list[SourcePause]]) -> dict[str, Paused]:
    """Pauses by the name under which the statistics show a source."""
    return {
        _shown(pause.transport, pause.source): pause.paused for pauses in answers.found.values() for pause in pauses
    }


async def _depths(transport: Transport) -> dict[str, Depth]:
    """How full its sources are. One that names none may not have asked its broker: whether that is there, it says."""
    found = await transport.depths()
    if not found:
        await transport.check()
    return found
