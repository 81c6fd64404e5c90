"""The service as a whole: acts on many letters, incidents, and who sees which part of it."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from redrive.access.actors import Actor
from redrive.access.approvals import Approvals
from redrive.access.tokens import Tokens
from redrive.access.trail import Phase
from redrive.access.trail_store import Filter
from redrive.alerts.incidents import Incident, Incidents, IncidentState
from redrive.answers import Unanswered
from redrive.app import Redrive
from redrive.clock import Clock
from redrive.errors import NotAllowed, NotInScope, Unavailable, UsageError
from redrive.flow.replay import Progress
from redrive.flow.signing import rotate
from redrive.forensics.query import Query
from redrive.forensics.transfer import Line, line_of, lines_of
from redrive.model import UNRESOLVED, Letter, LetterId, State
from redrive.service.acting import acts
from redrive.service.asking import check_every, letters_said
from redrive.service.audit import OfTrail
from redrive.service.changes import Changes
from redrive.service.four_eyes import FourEyes
from redrive.service.repairs import Repairs
from redrive.service.seen import Verdicts, seen_app
from redrive.service.shown_settings import ShownSetting, shown_settings
from redrive.service.tokens import KeptTokens
from redrive.stores.base import Group
from redrive.stores.paging import every_page
from redrive.telemetry.events import LettersMoved, LettersPruned

if TYPE_CHECKING:
    from redrive.doctor import Diagnosis

_BATCH = 500
_COMPARED = 2  # groups at once: each has hundreds of letters masked


class Service(OfTrail):
    """Everything that can be asked of Redrive, and done with it."""

    def __init__(self, app: Redrive, *, unanswered: Callable[[Unanswered], None] = lambda backend: None) -> None:
        super().__init__(app, unanswered=unanswered)
        self._comparing = asyncio.Semaphore(_COMPARED)
        self.verdicts: Verdicts = {}
        self.incidents = Incidents(app.store.documents, app.clock, app.events)
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
        self,
        query: Query,
        *,
        actor: Actor,
        progress: Progress = lambda moved: None,
        every: bool = False,
        tell: Callable[[Sequence[LetterId]], None] = lambda archived: None,
    ) -> int:
        """Archive letters, whatever their state, except those on their way. Returns how many.

        every   an empty query is meant: without it, every letter there is has to be said
        tell    is called with those that this archived, some at a time
        """
        check_every(query, every, "archive")
        await self._check(query)
        await self.four_eyes.check("archive", query, actor)
        total = 0
        try:
            async for page in every_page(self.app.store.letters, query, size=_BATCH, oldest_first=True):
                moved = await self._archive_some([letter.id for letter in page], actor)
                total += len(moved)
                tell(moved)
                progress(len(page))
        except asyncio.CancelledError:
            said = f"interrupted after {letters_said(total)} of {_said(query)}"
            await self.note(actor, "archive", said, outcome=Phase.INTERRUPTED)
            raise
        await self.note(actor, "archive", f"{letters_said(total)} of {_said(query)}")
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
            said = f"interrupted after {letters_said(total)} of {_said(query)}"
            await self.note(actor, "purge", said, outcome=Phase.INTERRUPTED)
            raise
        self.app.events.emit(LettersPruned(count=total, why=f"purged by {actor}"))
        await self.note(actor, "purge", f"{letters_said(total)} of {_said(query)}")
        return total

    async def export(self, query: Query, *, actor: Actor | None = None) -> AsyncIterator[bytes]:
        """The letters as JSON lines, oldest first, unredacted and byte-exact, a page at a time. With an actor it is in
        the trail, and takes one who may see secrets."""
        await self._check(query)
        if actor is not None and not actor.may_unmask:
            await self.note(actor, "export", f"unmasked, {_said(query)}", outcome=Phase.REFUSED)
            raise NotAllowed(f"{actor.name!r} may not see secrets, and an export holds them")
        total, outcome = 0, Phase.FAILED
        began = await self.write(actor, "export", Phase.BEGAN, _said(query)) if actor is not None else None
        try:
            async for page in every_page(self.app.store.letters, query, size=_BATCH, oldest_first=True):
                total += len(page)
                yield b"".join([line_of(letter, await self.edits.kept(letter)) for letter in page])
            outcome = Phase.DONE
        except (asyncio.CancelledError, GeneratorExit):  # Ctrl-C, or nobody reads on
            outcome = Phase.INTERRUPTED
            raise
        finally:
            if actor is not None:
                with suppress(*() if outcome is Phase.DONE else (Unavailable,)):
                    said = f"{'' if outcome is Phase.DONE else 'ended after '}{letters_said(total)} of {_said(query)}"
                    await self.write(actor, "export", outcome, said, of=began)

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
            said = f"interrupted after {letters_said(total)} from {name}"
            await self.note(actor, "import", said, outcome=Phase.INTERRUPTED)
            raise
        await self.note(actor, "import", f"{letters_said(total)} from {name}")
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

    @acts("keys rotate")
    async def rotate_keys(self, *, actor: Actor, drop_old: bool = False) -> int:
        """Add a key that signs what is sent back, or drop all but the newest. Returns how many are accepted."""
        count = await rotate(self.app.store, self.app.clock.now(), drop_old=drop_old)
        await self.note(actor, "keys rotate", "dropped the old ones" if drop_old else f"{count} are accepted")
        return count

    def settings(self) -> list[ShownSetting]:
        """What this process runs with, and where each value comes from; secrets are masked."""
        return shown_settings(self.app, self.redactor)

    async def doctor(self) -> Diagnosis:
        """Examine what is reachable, what is unsafe, and how to mend it."""
        from redrive.doctor import examine

        return await examine(self.app)

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

    async def _archive_some(self, ids: Sequence[LetterId], actor: Actor) -> Sequence[LetterId]:
        now = self.app.clock.now()
        moved = await self.app.store.letters.move(ids, expect=[*UNRESOLVED, State.RESOLVED], to=State.ARCHIVED, now=now)
        self.app.events.emit(LettersMoved(to=State.ARCHIVED, count=len(moved), actor=str(actor)))
        return moved


class SeenBy(Service):
    """A service of which somebody sees a part (seen.py)."""

    def __init__(self, whole: Service, actor: Actor) -> None:
        app, store = seen_app(whole.app, actor, whole.verdicts)
        super().__init__(app, unanswered=whole._unanswered)
        self._whole = whole
        self._comparing = whole._comparing
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

    async def _groups_beginning(self, id: str) -> Sequence[Group]:
        """Found among all there are, which costs little, and only those looked at as far as they are in scope."""
        ids = tuple([group.id for group in await self._whole._groups_beginning(id)])
        return await self._letters.groups(Query(groups=ids), limit=len(ids)) if ids else []

    async def doctor(self) -> Diagnosis:
        raise NotInScope("what is unsafe is told to those who reach everything")


def _at_rest(letter: Letter) -> Letter:
    """The letter as it is imported: one that was on its way is pending, since nobody here has it on its way."""
    state = State.PENDING if letter.state in (State.RETRYING, State.REPLAYING) else letter.state
    return replace(letter, state=state, owner=None, lease_until=None)


def _said(query: Query) -> str:
    return msgspec.json.encode(query).decode()
