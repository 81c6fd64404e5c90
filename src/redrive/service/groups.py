"""Groups: how they stand, what people say of them (fixed, muted, whose they are, notes), and what differs in them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from redrive.access.actors import Actor
from redrive.alerts.incidents import Incidents
from redrive.errors import NotInScope, UnknownGroup, UsageError
from redrive.forensics.deployment import Running
from redrive.forensics.differs import Differences, Fact, differences, facts_of
from redrive.forensics.marks import Fix, GroupState, Mark, Marks, Mute, muted
from redrive.forensics.notes import LONGEST, GroupNote, Notes
from redrive.forensics.query import Query
from redrive.forensics.version_order import is_at_least, is_version, order_of
from redrive.model import Letter
from redrive.service.acting import acts
from redrive.service.asking import bounded
from redrive.service.redacting import each_off_loop, size_of_message
from redrive.service.sources import OfSources
from redrive.stores.base import Group, GroupOrder, Hit
from redrive.upkeep.fixes import Fixes

_EVERY_GROUP = 10_000
_LONGEST_WHY = 2000
_LONGEST_NAME = 200
_PAGE, _SAMPLE, _LOOKED_AT, _SAMPLED_BYTES = 150, 150, 600, 32 << 20
"""Letters of a page, of a sample, and looked at for it; and bytes of bodies after which no more are read."""
_TENANTS = 20  # of a group, that are named
_UNKNOWN = Hit((), is_all=False)
LONGEST_MUTE = timedelta(days=366)


class GroupView(Group, frozen=True, kw_only=True):
    """A group, where it stands, and what was said of it."""

    state: GroupState
    fix: Fix | None = None
    mute: Mute | None = None
    waits_for: tuple[str, ...] = ()  # of a fix that is not deployed: what keeps it
    assignee: str | None = None  # who sees to it
    tenants: tuple[str, ...] = ()  # that have letters of it, some of them
    is_all_tenants: bool = True  # whether there are no others


class FixReport(Struct, frozen=True, kw_only=True):
    """A group that was fixed, and what there is to know about it."""

    group: GroupView
    notes: list[str]


class OfGroups(OfSources):
    """What can be asked of groups and done with them."""

    incidents: Incidents
    _comparing: asyncio.Semaphore  # groups are compared a few at a time, whoever asks, so that others are served

    @property
    def marks(self) -> Marks:
        return Marks(self.app.store.documents)

    @property
    def _fixes(self) -> Fixes:
        return Fixes(self.app.store, self.replays, self.app.events, self.app.clock)

    async def groups(
        self,
        query: Query,
        *,
        limit: int = 50,
        with_muted: bool = True,
        order: GroupOrder = GroupOrder.LETTERS,
        skip: int = 0,
    ) -> Sequence[GroupView]:
        """The groups in that order, without the first `skip`.

        with_muted   also those that are muted; one that the query names is shown in any case
        """
        await self._check(query)
        marks, now = await self.marks.all(), self.app.clock.now()
        hidden = frozenset[str]() if with_muted else muted(marks, now) - frozenset(query.groups or ())
        shown = await self._page(query, bounded(limit), _behind(skip), order, hidden)
        hits = await self.app.store.letters.tenants([group.id for group in shown], most=_TENANTS)
        return [await self._view(group, marks.get(group.id), hits[group.id]) for group in shown]

    async def _page(
        self, query: Query, limit: int, skip: int, order: GroupOrder, hidden: Collection[str]
    ) -> Sequence[Group]:
        """A page of groups. Where some are hidden, those before the page have to be looked at, too."""
        letters = self.app.store.letters
        if not hidden:
            return await letters.groups(query, limit=limit, skip=skip, order=order)
        found = await letters.groups(query, limit=skip + limit + len(hidden), order=order)
        return [group for group in found if group.id not in hidden][skip : skip + limit]

    async def group(self, id: str) -> GroupView:
        """The group of that id, or of the only id that begins so."""
        group = await self._group(id)
        hits = await self.app.store.letters.tenants([group.id], most=_TENANTS)
        return await self._view(group, await self.marks.get(group.id), hits[group.id])

    async def muted_groups(self) -> list[Mark]:
        """The marks of groups that are muted now, the one that comes back first first."""
        now = self.app.clock.now()
        found = [mark for mark in (await self.marks.all()).values() if mark.is_muted(now)]
        return [self._shown(mark) for mark in sorted(found, key=lambda mark: mark.mute.until if mark.mute else now)]

    @acts("fix")
    async def fix(self, id: str, version: str, *, actor: Actor, auto: bool = False, why: str = "") -> FixReport:
        """Say that a group is fixed in that version. When every worker of its sources runs it, its letters can go back:
        by themselves, if `auto`."""
        _check_version(version)
        group = await self._whole_group(id)
        if auto:
            await self._auto_fix_waits(group, version, actor, why)
        now = self.app.clock.now()
        fix = Fix(id=self.app.clock.new_id(), version=version, by=str(actor), at=now, why=_why(why), auto=auto)
        _, mark = await self.marks.change(group.id, lambda old: replace(old, fix=fix))
        said = f"{group.id} in {version}{', its letters go back by themselves' if auto else ''}"
        await self.note(actor, "fix", f"{said}{': ' + why if why else ''}")
        view = await self._view(group, mark)
        running = [worker for worker in await self._fixes.running() if self._may_know_of(worker)]
        return FixReport(group=view, notes=[*self._notes(view, version, running)])

    @acts("unfix")
    async def unfix(self, id: str, *, actor: Actor) -> GroupView:
        """Take back that a group is fixed. A replay that was started for it goes on."""
        group = await self._whole_group(id)
        old, mark = await self.marks.change(group.id, lambda old: replace(old, fix=None))
        if old.fix is None:
            raise UsageError(f"group {group.id} is not fixed in any version: there is nothing to undo")
        await self.note(actor, "unfix", f"{group.id}, fixed in {old.fix.version} by {old.fix.by}")
        return await self._view(group, mark)

    @acts("mute")
    async def mute(self, id: str, span: timedelta, *, actor: Actor, why: str) -> GroupView:
        """Let nobody be told of a group for so long. Its open incidents are resolved; when the time is over it comes
        back by itself, and if it goes on then, somebody is told."""
        if not timedelta() < span <= LONGEST_MUTE:
            raise UsageError(f"a group is muted for more than nothing and at most {LONGEST_MUTE.days} days")
        if not why.strip():
            raise UsageError("say why it is muted: whoever wonders about the silence will ask")
        group, now = await self._whole_group(id), self.app.clock.now()
        mute = Mute(by=str(actor), at=now, until=now + span, why=_why(why))
        _, mark = await self.marks.change(group.id, lambda old: replace(old, mute=mute))
        await self.note(actor, "mute", f"{group.id} until {mute.until:%Y-%m-%d %H:%M} UTC: {why}")
        for incident in await self.incidents.list():
            if incident.is_open and incident.alert.group == group.id:
                await self.incidents.resolve(incident.id, actor=str(actor))
        return await self._view(group, mark)

    @acts("unmute")
    async def unmute(self, id: str, *, actor: Actor) -> GroupView | None:
        """Let people be told of a group again; None if it was not muted."""
        group, now = await self._whole_group(id), self.app.clock.now()
        old, mark = await self.marks.change(group.id, lambda old: replace(old, mute=None))
        if not old.is_muted(now):
            return None
        await self.note(actor, "unmute", group.id)
        return await self._view(group, mark)

    @acts("assign")
    async def assign(self, id: str, to: str | None, *, actor: Actor) -> GroupView:
        """Say who sees to a group; None: nobody does any more."""
        name = None if to is None else to.strip()
        if name is not None and not (0 < len(name) <= _LONGEST_NAME and name.isprintable()):
            raise UsageError(f"a group is assigned to a name of 1 to {_LONGEST_NAME} characters, or to nobody (null)")
        group = await self._whole_group(id)
        _, mark = await self.marks.change(group.id, lambda old: replace(old, assignee=name))
        await self.note(actor, "assign", f"{group.id} to {name or 'nobody'}")
        return await self._view(group, mark)

    @acts("note-group")
    async def note_group(self, id: str, text: str, *, actor: Actor) -> list[GroupNote]:
        """Write something down beside a group; returns all that was written, the oldest first."""
        if not text.strip() or len(text) > LONGEST:
            raise UsageError(f"a note has 1 to {LONGEST:,} characters")
        group = await self._whole_group(id)
        note = GroupNote(self.app.clock.now(), str(actor), text)
        notes = await Notes(self.app.store.documents).add(group.id, note)
        await self.note(actor, "note-group", f"{group.id}: {text[:200]}")
        return await self._masked_notes(notes)

    async def group_notes(self, id: str) -> list[GroupNote]:
        """What people wrote down beside a group, the oldest first."""
        group = await self._group(id)
        return await self._masked_notes(await Notes(self.app.store.documents).of(group.id))

    async def _masked_notes(self, notes: Sequence[GroupNote]) -> list[GroupNote]:
        def masked(note: GroupNote) -> GroupNote:
            return replace(note, text=self.redactor.text(note.text))

        return await each_off_loop(notes, masked, lambda note: len(note.text))

    async def differs(self, id: str) -> Differences:
        """What many letters of a group have, and few others of its sources do: of a sample of the newest of both."""
        group = await self._group(id)
        async with self._comparing:
            here = await self._sampled(Query(groups=(group.id,)), lambda letter: True)
            others = await self._sampled(Query(sources=group.sources), lambda letter: letter.group != group.id)
        return differences(here, others)

    async def _sampled(self, query: Query, wanted: Callable[[Letter], bool]) -> list[frozenset[Fact]]:
        """The facts of the newest letters, no more than is looked at in a moment."""
        facts: list[frozenset[Fact]] = []
        looked, size, after = 0, 0, None
        while looked < _LOOKED_AT and len(facts) < _SAMPLE and size < _SAMPLED_BYTES:
            page = await self.app.store.letters.search(query, after=after, limit=_PAGE)
            looked, size = looked + len(page.letters), size + sum(len(letter.message.body) for letter in page.letters)
            letters = [letter for letter in page.letters if wanted(letter)][: _SAMPLE - len(facts)]
            facts += await each_off_loop(letters, lambda letter: facts_of(letter, self.redactor), size_of_message)
            after = page.after
            if after is None:
                break
        return facts

    async def _auto_fix_waits(self, group: Group, version: str, actor: Actor, why: str) -> None:
        """Hook of the service: letters that go back by themselves may need a second person, too."""

    # -- inside --------------------------------------------------------------------------------------------------

    async def _whole_group(self, id: str) -> Group:
        """The group, for what is said of all of it. Raises NotInScope if letters of it are out of scope."""
        group = await self._group(id)
        if not await self._is_whole(group):
            raise NotInScope(
                f"group {group.id} has letters beyond your scope: somebody who reaches all of it can do that"
            )
        return group

    async def _is_whole(self, group: Group) -> bool:
        return True

    async def _group(self, id: str) -> Group:
        """The group itself, by its id or by the beginning of it."""
        letters = self.app.store.letters
        exact = await letters.groups(Query(groups=(id,)), limit=1) if id else []
        if exact:
            return exact[0]
        found = await self._groups_beginning(id) if id else []
        if len(found) > 1:
            names = ", ".join(group.id for group in found[:5])
            raise UsageError(f"{id!r} means more than one group: {names}{', …' if len(found) > 5 else ''}")
        if not found:
            raise UnknownGroup(id)
        return found[0]

    async def _groups_beginning(self, id: str) -> Sequence[Group]:
        """The groups whose ids begin so."""
        found = await self.app.store.letters.groups(Query(), limit=_EVERY_GROUP)
        return [group for group in found if group.id.startswith(id)]

    async def _view(self, group: Group, mark: Mark | None, hit: Hit = _UNKNOWN) -> GroupView:
        mark = mark or Mark(group=group.id)
        shown, state = self._shown(mark), mark.state(self.app.clock.now())
        waits: tuple[str, ...] = ()
        if mark.fix is not None and mark.fix.state is GroupState.FIXED:
            waits = (await self._fixes.deployment(group.id, mark.fix.version)).waits_for
        fields = {name: value for name, value in asdict(group).items() if name != "message"}
        message = self.redactor.text(group.message)
        mute = shown.mute if state is GroupState.MUTED else None
        return GroupView(
            **fields,
            message=message,
            state=state,
            fix=shown.fix,
            mute=mute,
            waits_for=waits,
            assignee=shown.assignee,
            tenants=tuple(map(self.redactor.text, hit.tenants)),
            is_all_tenants=hit.is_all,
        )

    def _shown(self, mark: Mark) -> Mark:
        """The mark as it may be shown: the reasons are what somebody typed."""
        masked = self.redactor.text
        fix = mark.fix and msgspec.structs.replace(mark.fix, why=masked(mark.fix.why))
        mute = mark.mute and msgspec.structs.replace(mark.mute, why=masked(mark.mute.why))
        assignee = None if mark.assignee is None else masked(mark.assignee)
        return Mark(group=mark.group, fix=fix, mute=mute, assignee=assignee)

    def _may_know_of(self, worker: Running) -> bool:
        """Whether `workers` tells whoever asks of it."""
        return self.scope.is_everything or any(map(self.reaches_whole, worker.sources))

    def _notes(self, view: GroupView, version: str, running: Sequence[Running]) -> list[str]:
        """What whoever says that a group is fixed may not know."""
        notes = []
        versions = {worker.version for worker in running} | {view.first_version, view.last_version}
        if version not in versions:
            notes.append(f"no worker and no letter of this group has reported {version} yet: check that it is right")
        if order_of(version) is None:
            notes.append(f"{version} has no order among versions: it is deployed when every worker says exactly that")
        if view.last_version and is_at_least(view.last_version, version):
            notes.append(f"its last letter died on {view.last_version}, which is not before {version}")
        return notes


def _behind(skip: int) -> int:
    if not 0 <= skip <= _EVERY_GROUP:
        raise UsageError(f"{skip:,} groups cannot be skipped: {_EVERY_GROUP:,} are the most; narrow what is asked for")
    return skip


def _check_version(version: str) -> None:
    if not is_version(version):
        raise UsageError(
            f"{version!r} is no version: write it as your workers report it, such as 1.4.2 or v1.4.2-3-gabc"
        )


def _why(text: str) -> str:
    if len(text) > _LONGEST_WHY:
        raise UsageError(f"a reason has at most {_LONGEST_WHY:,} characters")
    return text
