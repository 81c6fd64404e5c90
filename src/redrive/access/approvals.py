"""Four eyes: an act on many letters waits until a second person approves exactly what was asked for.

    waiting ─▶ approved ─▶ done          approved: a second person said yes; done: it was carried out
       ├─────▶ refused | withdrawn       by a second person, with a reason | by whoever asked
       └─────▶ expired                   nobody said anything in time

The selection is frozen when it is asked for: the ids in documents (or in the ledger, of a replay), each as it was. What
changed since is skipped when it is carried out, and counted with the reason.
"""

from __future__ import annotations

import asyncio
import unicodedata
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from typing import Any
from weakref import WeakValueDictionary

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from redrive.access.actors import BESIDE, Actor, Role, Scope
from redrive.clock import Clock
from redrive.errors import NotAllowed, NotFound, UsageError
from redrive.forensics.query import Query
from redrive.model import Letter
from redrive.stores.base import Documents

KIND, PARTS = "approval", "approval-part"
_MOST_PLACES = 1000


class ApprovalState(StrEnum):
    WAITING = "waiting"
    APPROVED = "approved"
    DONE = "done"
    REFUSED = "refused"
    WITHDRAWN = "withdrawn"
    EXPIRED = "expired"


class Frozen(Struct, frozen=True, array_like=True):
    """A letter as it was when it was selected."""

    id: str
    version: int
    state: str


class Approval(Struct, frozen=True, kw_only=True):
    """An act that waits, or waited, for a second person."""

    id: str
    action: str
    by: Actor  # who asked for it
    at: datetime
    expires_at: datetime
    total: int  # letters it is about
    reason: str = ""
    what: str = ""  # what exactly, for people
    digest: str = ""  # of what is to be written, where that is not in the store: whoever asked comes again with it
    query: Query | None = None  # how it was selected; what is carried out is what was frozen
    replay: str | None = None  # whose ledger has the selection
    parts: int = 0  # documents that have it
    selection: str = ""  # the digest of what they say: whoever changes one of them later lets nothing be done
    places: tuple[tuple[str, str], ...] = ()  # sources and tenants of the letters
    state: ApprovalState = ApprovalState.WAITING
    decided_by: Actor | None = None
    decided_at: datetime | None = None
    why: str = ""
    result: str = ""

    def is_over(self, now: datetime) -> bool:
        """Whether nobody said anything in time, or whoever asked did not come again in as much time after a yes."""
        if self.state is ApprovalState.APPROVED and self.digest and self.decided_at is not None:
            return self.decided_at + (self.expires_at - self.at) <= now
        return self.state is ApprovalState.WAITING and self.expires_at <= now


class Digest:
    """Of a selection, part by part."""

    def __init__(self) -> None:
        self._hash = sha256()

    def add(self, part: Sequence[Frozen]) -> None:
        self._hash.update(msgspec.json.encode(part) + b"\n")

    def text(self) -> str:
        return self._hash.hexdigest()


class NeedsApproval(UsageError):
    """It waits for a second person now; nothing was done."""

    def __init__(self, approval: Approval) -> None:
        self.approval = approval
        super().__init__(
            f"{approval.action} of {approval.total:,} letters waits for a second person: nothing was done. Before "
            f"{approval.expires_at:%Y-%m-%d %H:%M} UTC somebody else says `redrive approvals approve {approval.id}`"
        )


class Approvals:
    """Asks, decides and lists. Each change is compare-and-set: of two who decide at once, one does."""

    def __init__(self, documents: Documents, clock: Clock) -> None:
        self._documents = documents
        self._clock = clock
        self._alone: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def alone(self, id: str) -> asyncio.Lock:
        """What is held in this process while that one is carried out."""
        return self._alone.setdefault(id, asyncio.Lock())

    async def ask(self, approval: Approval) -> Approval:
        """Let it wait. Asked for twice under one id, it waits once."""
        await self._documents.put(KIND, approval.id, _body(approval), expect=0)
        return await self.get(approval.id)

    async def freeze(self, approval: str, number: int, letters: Sequence[Letter]) -> list[Frozen]:
        """Write down a part of the selection; returns it."""
        lines = [Frozen(letter.id, letter.version, str(letter.state)) for letter in letters]
        await self._documents.put(PARTS, _part(approval, number), {"letters": msgspec.to_builtins(lines)})
        return lines

    async def frozen(self, approval: Approval) -> AsyncIterator[list[Frozen]]:
        """The selection, part by part."""
        for number in range(approval.parts):
            part = await self._documents.get(PARTS, _part(approval.id, number))
            try:
                lines = [] if part is None else msgspec.convert(part.body["letters"], list[Frozen])
            except (KeyError, msgspec.ValidationError):
                lines = []  # it was changed, and the digest says so
            yield lines

    async def check_frozen(self, approval: Approval) -> None:
        """Raise UsageError if the selection is not what was frozen when it was asked for."""
        if not approval.selection:  # asked for by a version before there was a digest
            return
        digest = Digest()
        async for part in self.frozen(approval):
            digest.add(part)
        if digest.text() != approval.selection:
            raise UsageError(
                f"the selection of {approval.id} is not what was frozen when it was asked for: somebody has changed it "
                f"in the store, and nothing was done. Ask for it again, and look at `redrive audit verify`"
            )

    async def get(self, id: str) -> Approval:
        return (await self._load(id))[0]

    async def list(self, limit: int = 50) -> list[Approval]:
        """Newest first."""
        return [self._read(document.body) for document in await self._documents.list(KIND, limit=limit)]

    async def approved(self, action: str, digest: str) -> Approval | None:
        """The one that waits for, or allows, exactly that."""
        for approval in await self.list(limit=1000):
            if (approval.action, approval.digest) == (action, digest) and approval.state in _OPEN:
                return approval
        return None

    async def approve(self, id: str, actor: Actor) -> Approval:
        """Say yes, as a second person. Once more goes on with what was approved and not carried out."""

        def change(approval: Approval) -> Approval:
            if approval.state is ApprovalState.APPROVED:
                return approval
            _check_waiting(approval)
            check_second(approval, actor)
            return self._decided(approval, ApprovalState.APPROVED, actor, "")

        return await self._change(id, change)

    async def refuse(self, id: str, actor: Actor, why: str) -> Approval:
        """Say no, and why."""
        if not any(map(str.isalnum, why)):
            raise UsageError("say why it is refused: whoever asked will want to know")

        def change(approval: Approval) -> Approval:
            _check_waiting(approval)
            check_second(approval, actor)
            return self._decided(approval, ApprovalState.REFUSED, actor, why[:1000])

        return await self._change(id, change)

    async def withdraw(self, id: str, actor: Actor) -> Approval:
        """Take back what one asked for."""

        def change(approval: Approval) -> Approval:
            _check_waiting(approval)
            if not is_same(approval.by, actor):
                raise NotAllowed(
                    f"only {approval.by.name!r}, who asked for it, withdraws it; anybody else may refuse it"
                )
            return self._decided(approval, ApprovalState.WITHDRAWN, actor, "")

        return await self._change(id, change)

    async def done(self, id: str, result: str) -> Approval:
        """It was carried out. Where another process has said so already, what that one wrote stays."""

        def change(approval: Approval) -> Approval:
            if approval.state is ApprovalState.DONE:
                return approval
            return replace(approval, state=ApprovalState.DONE, result=result)

        return await self._change(id, change)

    async def use(self, id: str) -> Approval | None:
        """Take a yes, which is for one time: None if somebody took it meanwhile, or it is over."""
        is_mine = False

        def change(approval: Approval) -> Approval:
            nonlocal is_mine
            is_mine = approval.state is ApprovalState.APPROVED
            return replace(approval, state=ApprovalState.DONE, result="carried out") if is_mine else approval

        used = await self._change(id, change)
        return used if is_mine else None

    # -- inside --------------------------------------------------------------------------------------------------

    def _decided(self, approval: Approval, state: ApprovalState, actor: Actor, why: str) -> Approval:
        return replace(approval, state=state, decided_by=actor, decided_at=self._clock.now(), why=why)

    async def _change(self, id: str, change: Callable[[Approval], Approval]) -> Approval:
        while True:
            approval, version = await self._load(id)
            changed = change(approval)
            if changed is approval or await self._documents.put(KIND, id, _body(changed), expect=version):
                return changed

    async def _load(self, id: str) -> tuple[Approval, int]:
        document = await self._documents.get(KIND, id)
        if document is None:
            raise unknown(id)
        return self._read(document.body), document.version

    def _read(self, body: dict[str, Any]) -> Approval:
        approval = msgspec.convert(body, Approval)
        return replace(approval, state=ApprovalState.EXPIRED) if approval.is_over(self._clock.now()) else approval


_OPEN = (ApprovalState.WAITING, ApprovalState.APPROVED)


def unknown(id: str) -> NotFound:
    """What is said of one that is not there, or that somebody may not know of."""
    return NotFound(f"nothing waits for an approval as {id!r}", "`redrive approvals` lists what does")


def is_same(actor: Actor, other: Actor) -> bool:
    """Whether both are the same, as far as anybody can tell: a token, a person, a user of the system."""
    if actor.id and other.id:
        return actor.id == other.id
    return actor.via is other.via and actor.name == other.name


def check_second(approval: Approval, actor: Actor) -> None:
    """Raise NotAllowed for who may not decide: whoever asked, a viewer, and who does not reach all of it."""
    if is_same(approval.by, actor):
        raise NotAllowed("whoever asked for it cannot decide it: a second person has to")
    if _named(approval.by) == _named(actor):
        raise NotAllowed(
            f"{approval.by.name!r} asked for it, and may be the same person with another token, or beside the store: "
            f"somebody else has to decide, and two people of one name each need a name of their own"
        )
    if not actor.role.allows(Role.OPERATOR):
        raise NotAllowed(f"this needs the role {Role.OPERATOR}, and {actor.name!r} is {actor.role}")
    if not reaches_all(actor.scope, approval):
        raise NotAllowed("some of these letters may be out of your scope: somebody who reaches them all has to decide")


def reaches_all(scope: Scope, approval: Approval) -> bool:
    """Whether all of its letters are in that scope; false where that cannot be told of so many, or of a system."""
    if scope.is_everything:
        return True
    places = approval.places
    if not places or len(places) >= _MOST_PLACES or scope.systems:
        return False
    return all(scope.has(source=source, tenant=tenant) for source, tenant in places)


def _named(actor: Actor) -> str:
    """Its name as people read it: `ann`, `Ann` and `ann (cli)`, who has the store itself, are one."""
    return " ".join(unicodedata.normalize("NFKC", actor.name).casefold().split()).removesuffix(BESIDE)


def places_of(letters: Sequence[Letter], known: set[tuple[str, str]]) -> None:
    """Note where letters are from, up to a bound."""
    if len(known) < _MOST_PLACES:
        known.update((letter.message.source, letter.message.tenant or "") for letter in letters)


def _check_waiting(approval: Approval) -> None:
    if approval.state is not ApprovalState.WAITING:
        by = f", by {approval.decided_by.name}" if approval.decided_by else ""
        raise UsageError(f"{approval.id} is {approval.state} already{by}")


def _part(approval: str, number: int) -> str:
    return f"{approval}/{number:06}"


def _body(approval: Approval) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.to_builtins(approval)
    return body
