"""Letters, groups, replays and incidents, and the service as a whole."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from redrive.access.actors import Actor
from redrive.access.approvals import Approvals, NeedsApproval
from redrive.access.tokens import Tokens
from redrive.access.trail import Checkpoint, Phase
from redrive.access.trail import Line as TrailLine
from redrive.access.trail_store import BEGAN, Filter, Verdict
from redrive.alerts.incidents import Incident, Incidents, IncidentState
from redrive.answers import Unanswered, ask_each
from redrive.app import Redrive
from redrive.clock import Clock
from redrive.errors import NotAllowed, NotInScope, NotReplayable, NoWayBack, UnknownLetter, UsageError
from redrive.flow.guard import Guard
from redrive.flow.held import held_key_of
from redrive.flow.replay import Progress, Replay
from redrive.flow.replay_document import DEADLINE, NewPace, PausedBy, ReplayState, selectable
from redrive.forensics.ancestry import InReplay, LetterLineage, Related
from redrive.forensics.carried import CarriedMessage, carried
from redrive.forensics.query import Query
from redrive.forensics.transfer import Line, line_of, lines_of
from redrive.forensics.views import Detail, Summary, detail, summary
from redrive.model import UNRESOLVED, Letter, LetterId, Message, State
from redrive.registry import schemes_of
from redrive.service.acting import acts
from redrive.service.asking import bounded
from redrive.service.changes import Changes
from redrive.service.edits import Edits
from redrive.service.four_eyes import FourEyes
from redrive.service.planning import Plan, plan_of
from redrive.service.redacting import off_loop
from redrive.service.repairs import Repairs
from redrive.service.seen import seen_app
from redrive.service.series import OfSeries
from redrive.service.shown_settings import ShownSetting, shown_settings
from redrive.service.tokens import KeptTokens
from redrive.stores.base import REPLAYABLE, Cursor, Entry, EntryStatus, Group
from redrive.stores.paging import every_letter, every_page
from redrive.telemetry.events import LettersMoved, LettersPruned
from redrive.transports.base import HasSources

if TYPE_CHECKING:
    from redrive.doctor import Diagnosis

_BATCH, _SOME = 500, 100
LARGE = 5000
"""Letters from which on a replay is frozen in the background, where that is asked for."""
_COUNTED = 1.0  # seconds in which they are to be counted: what takes longer is large
_RELATED, _REPLAYS = 50, 200  # letters that one is tied to, and replays that are looked through for it
_PAGE, _LOOKED_AT = 200, 2000  # letters of a page, and looked at for the children of one
_TARGETS = 20  # of a plan, that are asked whether they are there


class Summaries(Struct, frozen=True):
    """A page of letters."""

    letters: list[Summary]
    after: Cursor | None


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


class Service(OfSeries):
    """Everything that can be asked of Redrive, and done with it."""

    def __init__(self, app: Redrive, *, unanswered: Callable[[Unanswered], None] = lambda backend: None) -> None:
        super().__init__(app, unanswered=unanswered)
        self.incidents = Incidents(app.store.documents, app.clock, app.events)
        self.edits = Edits(self)
        self.changes = Changes(self)
        self.repairs = Repairs(self, self.edits)
        self.tokens = KeptTokens(self, Tokens(app.store.documents, app.clock))
        self._use(FourEyes(self, Approvals(app.store.documents, app.clock)))

    def _use(self, four_eyes: FourEyes) -> None:
        self.four_eyes = self.edits.four_eyes = self.repairs.four_eyes = four_eyes

    @property
    def clock(self) -> Clock:
        return self.app.clock

    def seen_by(self, actor: Actor) -> Service:
        """The service as that actor sees it: what is out of its scope does not exist, and is not acted on."""
        return self if actor.scope.is_everything else SeenBy(self, actor)

    # -- seeing --------------------------------------------------------------------------------------------------

    async def letters(self, query: Query, *, after: Cursor | None = None, limit: int = 50) -> Summaries:
        """A page of letters, newest first."""
        await self._check(query)
        page = await self.app.store.letters.search(query, after=after, limit=bounded(limit))
        return Summaries(await off_loop(page.letters, lambda letter: summary(letter, self.redactor)), page.after)

    async def letter(self, id: LetterId) -> Detail:
        """The letter of that id, of the only id that begins so, or of the message with that id."""
        letter = await self.find(id)
        held = await held_key_of(self.app.store.documents, letter)
        versions = await self.edits.versions(letter)
        return (await off_loop([letter], lambda found: detail(found, self.redactor, held, versions)))[0]

    async def lineage(self, id: LetterId) -> LetterLineage:
        """What a letter waits for, what waits for it, the replays it was in, and its versions. Children are looked for
        among the newest letters that died since it first failed."""
        letter = await self.find(id)
        parents = [await self._related(message) for message in letter.depends_on[:_RELATED]]
        children, is_all = await self._children(letter)
        newest = [replay.id for replay in await self.replays.list(_REPLAYS)]
        ids = list(dict.fromkeys([*newest, *([letter.replay] if letter.replay else ())]))
        entries = await self.app.store.ledger.of_letter(letter.id, ids)
        text = self.redactor.text
        replays = [InReplay(entry.replay, entry.status, entry.at, text(entry.note)) for entry in entries]
        return LetterLineage(
            id=letter.id,
            parents=parents,
            parent=parents[0] if parents else None,
            children=children,
            is_all_children=is_all,
            replays=replays,
            versions=list(await self.edits.versions(letter)),
        )

    async def _related(self, message: str) -> Related:
        page = await self.app.store.letters.search(Query(message_ids=(message,)), limit=1)
        shown = await off_loop(page.letters, lambda found: summary(found, self.redactor))
        return Related(self.redactor.text(message), shown[0] if shown else None)

    async def _children(self, letter: Letter) -> tuple[list[Summary], bool]:
        """The letters that wait for that one, and whether all that could were looked at."""
        found: list[Letter] = []
        query, after, looked = Query(since=letter.failures[0].at), None, 0
        while looked < _LOOKED_AT and len(found) < _RELATED:
            page = await self.app.store.letters.search(query, after=after, limit=_PAGE)
            found += [child for child in page.letters if letter.message.id in child.depends_on]
            looked, after = looked + len(page.letters), page.after
            if after is None:
                break
        shown = await off_loop(found[:_RELATED], lambda child: summary(child, self.redactor))
        return shown, after is None and len(found) <= _RELATED

    def settings(self) -> list[ShownSetting]:
        """What this process runs with, and where each value comes from; secrets are masked."""
        return shown_settings(self.app, self.redactor)

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

    async def carried(self, id: LetterId) -> CarriedMessage:
        """The message of a letter, to run a handler on it elsewhere, with its secrets masked; see `unmask`."""
        letter = await self.find(id)
        return (await off_loop([letter], lambda found: carried(found, self.redactor, raw=False)))[0]

    @acts("unmask")
    async def unmask(self, id: LetterId, *, actor: Actor, reason: str) -> CarriedMessage:
        """The message of one letter as it is, for who may see its secrets and says why. The trail has what was shown:
        which fields, and a digest of the body, never the secret."""
        if not actor.may_unmask:
            raise NotAllowed(
                f"{actor.name!r} may not see secrets: that takes a token of `redrive token create --unmask`"
            )
        if not reason.strip():
            raise UsageError("say why the secrets of this letter have to be seen: the reason is kept in the trail")
        letter = await self.find(id)
        await self.note(actor, "unmask", _shown_of(letter.message), about=[letter.id])
        return carried(letter, self.redactor, raw=True)

    async def message(self, id: LetterId, *, actor: Actor, reason: str) -> CarriedMessage:
        """The message of a letter: as it is for who may see secrets and says why, masked for everybody else."""
        if actor.may_unmask and reason:
            return await self.unmask(id, actor=actor, reason=reason)
        return await self.carried(id)

    async def whole_letters(self, query: Query, *, actor: Actor, limit: int | None = None) -> AsyncIterator[Letter]:
        """The letters themselves, oldest first, to run code of a user on them: for who may see secrets."""
        async for letter in every_letter(self.app.store.letters, query, limit=limit, size=_SOME, oldest_first=True):
            yield letter

    async def named(self, ids: Iterable[LetterId]) -> Query:
        """Exactly those letters, named as `letter` takes it; one that does not exist is an error."""
        return Query(ids=tuple([(await self.find(id)).id for id in ids]))

    async def count(self, query: Query) -> int:
        await self._check(query)
        return await self.app.store.letters.count(query)

    # -- acting --------------------------------------------------------------------------------------------------

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
        await self.note(actor, "replay", f"{replay.id}: {_letters(replay.total)}")
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
        self, id: str, *, status: EntryStatus | None = None, after: Cursor | None = None, limit: int = 50
    ) -> tuple[Sequence[Entry], Cursor | None]:
        """Lines of a replay's ledger."""
        await self.replays.get(id)
        entries, more = await self.app.store.ledger.entries(id, status=status, after=after, limit=bounded(limit))
        return [replace(entry, note=self.redactor.text(entry.note)) for entry in entries], more

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
            page, after = await self.replay_entries(replay.id, after=after, limit=_BATCH)
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

    async def _auto_fix_waits(self, group: Group, version: str, actor: Actor, why: str) -> None:
        waiting = sum(count for state, count in group.states.items() if state in UNRESOLVED)
        what = f"letters of group {group.id} go back by themselves in version {version}"
        digest = hashlib.sha256(what.encode()).hexdigest()
        await self.four_eyes.check_written("fix", waiting, digest, actor, reason=why, what=what)

    @acts("unarchive")
    async def unarchive(self, query: Query, *, actor: Actor, every: bool = False) -> int:
        """Take archived letters back to the states they had. None of them is retried by itself. Returns how many."""
        check_every(query, every, "unarchive")
        await self._check(query)
        await self.four_eyes.check("unarchive", replace(query, states=(State.ARCHIVED,)), actor)
        return await self.edits.unarchive(query, actor=actor)

    @acts("archive")
    async def archive(
        self, query: Query, *, actor: Actor, progress: Progress = lambda moved: None, every: bool = False
    ) -> int:
        """Archive letters, whatever their state, except those on their way. Returns how many.

        every   an empty query is meant: without it, every letter there is has to be said
        """
        check_every(query, every, "archive")
        await self._check(query)
        await self.four_eyes.check("archive", query, actor)
        total = 0
        try:
            async for page in every_page(self.app.store.letters, query, size=_BATCH, oldest_first=True):
                total += await self._archive_some([letter.id for letter in page], actor)
                progress(len(page))
        except asyncio.CancelledError:
            said = f"interrupted after {_letters(total)} of {_said(query)}"
            await self.note(actor, "archive", said, outcome=Phase.INTERRUPTED)
            raise
        await self.note(actor, "archive", f"{_letters(total)} of {_said(query)}")
        return total

    @acts("purge")
    async def purge(
        self, query: Query, *, actor: Actor, progress: Progress = lambda gone: None, every: bool = False
    ) -> int:
        """Delete letters for good, and all their versions, except those on their way. Returns how many."""
        check_every(query, every, "purge")
        await self._check(query)
        await self.four_eyes.check("purge", query, actor)
        total = 0
        try:
            while gone := await self.app.store.letters.prune(query, limit=_BATCH):
                total += len(gone)
                progress(len(gone))
        except asyncio.CancelledError:
            said = f"interrupted after {_letters(total)} of {_said(query)}"
            await self.note(actor, "purge", said, outcome=Phase.INTERRUPTED)
            raise
        self.app.events.emit(LettersPruned(count=total, why=f"purged by {actor}"))
        await self.note(actor, "purge", f"{_letters(total)} of {_said(query)}")
        return total

    async def export(self, query: Query, *, actor: Actor | None = None) -> AsyncIterator[bytes]:
        """The letters as JSON lines, oldest first, unredacted and byte-exact, a page at a time. With an actor it is in
        the trail, and takes one who may see secrets."""
        await self._check(query)
        if actor is not None and not actor.may_unmask:
            await self.note(actor, "export", f"unmasked, {_said(query)}", outcome=Phase.REFUSED)
            raise NotAllowed(f"{actor.name!r} may not see secrets, and an export holds them")
        who, total = actor, 0
        began = await self.write(who, "export", Phase.BEGAN, _said(query)) if who is not None else None
        async for page in every_page(self.app.store.letters, query, size=_BATCH, oldest_first=True):
            total += len(page)
            yield b"".join([line_of(letter, await self.edits.kept(letter)) for letter in page])
        if who is not None:
            await self.write(who, "export", Phase.DONE, f"{_letters(total)} of {_said(query)}", of=began)

    @acts("import")
    async def import_letters(
        self, lines: Iterable[bytes], *, actor: Actor, name: str = "the input", progress: Progress = lambda n: None
    ) -> int:
        """Record what an export wrote. Importing it twice changes nothing. Returns how many lines there were."""
        total = 0
        batch: list[Line] = []
        try:
            for line in lines_of(lines, name):
                batch.append(line)
                if len(batch) == _BATCH:
                    total += await self._take_in(batch, progress)
                    batch = []
            total += await self._take_in(batch, progress)
        except asyncio.CancelledError:
            said = f"interrupted after {_letters(total)} from {name}"
            await self.note(actor, "import", said, outcome=Phase.INTERRUPTED)
            raise
        await self.note(actor, "import", f"{_letters(total)} from {name}")
        return total

    @acts("acknowledge")
    async def acknowledge(self, id: str, *, actor: Actor) -> Incident:
        """Note that somebody works on that incident: no notice of it is sent until it is resolved."""
        if (await self.incidents.get(id)).state is IncidentState.RESOLVED:
            raise UsageError(f"incident {id} is resolved already")
        incident = await self.incidents.acknowledge(id, actor=str(actor))
        await self.note(actor, "acknowledge", f"{incident.id}: {incident.alert.summary}")
        return incident

    @acts("resolve")
    async def resolve(self, id: str, *, actor: Actor) -> Incident:
        """Resolve the incident, whatever its rule says; if it happens again, it is opened again."""
        incident = await self.incidents.resolve(id, actor=str(actor))
        await self.note(actor, "resolve", f"{incident.id}: {incident.alert.summary}")
        return incident

    @acts("note")
    async def annotate(self, id: str, text: str, *, actor: Actor) -> Incident:
        """Write something down beside an incident; without the secrets in it."""
        text = self.redactor.text(text)
        incident = await self.incidents.note(id, text, actor=str(actor))
        await self.note(actor, "note", f"{incident.id}: {text}")
        return incident

    async def doctor(self) -> Diagnosis:
        """Examine what is reachable, what is unsafe, and how to mend it."""
        from redrive.doctor import examine

        return await examine(self.app)

    async def audit(
        self, limit: int = 100, *, only: Filter | None = None, before: int | None = None
    ) -> list[dict[str, Any]]:
        """Who did what, newest first: each act once, with its outcome; `began` where that is not known."""
        return [line async for line in self.acts(only or Filter(), limit=limit, before=before)]

    async def verify_audit(self, checkpoint: Checkpoint | None = None) -> Verdict:
        """Follow the chain of the trail, and name the first line that is not as it was written."""
        return await self.trail.verify(checkpoint)

    async def audit_checkpoint(self) -> Checkpoint:
        """The signed head of the chain."""
        return await self.trail.checkpoint()

    async def audit_lines(self, name: str = "stdout", *, actor: Actor) -> AsyncIterator[bytes]:
        """Every line of the trail as JSON, oldest first, masked, some at a time; that it was asked for is one too.

        name   of what they are written to
        """
        await self.note(actor, "audit export", name)
        text, some = self.redactor.text, list[bytes]()
        async for line in self.trail.lines(ascending=True):
            some.append(msgspec.json.encode(replace(line, detail=text(line.detail), reason=text(line.reason))) + b"\n")
            if len(some) == _BATCH:
                yield b"".join(some)
                some = []
        yield b"".join(some)

    async def acts(self, only: Filter, *, limit: int, before: int | None = None) -> AsyncIterator[dict[str, Any]]:
        """The same one by one, and behind them the lines from before there was a chain."""
        left, ended = limit, set[int]()
        async for line in self.trail.lines(before=before):
            if line.of is not None:
                ended.add(line.of)
            if line.seq in ended or line.action == BEGAN or not only.takes(line):
                continue
            if left == 0:
                return
            left -= 1
            yield self._told(line)
        async for older in self.trail.older():
            if left == 0 or only != Filter():
                return
            left -= 1
            yield {**older.body, "detail": self.redactor.text(older.body["detail"])}

    def _told(self, line: TrailLine) -> dict[str, Any]:
        text = self.redactor.text
        told: dict[str, Any] = msgspec.to_builtins(line)
        who = f"{line.actor} ({line.id})" if line.id else line.actor
        masked = {"actor": text(who), "detail": text(line.detail), "reason": text(line.reason)}
        return {**told, **masked, "outcome": str(line.outcome), "about": [*line.about]}

    # -- inside --------------------------------------------------------------------------------------------------

    async def _take_in(self, batch: Sequence[Line], progress: Progress) -> int:
        if batch:
            await self.app.store.letters.record([_at_rest(line.letter) for line in batch])
            for line in batch:
                await self._take_in_versions(line)
            progress(len(batch))
        return len(batch)

    async def _take_in_versions(self, line: Line) -> None:
        """Keep the versions of a letter that was edited, unless the letter that is here has another history."""
        if line.versions:
            here = await self.app.store.letters.get(line.letter.id)
            if here is not None and (here.version, here.edit) == (line.letter.version, line.letter.edit):
                await self.app.store.versions.keep(line.versions)

    async def _archive_some(self, ids: Sequence[LetterId], actor: Actor) -> int:
        now = self.app.clock.now()
        moved = await self.app.store.letters.move(ids, expect=[*UNRESOLVED, State.RESOLVED], to=State.ARCHIVED, now=now)
        self.app.events.emit(LettersMoved(to=State.ARCHIVED, count=len(moved), actor=str(actor)))
        return len(moved)

    def _redacted(self, groups: Sequence[Group]) -> list[Group]:
        return [replace(group, message=self.redactor.text(group.message)) for group in groups]


class SeenBy(Service):
    """A service of which somebody sees a part (seen.py)."""

    def __init__(self, whole: Service, actor: Actor) -> None:
        app, store = seen_app(whole.app, actor)
        super().__init__(app, unanswered=whole._unanswered)
        self.scope = actor.scope
        self.redactor = whole.redactor
        self._roll = whole._roll
        self._documents = store.documents
        self._letters = store.letters
        self._actor = actor
        self.trail = whole.trail  # one chain, of which `acts` tells what is theirs
        self._use(FourEyes(self, whole.four_eyes.approvals))

    async def acts(self, only: Filter, *, limit: int, before: int | None = None) -> AsyncIterator[dict[str, Any]]:
        """What they did themselves; of what others did, the letters might be out of scope."""
        async for line in super().acts(replace(only, by=self._actor), limit=limit, before=before):
            yield line

    def _narrowed(self, query: Query) -> Query:
        return self._letters.narrowed(query)

    async def _is_whole(self, group: Group) -> bool:
        return await self._documents.is_whole(group.id)

    async def doctor(self) -> Diagnosis:
        raise NotInScope("what is unsafe is told to those who reach everything")


def check_every(query: Query, every: bool, verb: str) -> None:
    """Refuse an empty query, which selects every letter, unless that was said."""
    if query.is_empty and not every:
        raise UsageError(
            f"an empty query selects every letter: say which to {verb} (by state, group, source or age), or that all "
            f"of them are meant (`all`)"
        )


def _at_rest(letter: Letter) -> Letter:
    """The letter as it is imported: one that was on its way is pending, since nobody here has it on its way."""
    state = State.PENDING if letter.state in (State.RETRYING, State.REPLAYING) else letter.state
    return replace(letter, state=state, owner=None, lease_until=None)


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


def _letters(count: int) -> str:
    return f"{count:,} letter{'' if count == 1 else 's'}"


def _shown_of(message: Message) -> str:
    """What an unmasking shows, without it."""
    digest = hashlib.sha256(message.body).hexdigest()
    names = ", ".join(sorted({name for name, _ in message.headers})[:20])
    return f"body of {len(message.body):,} bytes, sha256 {digest}; headers {names or 'none'}"


def _said(query: Query) -> str:
    return msgspec.json.encode(query).decode()
