"""Who may come in: tokens made, rotated and revoked by somebody, who gives nobody more than they have."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from msgspec import Struct

from redrive.access.actors import EVERYTHING, Actor, Role, Scope
from redrive.access.tokens import Token, Tokens, UnknownToken
from redrive.errors import NotAllowed, NotInScope, UsageError
from redrive.service.acting import acts

if TYPE_CHECKING:
    from redrive.service.asking import Asking

YEAR = timedelta(days=366)
LONGEST = 10 * YEAR
LONGEST_NAME = 200
_TOO_LATE = "a token begins within a year"


class NewToken(Struct, frozen=True, kw_only=True):
    """Who will use it, what it may do, of what, from when and for how long."""

    name: str
    role: Role
    scope: Scope = EVERYTHING
    unmask: bool = False
    begins_in: timedelta | None = None
    not_before: datetime | None = None  # the same as a time
    lives_for: timedelta | None = None


class KeptTokens:
    """The tokens of a store, as somebody sees and makes them."""

    def __init__(self, asking: Asking, tokens: Tokens) -> None:
        self._asking = asking
        self._tokens = tokens

    async def list(self, *, actor: Actor) -> list[Token]:
        """Every token that reaches no more than whoever asks, the oldest first; revoked ones included."""
        return [token for token in await self._tokens.list() if actor.scope.covers(token.scope)]

    async def is_revoked(self, id: str) -> bool:
        """Whether somebody took that token away; one that has expired by itself was not."""
        return await self._tokens.is_revoked(id)

    @acts("token create")
    async def create(self, wanted: NewToken, *, actor: Actor) -> tuple[Token, str]:
        """Make a token; returns it and its text, which cannot be had again."""
        check_wanted(wanted)
        check_grant(wanted, actor)
        now, begins = self._asking.app.clock.now(), wanted.not_before
        if wanted.begins_in is not None:
            begins = now + wanted.begins_in
        from_then = max(now, begins or now)
        if from_then - now > YEAR:
            raise UsageError(_TOO_LATE)
        made, text = await self._tokens.create(
            wanted.name,
            wanted.role,
            unmask=wanted.unmask,
            scope=wanted.scope,
            expires_at=None if wanted.lives_for is None else from_then + wanted.lives_for,
            not_before=begins,
        )
        said = f"{made.id} {made.name} {made.role}{' may unmask' if made.may_unmask else ''}"
        await self._asking.note(actor, "token create", said)
        return made, text

    @acts("token rotate")
    async def rotate(self, id: str, *, overlap: timedelta, actor: Actor) -> tuple[Token, str]:
        """Give a token another secret; the one it has opens for so long as they overlap."""
        check_overlap(overlap)
        token = await self._seen(id, actor)
        if token.may_unmask and not actor.may_unmask:
            raise NotAllowed(f"{actor.name!r} may not see secrets, and gets no secret of a token that may")
        made, text = await self._tokens.rotate(id, overlap=overlap)
        await self._asking.note(actor, "token rotate", f"{made.id} {made.name}")
        return made, text

    @acts("token revoke")
    async def revoke(self, id: str, *, actor: Actor) -> Token:
        """From now on it opens nothing, on every server."""
        await self._seen(id, actor)
        revoked = await self._tokens.revoke(id)
        await self._asking.note(actor, "token revoke", f"{revoked.id} {revoked.name}")
        return revoked

    async def _seen(self, id: str, actor: Actor) -> Token:
        """That token. One that reaches more than the actor does not exist."""
        for token in await self.list(actor=actor):
            if token.id == id:
                return token
        raise UnknownToken(id)


def check_wanted(wanted: NewToken) -> None:
    """Refuse a token that nobody could mean, in the same words beside a store and far from it."""
    if not wanted.name.strip() or len(wanted.name) > LONGEST_NAME:
        raise UsageError(f"a token needs a name of 1 to {LONGEST_NAME} characters: say who will use it, such as 'ci'")
    if wanted.begins_in is not None and wanted.begins_in > YEAR:
        raise UsageError(_TOO_LATE)
    if wanted.lives_for is not None and not timedelta() < wanted.lives_for <= LONGEST:
        raise UsageError("a token opens for some time, and for ten years at most; without an end, say none")


def check_overlap(overlap: timedelta) -> None:
    """Refuse two secrets for longer than anybody needs to change one."""
    if not timedelta() <= overlap <= YEAR:
        raise UsageError("two secrets overlap for some time, and for a year at most, or not at all")


def check_grant(wanted: NewToken, actor: Actor) -> None:
    """Refuse a token that reaches or sees more than whoever makes it."""
    if not actor.scope.covers(wanted.scope):
        raise NotInScope("a token that you make reaches no more than you do: name sources, tenants or systems of yours")
    if wanted.unmask and not actor.may_unmask:
        raise NotAllowed(f"{actor.name!r} may not see secrets, and makes no token that may")
