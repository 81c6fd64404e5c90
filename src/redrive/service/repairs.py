"""Repairs: a user's function over many letters, first to look at, then applied as one thing that can be undone.

    propose   the script runs over what the query selects; nothing is written, what it made is in a spool
    apply     the letters of a part are written down first, then edited, each only if it is as the script saw it
    undo      each letter that still has what the repair made of it gets back, byte for byte, what it had

Who is killed in the middle leaves parts that are applied and a repair that says `applying`: `changed` tells which
letters have its version, and `undo` takes them back. A letter is changed or not, never half.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from datetime import datetime
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from redrive.access.actors import Actor
from redrive.errors import NotFound, UnknownLetter, UsageError
from redrive.flow.fits import Fits
from redrive.flow.replay import selectable
from redrive.forensics.editing import difference
from redrive.forensics.query import Query
from redrive.forensics.redact import Redactor
from redrive.model import EDITABLE, Edit, Letter, LetterId, Message, Revision, Version, version_of
from redrive.repair.process import Repaired, Script
from redrive.repair.spool import Proposal, Spool
from redrive.service.acting import acts
from redrive.service.digests import digest_of
from redrive.stores.paging import every_letter

if TYPE_CHECKING:
    from redrive.service.asking import Asking
    from redrive.service.edits import Edits
    from redrive.service.four_eyes import FourEyes

KIND, PARTS = "repair", "repair-part"
_SHOWN, _PAGE, _PART = 3, 50, 100
Progress = Callable[[int], None]
WhyNot = Callable[[Letter, Message], str | None]


class RepairState(StrEnum):
    APPLYING = "applying"
    APPLIED = "applied"
    UNDONE = "undone"


class Repair(Struct, frozen=True, kw_only=True):
    """One repair that was applied, or began to be."""

    id: str
    script: str
    actor: str
    at: datetime
    state: RepairState = RepairState.APPLYING
    reason: str = ""
    parts: int = 0
    changed: int = 0
    skipped: dict[str, int] = {}  # why -> how many letters


class Example(Struct, frozen=True):
    """A letter that the script would change, and how, masked as everything that is shown."""

    letter: LetterId
    diff: list[str]


class Findings(Struct, frozen=True, kw_only=True):
    """What a dry run found."""

    total: int
    changed: int
    unchanged: int
    failed: dict[str, int]  # why -> how many letters
    failed_at: dict[str, LetterId]  # why -> the first of them
    examples: list[Example]
    printed: int = 0
    first_printed: list[str] = []


class Undone(Struct, frozen=True, kw_only=True):
    """What an undo did."""

    restored: int
    skipped: dict[str, int]  # why -> how many letters


class Repairs:
    """Proposes, applies and undoes them."""

    def __init__(self, asking: Asking, edits: Edits) -> None:
        self._asking = asking
        self._app = asking.app
        self._edits = edits
        self.four_eyes: FourEyes | None = None

    async def propose(
        self,
        query: Query,
        script: Script,
        spool: Spool,
        *,
        actor: Actor,
        checks: Fits | None = None,
        progress: Progress = lambda looked: None,
    ) -> Findings:
        """Run the script over the letters that a replay of that query would take. Writes nothing.

        checks   whether handlers could decode what the script made; None: those of this app
        """
        if checks is not None:
            self._edits.check_with(checks)
        await self._asking.note_unmasked(actor, query)
        letters = every_letter(self._app.store.letters, selectable(query), size=_PAGE, oldest_first=True)
        return await findings_of(letters, script, spool, self._edits.why_not, self._asking.redactor, progress)

    @acts("repair")
    async def apply(
        self,
        spool: Spool,
        *,
        script: str,
        actor: Actor,
        reason: str = "",
        id: str | None = None,
        progress: Progress = lambda done: None,
    ) -> Repair:
        """Edit what the dry run proposed: each letter that is still in the version that the script saw."""
        if self.four_eyes is not None and self.four_eyes.is_on:
            await self._let_wait(spool, script, actor, reason)
        now, why = self._app.clock.now(), self._asking.redactor.text(reason)
        repair = Repair(id=id or self._app.clock.new_id(), script=script, actor=str(actor), at=now, reason=why)
        await self._save(repair)
        for batch in spool.batches(_PART):
            repair = await self._apply_part(repair, batch)
            progress(len(batch))
        repair = replace(repair, state=RepairState.APPLIED)
        await self._save(repair)
        await self._asking.note(actor, "repair", f"{repair.id}: {repair.changed:,} letters changed by {script}")
        return repair

    async def take_in(self, proposals: Iterable[Proposal], spool: Spool) -> None:
        """Put into a spool what a script made elsewhere, each checked as a dry run here would have."""
        for some in _some(proposals, _PART):
            page = await self._app.store.letters.search(Query(ids=tuple(item.letter for item in some)), limit=len(some))
            letters = {letter.id: letter for letter in page.letters}
            for item in some:
                letter = letters.get(item.letter)
                if letter is None:
                    raise UnknownLetter(item.letter)
                message = replace(letter.message, body=item.body, headers=item.headers)
                if letter.version == item.version and (why := self._edits.why_not(letter, message)) is not None:
                    raise UsageError(f"{letter.id} cannot be edited so: {why}")
                spool.add(item)

    @acts("repair")
    async def undo(self, id: str, *, actor: Actor, progress: Progress = lambda done: None) -> Undone:
        """Give back what the letters had before that repair. What was edited since, or is on its way, stays, and is
        counted with the reason; the same again goes on with what is left."""
        repair = await self.get(id)
        if self.four_eyes is not None and self.four_eyes.is_on:
            what, total = f"undo of repair {id}", len([letter async for letter in self.changed(id)])
            digest = hashlib.sha256(what.encode()).hexdigest()
            await self.four_eyes.check_written("repair", total, digest, actor, reason="", what=what)
        restored, skipped = 0, Counter[str]()
        async for ids in self._parts(repair):
            done, left = await self._undo_part(repair, ids, actor)
            restored += done
            skipped += left
            progress(len(ids))
        if not skipped:
            await self._save(replace(repair, state=RepairState.UNDONE))
        await self._asking.note(actor, "repair", f"{id}: undone, {restored:,} letters restored")
        return Undone(restored=restored, skipped=dict(skipped))

    async def changed(self, id: str) -> AsyncIterator[LetterId]:
        """The letters that have the version which that repair made, whatever became of whoever applied it."""
        repair = await self.get(id)
        async for ids in self._parts(repair):
            page = await self._app.store.letters.search(Query(ids=tuple(ids)), limit=len(ids))
            for letter in page.letters:
                if _is_of(letter, id):
                    yield letter.id

    async def check_new(self, id: str) -> None:
        """Raise UsageError if there is such a repair: its letters could not be told from those of another."""
        if await self._app.store.documents.get(KIND, id) is not None:
            raise UsageError(f"there is a repair {id!r} already: give the new one an id of its own")

    async def get(self, id: str) -> Repair:
        document = await self._app.store.documents.get(KIND, id)
        if document is None:
            raise NotFound(f"there is no repair {id!r}", "`redrive repair --list` lists them")
        return msgspec.convert(document.body, Repair)

    async def all(self, limit: int = 50) -> list[Repair]:
        """Newest first."""
        documents = await self._app.store.documents.list(KIND, limit=limit)
        return [msgspec.convert(document.body, Repair) for document in documents]

    # -- inside --------------------------------------------------------------------------------------------------

    async def _let_wait(self, spool: Spool, script: str, actor: Actor, reason: str) -> None:
        """Let it wait for a second person, if it changes many: what was approved is exactly these versions."""
        assert self.four_eyes is not None
        proposals = [proposal for batch in spool.batches(_PART) for proposal in batch]
        key = await self._asking.trail.key()
        digest = digest_of(((item.letter, item.version, item.body, item.headers) for item in proposals), key)
        what = f"repair by {script}, digest {digest[:16]}"
        await self.four_eyes.check_written("repair", len(proposals), digest, actor, reason=reason, what=what)

    async def _apply_part(self, repair: Repair, batch: Sequence[Proposal]) -> Repair:
        part: dict[str, Any] = {"ids": [proposal.letter for proposal in batch]}
        await self._app.store.documents.put(PARTS, _part(repair.id, repair.parts), part)
        repair = replace(repair, parts=repair.parts + 1)
        await self._save(repair)
        edit = Edit(by=repair.actor, at=self._app.clock.now(), why=repair.reason or repair.script, repair=repair.id)
        revisions = [Revision(item.letter, item.version, item.body, item.headers, edit) for item in batch]
        won = {*await self._app.store.versions.edit(revisions)}
        skipped = Counter(repair.skipped)
        for proposal in batch:
            if proposal.letter not in won:
                skipped[await self._why_skipped(proposal)] += 1
        repair = replace(repair, changed=repair.changed + len(won), skipped=dict(skipped))
        await self._save(repair)
        return repair

    async def _why_skipped(self, proposal: Proposal) -> str:
        letter = await self._app.store.letters.get(proposal.letter)
        if letter is None:
            return "deleted since the dry run"
        if letter.state not in EDITABLE:
            return f"{letter.state} since the dry run"
        return "edited since the dry run"

    async def _undo_part(self, repair: Repair, ids: Sequence[LetterId], actor: Actor) -> tuple[int, Counter[str]]:
        page = await self._app.store.letters.search(Query(ids=tuple(ids)), limit=len(ids))
        revisions, skipped = [], Counter[str]()
        for letter in page.letters:
            if not _is_of(letter, repair.id):
                if letter.version and not _is_undone(letter, repair.id) and await self._was_of(letter, repair.id):
                    skipped["edited since"] += 1
            elif letter.state not in EDITABLE:
                skipped[f"{letter.state} now"] += 1
            else:
                revisions.append(await self._restoring(letter, repair, actor))
        won = await self._app.store.versions.edit(revisions) if revisions else ()
        if len(won) < len(revisions):
            skipped["changed meanwhile"] += len(revisions) - len(won)
        return len(won), skipped

    async def _restoring(self, letter: Letter, repair: Repair, actor: Actor) -> Revision:
        before = await self._edits.version(letter, letter.version - 1)
        root = before.edit.restores if before.edit and before.edit.restores is not None else before.number
        why = f"undo of repair {repair.id}"
        edit = Edit(by=str(actor), at=self._app.clock.now(), why=why, restores=root)
        return Revision(letter.id, letter.version, before.body, before.headers, edit)

    async def _was_of(self, letter: Letter, repair: str) -> bool:
        """Whether an older version is the repair's, and none since then took it back."""
        older = await self._app.store.versions.list(letter.id)
        edits = [version.edit for version in older if version.edit is not None]
        if any(edit.why == f"undo of repair {repair}" for edit in edits):
            return False
        return any(edit.repair == repair for edit in edits)

    async def _parts(self, repair: Repair) -> AsyncIterator[Sequence[LetterId]]:
        """The letters of each part; who died behind writing one down, and before counting it, is not forgotten."""
        number = 0
        while (part := await self._app.store.documents.get(PARTS, _part(repair.id, number))) is not None:
            yield part.body["ids"]
            number += 1

    async def _save(self, repair: Repair) -> None:
        body: dict[str, Any] = msgspec.to_builtins(repair)
        await self._app.store.documents.put(KIND, repair.id, body)


async def findings_of(
    letters: AsyncIterator[Letter],
    script: Script,
    spool: Spool,
    why_not: WhyNot,
    redactor: Redactor,
    progress: Progress,
) -> Findings:
    """What the script makes of each of the letters, in the spool, and what there is to say of it."""
    counts: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    failed_at: dict[str, LetterId] = {}
    examples: list[Example] = []
    async for letter in letters:
        made = _checked(letter, await script.repair(letter), why_not)
        if made.failed is not None:
            failed[made.failed] += 1
            failed_at.setdefault(made.failed, letter.id)
        elif made.is_changed:
            counts["changed"] += 1
            _propose(letter, made, spool, examples, redactor)
        else:
            counts["unchanged"] += 1
        progress(1)
    return Findings(
        total=counts.total() + failed.total(),
        changed=counts["changed"],
        unchanged=counts["unchanged"],
        failed=dict(failed.most_common()),
        failed_at=failed_at,
        examples=examples,
        printed=script.printed,
        first_printed=list(script.first_printed),
    )


def _checked(letter: Letter, made: Repaired, why_not: WhyNot) -> Repaired:
    """The same, or failed, where no handler here could decode what the script made, or it is too large."""
    if made.body is None or made.headers is None:
        return made
    why = why_not(letter, replace(letter.message, body=made.body, headers=made.headers))
    return made if why is None else Repaired(failed=why)


def _propose(letter: Letter, made: Repaired, spool: Spool, examples: list[Example], redactor: Redactor) -> None:
    body, headers = made.body or b"", made.headers or ()
    spool.add(Proposal(letter.id, letter.version, body, headers))
    if len(examples) < _SHOWN:
        new = Version(letter.id, letter.version + 1, headers, len(body), None, body)
        examples.append(Example(letter.id, difference(version_of(letter), new, redactor)))


def _some(items: Iterable[Proposal], size: int) -> Iterator[list[Proposal]]:
    """Some at a time."""
    left = iter(items)
    while some := list(islice(left, size)):
        yield some


def _part(repair: str, number: int) -> str:
    return f"{repair}/{number:06}"


def _is_of(letter: Letter, repair: str) -> bool:
    return letter.edit is not None and letter.edit.repair == repair


def _is_undone(letter: Letter, repair: str) -> bool:
    return letter.edit is not None and letter.edit.why == f"undo of repair {repair}"
