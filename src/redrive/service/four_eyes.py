"""Acts past a size wait for a second person, and are carried out on exactly what was frozen when asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextvars import ContextVar
from hashlib import sha256
from typing import TYPE_CHECKING

from msgspec.structs import replace

from redrive.access.actors import Actor, Via
from redrive.access.approvals import (
    Approval,
    Approvals,
    ApprovalState,
    Digest,
    Frozen,
    NeedsApproval,
    check_second,
    is_same,
    places_of,
    reaches_all,
    unknown,
)
from redrive.errors import NotAllowed, UsageError
from redrive.flow.replay_document import Replay, ReplayState
from redrive.forensics.query import Query, shown_query
from redrive.model import LetterId
from redrive.service.acting import acts
from redrive.stores.base import Cursor
from redrive.stores.paging import every_page

if TYPE_CHECKING:
    from redrive.service.service import Service

_PART = 500
_MOST_LISTED = 1000  # for who reaches a part: newer ones of others must not hide theirs
carrying_out: ContextVar[Approval | None] = ContextVar("redrive_approval", default=None)
"""What is approved and carried out now: it does not wait a second time."""


class FourEyes:
    """Lets acts wait, and carries out what was approved."""

    def __init__(self, asking: Service, approvals: Approvals) -> None:
        self._asking = asking
        self._app = asking.app
        self._over = asking.app.settings.access.approve_over
        self.approvals = approvals

    async def check(self, action: str, query: Query, actor: Actor, *, reason: str = "", what: str = "") -> None:
        """Raise NeedsApproval if the query selects so many letters that a second person has to look; it waits then."""
        if self._over is None or carrying_out.get() is not None:
            return
        if await self._app.store.letters.count(query) > self._over:
            raise NeedsApproval(await self._ask(action, query, actor, reason=reason, what=what))

    async def check_written(
        self, action: str, total: int, digest: str, actor: Actor, *, reason: str, what: str
    ) -> Approval | None:
        """The same for what only whoever asks has: once it is approved, the same again is let through. Returns what was
        approved, if it had to be."""
        if self._over is None or total <= self._over:
            return None
        known = await self.approvals.approved(action, digest)
        if known is not None and known.state is ApprovalState.APPROVED:
            used = await self.approvals.use(known.id)
            if used is not None:
                return used
            known = None  # somebody else took that yes between our look and our hand
        if known is None:
            made = self._made(action, actor, total, reason=reason, what=what)
            known = await self.approvals.ask(replace(made, digest=digest))
        raise NeedsApproval(known)

    @property
    def is_on(self) -> bool:
        """Whether some acts take a second person."""
        return self._over is not None

    def waits(self, total: int) -> bool:
        """Whether so many letters take a second person."""
        return self._over is not None and total > self._over and carrying_out.get() is None

    async def ask_for_replay(self, replay: Replay, actor: Actor) -> Approval:
        """Let a replay wait whose selection is frozen in its ledger."""
        made = self._made("replay", actor, replay.total, reason=replay.reason, what=f"replay {replay.id}")
        places: set[tuple[str, str]] = set()
        digest = sha256()
        async for ids in self._selected(replay.id):
            digest.update(_listed(ids))
            page = await self._app.store.letters.search(Query(ids=ids), limit=len(ids))
            places_of(page.letters, places)
        selection = {"selection": digest.hexdigest(), "places": tuple(sorted(places))}
        return await self.approvals.ask(replace(made, id=replay.id, replay=replay.id, query=replay.query, **selection))

    async def seen_by(self, actor: Actor, limit: int = 50) -> list[Approval]:
        """What an actor may know of, newest first."""
        listed = await self.approvals.list(limit if actor.scope.is_everything else _MOST_LISTED)
        return [self._masked(approval) for approval in listed if _reaches(actor, approval)][:limit]

    async def seen(self, id: str, actor: Actor) -> Approval:
        """That one, if the actor may know of it."""
        approval = await self.approvals.get(id)
        if not _reaches(actor, approval):
            raise unknown(id)
        return self._masked(approval)

    def _masked(self, approval: Approval) -> Approval:
        """As it is shown: tenants, queries, reasons and answers are texts of people and messages."""
        text = self._asking.redactor.text
        places = tuple((source, text(tenant)) for source, tenant in approval.places)
        query = None if approval.query is None else shown_query(approval.query, text)
        return replace(approval, places=places, query=query, why=text(approval.why), result=text(approval.result))

    # -- deciding ------------------------------------------------------------------------------------------------

    @acts("approve")
    async def approve(self, id: str, *, actor: Actor) -> Approval:
        """Say yes, and carry it out, in the name of whoever asked. What only they have waits for them to come again."""
        await self._check_still_known(id, actor)
        approval = await self.approvals.approve(id, actor)
        await self._asking.note(actor, "approve", f"{id}: {_told(approval)}", reason=approval.reason)
        if approval.digest:
            return self._masked(approval)
        async with self.approvals.alone(id):  # of two who say yes at once, one does it, and both hear what came of it
            approval = await self.approvals.get(id)
            if approval.state is ApprovalState.APPROVED:
                token = carrying_out.set(approval)
                try:
                    approval = await self.approvals.done(id, await self._carry_out(approval))
                finally:
                    carrying_out.reset(token)
        return self._masked(approval)

    @acts("refuse")
    async def refuse(self, id: str, *, actor: Actor, why: str) -> Approval:
        """Say no, and why. Nothing of it is done."""
        approval = await self.approvals.refuse(id, actor, why)
        await self._end_replay(approval, actor)
        return self._masked(approval)

    @acts("withdraw")
    async def withdraw(self, id: str, *, actor: Actor) -> Approval:
        """Take back what one asked for."""
        approval = await self.approvals.withdraw(id, actor)
        await self._end_replay(approval, actor)
        return self._masked(approval)

    # -- inside --------------------------------------------------------------------------------------------------

    async def _check_still_known(self, id: str, actor: Actor) -> None:
        """Raise NotAllowed if the token of whoever asked was revoked since: nothing is done in its name any more."""
        approval = await self.approvals.get(id)
        check_second(approval, actor)
        by = approval.by
        if by.via is Via.TOKEN and by.id and await self._asking.tokens.is_revoked(by.id):
            raise NotAllowed(
                f"the token of {by.name!r}, who asked for it, was revoked since: nothing is done in its name any more. "
                f"Refuse it; whoever still wants it asks for it anew"
            )

    async def _ask(self, action: str, query: Query, actor: Actor, *, reason: str, what: str) -> Approval:
        made = self._made(action, actor, 0, reason=reason, what=what)
        parts, total, digest = 0, 0, Digest()
        places: set[tuple[str, str]] = set()
        async for page in every_page(self._app.store.letters, query, size=_PART, oldest_first=True):
            digest.add(await self.approvals.freeze(made.id, parts, page))
            places_of(page, places)
            parts, total = parts + 1, total + len(page)
        selection = {"parts": parts, "total": total, "selection": digest.text()}
        wanted = replace(made, query=query, places=tuple(sorted(places)), **selection)
        return await self.approvals.ask(wanted)

    def _made(self, action: str, actor: Actor, total: int, *, reason: str, what: str) -> Approval:
        now = self._app.clock.now()
        within = self._app.settings.access.approve_within
        text = self._asking.redactor.text
        return Approval(
            id=self._app.clock.new_id(),
            action=action,
            by=actor,
            at=now,
            expires_at=now + within,
            total=total,
            reason=text(reason)[:1000],
            what=text(what)[:1000],
        )

    async def _carry_out(self, approval: Approval) -> str:
        service, by = self._asking, approval.by
        if approval.replay is not None:
            await self._check_ledger(approval.replay, approval)
            replay = await service.replays.resume(approval.replay, actor=str(by), approved=True)
            ended = replay.state is ReplayState.CANCELLED
            return f"replay {replay.id} {'was cancelled meanwhile: nothing was sent' if ended else 'runs'}"
        do: dict[str, Callable[[Query], Awaitable[int]]] = {
            "purge": lambda query: service.purge(query, actor=by),
            "archive": lambda query: service.archive(query, actor=by),
            "unarchive": lambda query: service.unarchive(query, actor=by),
        }
        if approval.action not in do:
            raise UsageError(f"{approval.action!r} is nothing that this version carries out")
        await self.approvals.check_frozen(approval)
        total, skipped = 0, Counter[str]()
        async for part in self.approvals.frozen(approval):
            ids = await self._unchanged(part, skipped)
            if ids:
                total += await do[approval.action](Query(ids=tuple(ids)))
        why = "".join(f"; {count:,} skipped: {reason}" for reason, count in sorted(skipped.items()))
        return f"{total:,} of {approval.total:,} letters{why}"

    async def _selected(self, replay: str) -> AsyncIterator[tuple[LetterId, ...]]:
        """The letters that the ledger of a replay has, in their order, some at a time."""
        after: Cursor | None = None
        while True:
            entries, after = await self._app.store.ledger.entries(replay, after=after, limit=_PART)
            if entries:
                yield tuple(entry.letter for entry in entries)
            if after is None:
                return

    async def _check_ledger(self, replay: str, approval: Approval) -> None:
        """Raise UsageError if lines were added to the ledger, changed or taken away since it was asked for."""
        found, digest = 0, sha256()
        async for ids in self._selected(replay):
            found += len(ids)
            digest.update(_listed(ids))
        if found != approval.total or approval.selection not in ("", digest.hexdigest()):
            raise UsageError(
                f"replay {replay} was asked for with {approval.total:,} letters, and its ledger has others, {found:,}: "
                f"somebody has changed it in the store, and nothing was sent. Cancel it, and look at `redrive audit "
                f"verify`"
            )

    async def _unchanged(self, part: Sequence[Frozen], skipped: Counter[str]) -> list[LetterId]:
        """The letters that are still as they were when they were selected."""
        page = await self._app.store.letters.search(Query(ids=tuple(letter.id for letter in part)), limit=len(part))
        found = {letter.id: letter for letter in page.letters}
        kept = []
        for was in part:
            now = found.get(was.id)
            if now is None:
                skipped["deleted since"] += 1
            elif str(now.state) != was.state:
                skipped[f"{now.state} now"] += 1
            elif now.version != was.version:
                skipped["edited since"] += 1
            else:
                kept.append(was.id)
        return kept

    async def _end_replay(self, approval: Approval, actor: Actor) -> None:
        if approval.replay is not None:
            await self._asking.replays.cancel(approval.replay, actor=str(actor))


def _listed(ids: Sequence[LetterId]) -> bytes:
    """The ids one below the other, so that it does not matter how many are read at a time."""
    return "".join(f"{id}\n" for id in ids).encode()


def _reaches(actor: Actor, approval: Approval) -> bool:
    """Whether all of its letters exist for the actor. What it says (how many, from where, by which query) is of all."""
    return is_same(actor, approval.by) or reaches_all(actor.scope, approval)


def _told(approval: Approval) -> str:
    frozen = f", selection {approval.selection[:16]}" if approval.selection else ""
    return f"{approval.action} of {approval.total:,} letters{frozen}, asked for by {approval.by}"
