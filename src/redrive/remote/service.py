"""RemoteService: everything that a command can ask for, from a server that has the store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import asdict

from redrive.access.actors import Actor
from redrive.access.trail import Checkpoint
from redrive.access.trail_store import Filter, Verdict
from redrive.alerts.incidents import Incident
from redrive.answers import Unanswered
from redrive.clock import Clock, SystemClock
from redrive.config.durations import spoken
from redrive.errors import UnknownGroup, UnknownIncident, UnknownLetter, UnknownReplay
from redrive.flow.guard import Guard
from redrive.flow.pauses import SourcePause
from redrive.flow.replay import Progress, Replay, ReplayState
from redrive.flow.replay_document import DEADLINE, NewPace
from redrive.forensics.carried import CarriedMessage
from redrive.forensics.differs import Differences
from redrive.forensics.held import HeldView
from redrive.forensics.marks import Mark
from redrive.forensics.notes import GroupNote
from redrive.forensics.query import Query
from redrive.forensics.queue import QueuePage
from redrive.forensics.redact import Redactor
from redrive.forensics.stats import Stats
from redrive.forensics.transfer import line_of, lines_of
from redrive.forensics.views import Detail
from redrive.forensics.workers import WorkerView
from redrive.model import Letter, LetterId
from redrive.remote.http import Http
from redrive.remote.parts import RemoteApprovals, RemoteChanges, RemoteIncidents, RemoteRepairs, RemoteTokens, at
from redrive.service.groups import FixReport, GroupView
from redrive.service.home import nothing
from redrive.service.letters import Summaries
from redrive.service.planning import Plan
from redrive.service.replaying import ReplayReport
from redrive.service.series import SPARK, Asked, SeriesView, TrendView
from redrive.service.sources import PauseReport, Sources, check_span
from redrive.stores.base import Cursor, Entry, EntryStatus, GroupOrder
from redrive.transports.base import QueueState

if TYPE_CHECKING:
    from redrive.doctor import Diagnosis

_LOOK_EVERY = 0.25  # seconds between two looks at a replay that runs there
_LINES, _BYTES = 500, 16 << 20  # of one part of an import
_DAY = timedelta(days=1)
_DONE = (EntryStatus.SELECTED, EntryStatus.SKIPPED)


class _Count(Struct, frozen=True):
    """Any answer that is a number."""

    count: int = 0
    archived: int = 0
    unarchived: int = 0
    purged: int = 0
    imported: int = 0


class _Entries(Struct, frozen=True):
    entries: list[Entry]
    after: Cursor | None


class _Unmuted(Struct, frozen=True):
    group: GroupView | None


class _Resumed(Struct, frozen=True):
    ended: SourcePause | None


class RemoteService:
    """Asks a server. Who acts is who the token says: an actor that is named here is not sent.

    unanswered   is told of each backend of the server that did not answer, where the server says so
    """

    def __init__(self, http: Http, *, unanswered: Callable[[Unanswered], None] = lambda backend: None) -> None:
        self._http = http
        self._unanswered = unanswered
        self.clock: Clock = SystemClock()
        self.redactor = Redactor()  # for what is made here of letters that came whole
        self.four_eyes = RemoteApprovals(http)
        self.incidents = RemoteIncidents(http)
        self.changes = RemoteChanges(http)
        self.repairs = RemoteRepairs(self, http)
        self.tokens = RemoteTokens(http)

    async def whoami(self) -> Actor:
        """Who the server takes us for."""
        found: Actor = await self._http.get(Actor, "/api/me")
        return found

    # -- seeing --------------------------------------------------------------------------------------------------

    async def letters(self, query: Query, *, after: Cursor | None = None, limit: int = 50) -> Summaries:
        wanted = _filters(query) | {"after": after, "limit": limit}
        found: Summaries = await self._http.get(Summaries, "/api/letters", wanted)
        return found

    async def letter(self, id: LetterId) -> Detail:
        found: Detail = await self._http.get(Detail, f"/api/letters/{at(id, UnknownLetter)}")
        return found

    async def message(self, id: LetterId, *, actor: Actor, reason: str) -> CarriedMessage:
        path = f"/api/letters/{at(id, UnknownLetter)}/message"
        found: CarriedMessage = await self._http.get(CarriedMessage, path, {"reason": reason})
        return found

    async def unmask(self, id: LetterId, *, actor: Actor, reason: str) -> CarriedMessage:
        path = f"/api/letters/{at(id, UnknownLetter)}/unmask"
        found: CarriedMessage = await self._http.post(CarriedMessage, path, {"reason": reason})
        return found

    async def whole_letters(self, query: Query, *, actor: Actor, limit: int | None = None) -> AsyncIterator[Letter]:
        """As an export has them: that takes an admin's token which may unmask, and is in the trail."""
        left = limit
        async for line in _lines(self.export(query, actor=actor)):
            for found in lines_of([line], "the answer"):
                if left == 0:
                    return
                left = None if left is None else left - 1
                yield found.letter

    async def named(self, ids: Iterable[LetterId]) -> Query:
        return Query(ids=tuple([(await self.letter(id)).id for id in ids]))

    async def count(self, query: Query) -> int:
        return await self._number("/api/count", query, "count")

    async def groups(self, query: Query, *, limit: int = 50, with_muted: bool = True) -> Sequence[GroupView]:
        wanted = _filters(query) | {"limit": limit, "with_muted": with_muted}
        found: list[GroupView] = await self._http.get(list[GroupView], "/api/groups", wanted)
        return found

    async def trends(
        self,
        query: Query,
        *,
        last: timedelta = _DAY,
        spark: int | None = SPARK,
        limit: int = 50,
        with_muted: bool = True,
        order: GroupOrder = GroupOrder.LETTERS,
        skip: int = 0,
    ) -> list[TrendView]:
        wanted = _filters(query) | {"limit": limit, "with_muted": with_muted, "sort": order.value, "skip": skip}
        shown = {} if spark is None else {"spark": spark, "last": spoken(last)}
        found: list[TrendView] = await self._http.get(list[TrendView], "/api/groups", wanted | shown)
        return found

    async def muted_groups(self) -> list[Mark]:
        found: list[Mark] = await self._http.get(list[Mark], "/api/muted-groups")
        return found

    async def stats(self) -> Stats:
        found: Stats = await self._http.get(Stats, "/api/stats")
        self._tell(found.unanswered)
        return found

    async def series(self, asked: Asked) -> SeriesView:
        wanted = {
            "last": None if asked.last is None else spoken(asked.last),
            "since": asked.since,
            "until": asked.until,
            "step": asked.step,
            "by": asked.by,
            "source": asked.sources,
            "category": asked.categories,
            "outcome": asked.outcomes,
        }
        found: SeriesView = await self._http.get(SeriesView, "/api/series", wanted)
        return found

    async def group_notes(self, id: str) -> list[GroupNote]:
        found: list[GroupNote] = await self._http.get(list[GroupNote], f"/api/groups/{at(id, UnknownGroup)}/notes")
        return found

    async def differs(self, id: str) -> Differences:
        found: Differences = await self._http.get(Differences, f"/api/groups/{at(id, UnknownGroup)}/differs")
        return found

    async def sources(self) -> Sources:
        found: Sources = await self._http.get(Sources, "/api/sources")
        self._tell(found.unanswered)
        return found

    async def workers(self, *, patiently: bool = False) -> list[WorkerView]:
        found: list[WorkerView] = await self._http.get(list[WorkerView], "/api/workers", {"patiently": patiently})
        return found

    async def pauses(self) -> list[SourcePause]:
        found: list[SourcePause] = await self._http.get(list[SourcePause], "/api/pauses")
        return found

    async def held(self, source: str | None = None, *, limit: int = 50) -> list[HeldView]:
        wanted = {"source": source, "limit": limit}
        found: list[HeldView] = await self._http.get(list[HeldView], "/api/held-keys", wanted)
        return found

    async def queue(
        self,
        source: str,
        *,
        state: QueueState | None = None,
        after: str | None = None,
        limit: int = 50,
        transport: str | None = None,
    ) -> QueuePage:
        wanted = {"source": source, "state": state, "after": after, "limit": limit, "transport": transport}
        found: QueuePage = await self._http.get(QueuePage, "/api/queue", wanted)
        return found

    async def list_replays(self, limit: int = 50) -> list[Replay]:
        found: list[Replay] = await self._http.get(list[Replay], "/api/replays", {"limit": limit})
        return found

    async def replay_now(self, id: str) -> Replay:
        return (await self.replay_report(id)).replay

    async def replay_report(self, id: str) -> ReplayReport:
        found: ReplayReport = await self._http.get(ReplayReport, f"/api/replays/{at(id, UnknownReplay)}")
        return found

    async def replay_entries(
        self,
        id: str,
        *,
        status: EntryStatus | None = None,
        text: str = "",
        after: Cursor | None = None,
        limit: int = 50,
    ) -> tuple[Sequence[Entry], Cursor | None]:
        wanted = {"status": status, "text": text or None, "after": after, "limit": limit}
        page: _Entries = await self._http.get(_Entries, f"/api/replays/{at(id, UnknownReplay)}/entries", wanted)
        return page.entries, page.after

    async def doctor(self) -> Diagnosis:
        from redrive.doctor import Diagnosis

        found: Diagnosis = await self._http.get(Diagnosis, "/api/doctor")
        return found

    async def audit(
        self, limit: int = 100, *, only: Filter | None = None, before: int | None = None
    ) -> list[dict[str, Any]]:
        only = only or Filter()
        wanted = {
            "limit": limit,
            "before": before,
            "actor_has": only.actor or None,
            "action": only.action or None,
            "about": only.about or None,
            "outcome": only.outcome,
            "since": only.since,
        }
        found: list[dict[str, Any]] = await self._http.get(list[dict[str, Any]], "/api/audit", wanted)
        return found

    async def verify_audit(self, checkpoint: Checkpoint | None = None) -> Verdict:
        asked = self._http.get(Verdict, "/api/audit/verify")
        if checkpoint is not None:
            asked.close()
            asked = self._http.post(Verdict, "/api/audit/verify", checkpoint)
        found: Verdict = await asked
        return found

    async def audit_checkpoint(self) -> Checkpoint:
        found: Checkpoint = await self._http.get(Checkpoint, "/api/audit/checkpoint")
        return found

    async def audit_lines(self, name: str = "stdout", *, actor: Actor) -> AsyncIterator[bytes]:
        async for part in self._http.stream("GET", "/api/audit/lines", params={"name": name[:200]}):
            yield part

    # -- acting --------------------------------------------------------------------------------------------------

    async def plan(self, query: Query, *, transports: Collection[str] | None = None, rate: float | None = None) -> Plan:
        """What the server would send, by the transports that it has."""
        found: Plan = await self._http.post(Plan, "/api/replays/plan", {"query": query, "rate": rate})
        return found

    async def replay(
        self,
        query: Query,
        *,
        actor: Actor,
        rate: float | None = None,
        reason: str = "",
        id: str | None = None,
        guard: Guard | None = None,
        guard_many: bool = False,
        ordered: bool = False,
        deadline: timedelta = DEADLINE,
        every: bool = False,
    ) -> Replay:
        order: dict[str, Any] = {
            "query": query,
            "rate": rate,
            "reason": reason,
            "all": every,
            "id": id or self.clock.new_id(),  # asked for twice, because an answer was lost, it is made once
            "order": ordered,
            "deadline_seconds": deadline.total_seconds(),
        }
        if guard is not None:
            order |= {"canary": guard.canary, "ramp": guard.ramp, "guard": guard.share * 100}
        elif not guard_many:
            order["guarded"] = False
        replay: Replay = await self._http.post(Replay, "/api/replays", order)
        return replay

    async def start_retry(self, ids: Iterable[LetterId], *, actor: Actor) -> Replay:
        replay: Replay = await self._http.post(Replay, "/api/replays/of-letters", {"ids": [*ids]})
        return replay

    async def run_replay(self, id: str, *, progress: Progress = nothing) -> ReplayReport:
        """Look on until it is at its end or paused: the server sends it, and goes on when nobody looks."""
        told = 0
        while True:
            report = await self.replay_report(id)
            done = sum(count for status, count in report.entries.items() if status not in _DONE)
            if done > told:
                progress(done - told)
                told = done
            if report.replay.state not in (ReplayState.FREEZING, ReplayState.RUNNING):
                return report
            await self.clock.sleep(_LOOK_EVERY)

    async def cancel_replay(self, id: str, *, actor: Actor) -> ReplayReport:
        return await self._of_replay(id, "cancel")

    async def pause_replay(self, id: str, *, actor: Actor, why: str = "") -> ReplayReport:
        return await self._of_replay(id, "pause", {"reason": why})

    async def resume_replay(self, id: str, *, actor: Actor) -> Replay:
        return (await self._of_replay(id, "resume")).replay

    async def pace_replay(self, id: str, pace: NewPace, *, actor: Actor) -> ReplayReport:
        share = None if pace.share is None else pace.share * 100
        body = {"rate": pace.rate, "unlimited": pace.unlimited, "guard": share, "guarded": pace.guarded}
        return await self._of_replay(id, "pace", body)

    async def archive(self, query: Query, *, actor: Actor, progress: Progress = nothing, every: bool = False) -> int:
        total = await self._number("/api/letters/archive", {"query": query, "all": every}, "archived")
        progress(total)
        return total

    async def unarchive(self, query: Query, *, actor: Actor, every: bool = False) -> int:
        return await self._number("/api/letters/unarchive", {"query": query, "all": every}, "unarchived")

    async def purge(self, query: Query, *, actor: Actor, progress: Progress = nothing, every: bool = False) -> int:
        total = await self._number("/api/letters/purge", {"query": query, "all": every}, "purged")
        progress(total)
        return total

    async def export(self, query: Query, *, actor: Actor | None = None) -> AsyncIterator[bytes]:
        """Whole lines, some at a time."""
        rest = b""
        async for part in self._http.stream("POST", "/api/export", body=query):
            whole, end, rest = (rest + part).rpartition(b"\n")
            if end:
                yield whole + end
        if rest:
            yield rest

    async def import_letters(
        self, lines: Iterable[bytes], *, actor: Actor, name: str = "the input", progress: Progress = nothing
    ) -> int:
        """In parts, each read here first: a line that is no letter is named with its number."""
        total = 0
        for part, count in _parts(lines, name):
            path, params = "/api/import", {"name": name[:200]}
            answer: _Count = await self._http.post_bytes(_Count, path, part, params)
            total += answer.imported
            progress(count)
        return total

    async def fix(self, id: str, version: str, *, actor: Actor, auto: bool = False, why: str = "") -> FixReport:
        body = {"version": version, "auto": auto, "why": why}
        done: FixReport = await self._http.post(FixReport, f"/api/groups/{at(id, UnknownGroup)}/fix", body)
        return done

    async def unfix(self, id: str, *, actor: Actor) -> GroupView:
        done: GroupView = await self._http.post(GroupView, f"/api/groups/{at(id, UnknownGroup)}/unfix")
        return done

    async def mute(self, id: str, span: timedelta, *, actor: Actor, why: str) -> GroupView:
        body = {"seconds": span.total_seconds(), "why": why}
        done: GroupView = await self._http.post(GroupView, f"/api/groups/{at(id, UnknownGroup)}/mute", body)
        return done

    async def unmute(self, id: str, *, actor: Actor) -> GroupView | None:
        done: _Unmuted = await self._http.post(_Unmuted, f"/api/groups/{at(id, UnknownGroup)}/unmute")
        return done.group

    async def assign(self, id: str, to: str | None, *, actor: Actor) -> GroupView:
        done: GroupView = await self._http.post(GroupView, f"/api/groups/{at(id, UnknownGroup)}/assign", {"to": to})
        return done

    async def note_group(self, id: str, text: str, *, actor: Actor) -> list[GroupNote]:
        path = f"/api/groups/{at(id, UnknownGroup)}/notes"
        notes: list[GroupNote] = await self._http.post(list[GroupNote], path, {"text": text})
        return notes

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
        check_span(span)
        seconds = None if span is None else span.total_seconds()
        body = {"source": source, "why": why, "seconds": seconds, "transport": transport, "force": force}
        done: PauseReport = await self._http.post(PauseReport, "/api/pauses", body)
        return done

    async def resume(self, source: str, *, actor: Actor, transport: str | None = None) -> SourcePause | None:
        body = {"source": source, "transport": transport}
        done: _Resumed = await self._http.post(_Resumed, "/api/pauses/resume", body)
        return done.ended

    async def acknowledge(self, id: str, *, actor: Actor) -> Incident:
        return await self._of_incident(id, "acknowledge")

    async def resolve(self, id: str, *, actor: Actor) -> Incident:
        return await self._of_incident(id, "resolve")

    async def annotate(self, id: str, text: str, *, actor: Actor) -> Incident:
        return await self._of_incident(id, "notes", {"text": text})

    # -- inside --------------------------------------------------------------------------------------------------

    async def _number(self, path: str, body: object, name: str) -> int:
        answer: _Count = await self._http.post(_Count, path, body)
        number: int = getattr(answer, name)
        return number

    async def _of_replay(self, id: str, how: str, body: object = None) -> ReplayReport:
        report: ReplayReport = await self._http.post(ReplayReport, f"/api/replays/{at(id, UnknownReplay)}/{how}", body)
        return report

    async def _of_incident(self, id: str, how: str, body: object = None) -> Incident:
        incident: Incident = await self._http.post(Incident, f"/api/incidents/{at(id, UnknownIncident)}/{how}", body)
        return incident

    def _tell(self, silent: Iterable[Unanswered]) -> None:
        for backend in silent:
            self._unanswered(backend)


def _filters(query: Query) -> dict[str, Any]:
    return {name: value for name, value in asdict(query).items() if value is not None}


async def _lines(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    async for part in parts:
        for line in part.splitlines():
            yield line


def _parts(lines: Iterable[bytes], name: str) -> Iterator[tuple[bytes, int]]:
    """What was written by an export, in parts that a server takes, with how many letters each has."""
    part, size = list[bytes](), 0
    for line in lines_of(lines, name):
        text = line_of(line.letter, line.versions)
        if part and (len(part) == _LINES or size + len(text) > _BYTES):
            yield b"".join(part), len(part)
            part, size = [], 0
        part.append(text)
        size += len(text)
    if part:
        yield b"".join(part), len(part)
