"""Replays: planned, started, paused, resumed, paced and cancelled, and what became of their letters."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from datetime import timedelta

from msgspec import Struct
from msgspec.structs import replace

from redrive.access.actors import Actor
from redrive.access.approvals import NeedsApproval
from redrive.answers import ask_each
from redrive.errors import NotReplayable, NoWayBack, UsageError
from redrive.flow.guard import Guard
from redrive.flow.replay import Progress, Replay
from redrive.flow.replay_document import DEADLINE, NewPace, PausedBy, ReplayState, selectable
from redrive.forensics.query import Query
from redrive.model import Letter, LetterId
from redrive.registry import schemes_of
from redrive.service.acting import acts
from redrive.service.asking import bounded, check_every, letters_said
from redrive.service.four_eyes import FourEyes
from redrive.service.ledger import with_text
from redrive.service.letters import OfLetters
from redrive.service.planning import Plan, plan_of
from redrive.stores.base import REPLAYABLE, Cursor, Entry, EntryStatus, Group
from redrive.transports.base import HasSources

_PAGE = 500
LARGE = 5000
"""Letters from which on a replay is frozen in the background, where that is asked for."""
_COUNTED = 1.0  # seconds in which they are to be counted: what takes longer is large
_TARGETS = 20  # of a plan, that are asked whether they are there


class ReplayReport(Struct, frozen=True):
    """A replay and what became of its letters."""

    replay: Replay
    entries: dict[EntryStatus, int]


class RetriedLetter(Struct, frozen=True):
    """What became of one letter that was to be sent back now, as the ledger says."""

    id: LetterId
    status: str  # of its entry; `waiting`: not sent yet; `refused`: not as it can be sent back
    why: str


class RetryReport(ReplayReport, frozen=True):
    """A retry, and what became of each letter of it."""

    letters: list[RetriedLetter]


class OfReplays(OfLetters):
    """What is sent back, and how that goes."""

    four_eyes: FourEyes  # of the service

    async def plan(self, query: Query, *, transports: Collection[str] | None = None, rate: float | None = None) -> Plan:
        """What a replay of that query would send, from a process that has these transports, or those of this one, and
        what speaks against it."""
        await self._check(query)
        here = self.app.transport_names if transports is None else transports
        plan = await plan_of(self.app.store.letters, query, transports=here, rate=rate, now=self.app.clock.now())
        targets = await self._missing_targets(plan)
        warnings = [self.redactor.text(text) for text in (*plan.warnings, *targets)]
        return replace(plan, groups=self._redacted(plan.groups), warnings=warnings)

    async def _missing_targets(self, plan: Plan) -> list[str]:
        """Targets of a plan that do not answer, or are not there."""
        targets = [target.partition("/") for target in plan.targets][:_TARGETS]
        here = [(name, source) for name, _, source in targets if name in self.app.transport_names]
        found = await ask_each({f"{name}/{source}": self._has(name, source) for name, source in here})
        silent = [f"target {target.backend} does not answer: {target.why}" for target in found.unanswered]
        return [*silent, *(f"target {name} is missing: its broker has no such source" for name in _not(found.found))]

    def _has(self, name: str, source: str) -> Callable[[], Awaitable[bool]]:
        async def has() -> bool:
            transport = self.app.transport(name)
            await transport.depths()
            return not isinstance(transport, HasSources) or await transport.has_source(source)

        return has

    @acts("replay")
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
        later: bool = False,
    ) -> Replay:
        """Freeze the selection; `run_replay` sends it. The same id and query again give the replay that they made.

        every   an empty query is meant: without it, every letter there is has to be said
        later   if there are many letters, return while it is `freezing`: `run_replay`, or upkeep, goes on with that
        """
        check_every(query, every, "replay")
        await self._check(query)
        selects = await self._large(query) if later else None
        replay = await self.replays.start(
            query,
            actor=str(actor),
            rate=rate,
            reason=reason,
            id=id,
            guard=guard,
            guard_many=guard_many,
            ordered=ordered,
            deadline=deadline,
            waits=self.four_eyes.waits,
            selects=selects,
        )
        if replay.state is ReplayState.FREEZING:
            await self.note(actor, "replay", f"{replay.id}: its selection is being frozen")
            return replay
        if replay.paused is not None and replay.paused.by is PausedBy.APPROVAL:
            raise NeedsApproval(await self.four_eyes.ask_for_replay(replay, actor))
        await self.note(actor, "replay", f"{replay.id}: {letters_said(replay.total)}")
        return replay

    async def _large(self, query: Query) -> Query | None:
        """What a replay of that query is to freeze, if that is much: letters that are there now, and in the scope of
        whoever asks. None: it is little, or may wait for a second person, who has to be told how many they are."""
        if self.four_eyes.is_on:
            return None
        wanted = self._narrowed(selectable(query))
        try:
            async with asyncio.timeout(_COUNTED):
                total = await self.app.store.letters.count(wanted)
        except TimeoutError:
            total = LARGE + 1
        if total <= LARGE:
            return None
        page = await self.app.store.letters.search(wanted, limit=1)
        newest = page.letters[0].created_at + timedelta(microseconds=1) if page.letters else self.app.clock.now()
        return replace(wanted, before=newest if wanted.before is None else min(newest, wanted.before))

    def _narrowed(self, query: Query) -> Query:
        """The query within the scope of whoever asks."""
        return query

    async def run_replay(self, id: str, *, progress: Progress = lambda sent: None) -> ReplayReport:
        """Send it, or go on sending it."""
        runner = f"{self.app.settings.worker_name}:{self.app.clock.new_id()}"
        await self.replays.run(id, runner=runner, progress=progress)
        return await self.replay_report(id)

    @acts("cancel")
    async def cancel_replay(self, id: str, *, actor: Actor) -> ReplayReport:
        """Send no more of it."""
        await self.replays.cancel(id, actor=str(actor))
        await self.note(actor, "cancel", id)
        return await self.replay_report(id)

    @acts("pause-replay")
    async def pause_replay(self, id: str, *, actor: Actor, why: str = "") -> ReplayReport:
        """Send no more of it until somebody resumes it."""
        await self.replays.pause(id, actor=str(actor), why=why)
        await self.note(actor, "pause-replay", f"{id}: {why}" if why else id)
        return await self.replay_report(id)

    @acts("resume-replay")
    async def resume_replay(self, id: str, *, actor: Actor) -> Replay:
        """Go on with it; `run_replay` sends."""
        replay = await self.replays.resume(id, actor=str(actor))
        await self.note(actor, "resume-replay", id)
        return replay

    @acts("pace-replay")
    async def pace_replay(self, id: str, pace: NewPace, *, actor: Actor) -> ReplayReport:
        """Let it go so fast, and be so careful, from now on."""
        replay = await self.replays.change_pace(id, pace)
        said = "as fast as it goes" if replay.rate is None else f"{replay.rate:g} a second"
        await self.note(actor, "pace-replay", f"{id}: {said}, {'no guard' if replay.guard is None else 'guarded'}")
        return await self.replay_report(id)

    async def list_replays(self, limit: int = 50) -> list[Replay]:
        """Replays, newest first, with their secrets masked."""
        return [self._masked(replay) for replay in await self.replays.list(limit)]

    async def replay_now(self, id: str) -> Replay:
        """The replay as it is now, with its secrets masked."""
        return self._masked(await self.replays.get(id))

    async def replay_report(self, id: str) -> ReplayReport:
        replay = await self.replays.get(id)
        return ReplayReport(self._masked(replay), await self.app.store.ledger.tally(id))

    async def replay_entries(
        self,
        id: str,
        *,
        status: EntryStatus | None = None,
        text: str = "",
        after: Cursor | None = None,
        limit: int = 50,
    ) -> tuple[Sequence[Entry], Cursor | None]:
        """Lines of a replay's ledger: all, or those with that text in the id of their letter or in why."""
        await self.replays.get(id)
        ledger, limit = self.app.store.ledger, bounded(limit)
        if text:
            return await with_text(ledger, id, text, self._shown_line, status=status, after=after, limit=limit)
        entries, more = await ledger.entries(id, status=status, after=after, limit=limit)
        return [self._shown_line(entry) for entry in entries], more

    def _shown_line(self, entry: Entry) -> Entry:
        return replace(entry, note=self.redactor.text(entry.note))

    async def start_retry(self, ids: Iterable[LetterId], *, actor: Actor) -> Replay:
        """Freeze a replay of exactly these letters; `run_replay` sends it. One that cannot be sent stops them all."""
        letters = [await self.find(id) for id in ids]
        for letter in letters:
            if letter.state not in REPLAYABLE:
                raise NotReplayable(letter.id, letter.state)
        self.check_way_back(letters)
        return await self.replay(Query(ids=tuple(letter.id for letter in letters)), actor=actor, reason="retry")

    async def retry(self, ids: Iterable[LetterId], *, actor: Actor) -> RetryReport:
        """Send these back now: a replay of exactly them. What the report says of each is what its ledger says."""
        letters = list({letter.id: letter for letter in [await self.find(id) for id in ids]}.values())
        if not letters:
            raise UsageError("no letters were named")
        self.check_way_back(letters)
        query = Query(ids=tuple(letter.id for letter in letters))
        replay = await self.replay(query, actor=actor, reason="retry")
        report = await self.run_replay(replay.id)
        entries: dict[LetterId, Entry] = {}
        after: Cursor | None = None
        while True:
            page, after = await self.replay_entries(replay.id, after=after, limit=_PAGE)
            entries |= {entry.letter: entry for entry in page}
            if after is None:
                break
        found = [_retried(letter, entries.get(letter.id), report.replay) for letter in letters]
        told = [replace(letter, why=self.redactor.text(letter.why)) for letter in found]
        return RetryReport(report.replay, report.entries, told)

    def check_way_back(self, letters: Iterable[Letter]) -> None:
        """Raise NoWayBack for the first of them whose transport this process does not have, or cannot open."""
        for letter in letters:
            if letter.transport not in self.app.transport_names:
                schemes = schemes_of(letter.transport)
                raise NoWayBack(letter.id, letter.transport, self.app.transport_names, schemes)
            self.app.transport(letter.transport)

    def _redacted(self, groups: Sequence[Group]) -> list[Group]:
        return [replace(group, message=self.redactor.text(group.message)) for group in groups]


def _not(answers: Mapping[str, bool]) -> list[str]:
    return [name for name, yes in answers.items() if not yes]


def _retried(letter: Letter, entry: Entry | None, replay: Replay) -> RetriedLetter:
    """What is to be said of a letter that was to be sent back."""
    if entry is None:
        why = f"it is {letter.state}: only pending, exhausted and sent ones are sent back"
        return RetriedLetter(letter.id, "refused", why)
    if entry.status is EntryStatus.SELECTED:
        paused = "" if replay.paused is None else replay.paused.why
        why = paused or replay.awaits or "; ".join(wait.why for wait in replay.waits) or "it is not sent yet"
        return RetriedLetter(letter.id, "waiting", why)
    return RetriedLetter(letter.id, str(entry.status), entry.note)
