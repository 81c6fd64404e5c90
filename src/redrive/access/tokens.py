"""Who may do what: bearer tokens, kept hashed, each with one of three roles.

A token is `rdr_<id>_<secret>`. The id is public and finds the document; the secret has 256 random bits, which no
dictionary holds, so one round of SHA-256 is enough and a slow hash would only slow down every request.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from redrive.access.actors import EVERYTHING, Actor, Role, Scope, Via
from redrive.clock import Clock
from redrive.errors import Unavailable, UsageError
from redrive.stores.base import Documents

KIND = "token"
_FORM = re.compile(r"rdr_([a-z0-9]{10})_([\w-]{43})", re.ASCII)
_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"  # without look-alikes: an id is read aloud and typed
_NOTED_EVERY = timedelta(hours=1)
_LONGEST_PATTERN, _MOST_PATTERNS = 200, 100


class Token(Struct, frozen=True, kw_only=True):
    """What is known of a token; its secret is not among it."""

    id: str
    name: str
    role: Role
    created_at: datetime
    last_used: datetime | None = None  # to the hour: no request pays for a write
    revoked: bool = False
    may_unmask: bool = False  # see the secrets of a letter, one at a time and with a reason
    scope: Scope = EVERYTHING
    not_before: datetime | None = None
    expires_at: datetime | None = None
    rotated_until: datetime | None = None  # until then the secret before the last rotation opens, too

    def opens_at(self, now: datetime) -> bool:
        """Whether it is to be let in then."""
        begun = self.not_before is None or self.not_before <= now
        return begun and not self.revoked and (self.expires_at is None or now < self.expires_at)


class Stored(Token, frozen=True, kw_only=True):
    """A token as its document has it."""

    digest: str
    old_digest: str = ""  # of the secret before the last rotation

    def has(self, text: str, now: datetime) -> bool:
        """Whether that is its text. Both secrets are compared in any case: the time taken tells nothing."""
        old = self.old_digest if self.rotated_until is not None and now < self.rotated_until else ""
        asked = _digest(text)
        return bool(hmac.compare_digest(asked, self.digest) | hmac.compare_digest(asked, old))


class UnknownToken(UsageError):
    """There is no such token."""

    def __init__(self, id: str) -> None:
        super().__init__(f"no token {id!r}: list them with `redrive token list`")


class Tokens:
    """Makes, finds and revokes tokens. A revoked one is refused by the next request, in every process."""

    def __init__(self, documents: Documents, clock: Clock) -> None:
        self._documents = documents
        self._clock = clock
        self._one_time: Stored | None = None

    async def create(
        self,
        name: str,
        role: Role,
        *,
        scope: Scope = EVERYTHING,
        unmask: bool = False,
        expires_at: datetime | None = None,
        not_before: datetime | None = None,
    ) -> tuple[Token, str]:
        """Make a token; returns it and its text, which cannot be had again."""
        if not name.strip():
            raise UsageError("a token needs a name: say who will use it, such as 'ci'")
        if expires_at is not None and expires_at <= max(self._clock.now(), not_before or self._clock.now()):
            raise UsageError("a token that has expired before it begins opens nothing: let it expire later")
        check_scope(scope)
        stored, text = self._made(name.strip(), role)
        stored = replace(stored, scope=scope, may_unmask=unmask, expires_at=expires_at, not_before=not_before)
        await self._documents.put(KIND, stored.id, _body(stored), expect=0)
        return _shown(stored), text

    def one_time(self) -> str:
        """An admin's token for as long as this process lives; it is stored nowhere."""
        made, text = self._made("one-time token", Role.ADMIN)
        self._one_time = replace(made, may_unmask=True)  # whoever reads this terminal has the store
        return text

    async def list(self) -> list[Token]:
        """Every token, oldest first, revoked ones included."""
        found = [_stored(document.body) for document in await self._documents.list(KIND)]
        return sorted(map(_shown, found), key=lambda token: token.created_at)

    async def any(self) -> bool:
        """Whether somebody could come in with a stored token, now or later."""
        now = self._clock.now()
        return any(token.opens_at(max(now, token.not_before or now)) for token in await self.list())

    async def rotate(self, id: str, *, overlap: timedelta = timedelta()) -> tuple[Token, str]:
        """Give a token another secret; the one it has opens for so long as they overlap, any older one no more."""
        if overlap < timedelta():
            raise UsageError("two secrets overlap for some time, or not at all")
        text = _text(id)
        while document := await self._documents.get(KIND, id):
            old, until = _stored(document.body), self._clock.now() + overlap
            if old.revoked or (old.expires_at is not None and old.expires_at <= self._clock.now()):
                raise UsageError(f"token {id} is {'revoked' if old.revoked else 'expired'}: make another one")
            new = replace(old, digest=_digest(text), old_digest=old.digest, rotated_until=until)
            if await self._documents.put(KIND, id, _body(new), expect=document.version):
                return _shown(new), text
        raise UnknownToken(id)

    async def revoke(self, id: str) -> Token:
        """Revoke a token: from now on it opens nothing. Revoking it again changes nothing."""
        while document := await self._documents.get(KIND, id):
            revoked = replace(_stored(document.body), revoked=True)
            if await self._documents.put(KIND, id, _body(revoked), expect=document.version):
                return _shown(revoked)
        raise UnknownToken(id)

    async def is_revoked(self, id: str) -> bool:
        """Whether that token is there, and was revoked."""
        found, _ = await self._find(id)
        return found is not None and found.revoked

    async def check(self, text: str) -> Token | None:
        """The token of that text; None if there is none, or it is revoked."""
        form = _FORM.fullmatch(text)
        if form is None:
            return None
        stored, version = await self._find(form[1])
        now = self._clock.now()
        # compared even if there is none, so that the time taken does not tell which ids exist
        same = (stored or _NOBODY).has(text, now)
        if stored is None or not same or not stored.opens_at(now):
            return None
        await self._note_use(stored, version)
        return _shown(stored)

    def _made(self, name: str, role: Role) -> tuple[Stored, str]:
        id = "".join(secrets.choice(_ALPHABET) for _ in range(10))
        text = _text(id)
        return Stored(id=id, name=name, role=role, created_at=self._clock.now(), digest=_digest(text)), text

    async def _find(self, id: str) -> tuple[Stored | None, int]:
        if self._one_time is not None and self._one_time.id == id:
            return self._one_time, 0
        document = await self._documents.get(KIND, id)
        return (None, 0) if document is None else (_stored(document.body), document.version)

    async def _note_use(self, stored: Stored, version: int) -> None:
        """Note when a token was used, now and then, and never at the price of the request."""
        now = self._clock.now()
        if not version or (stored.last_used is not None and abs(now - stored.last_used) < _NOTED_EVERY):
            return
        try:
            await self._documents.put(KIND, stored.id, _body(replace(stored, last_used=now)), expect=version)
        except Unavailable:
            return


def actor_of_token(token: Token) -> Actor:
    """Whoever has that token."""
    return Actor(
        id=token.id,
        name=token.name,
        role=token.role,
        via=Via.TOKEN,
        scope=token.scope,
        may_unmask=token.may_unmask,
    )


def check_scope(scope: Scope) -> None:
    """Refuse patterns that no name could be of, and more of them than anybody reads."""
    for patterns in (scope.sources, scope.tenants, scope.systems):
        for pattern in patterns:
            if not pattern.strip() or len(pattern) > _LONGEST_PATTERN or not pattern.isprintable():
                raise UsageError(f"{pattern[:50]!r} is no pattern of names: write it as in a shell, such as 'mail.*'")
        if len(patterns) > _MOST_PATTERNS:
            raise UsageError(f"a scope names at most {_MOST_PATTERNS} sources, tenants or systems: use a pattern")


def _text(id: str) -> str:
    return f"rdr_{id}_{secrets.token_urlsafe(32)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _body(stored: Stored) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.to_builtins(stored)
    return body


def _stored(body: dict[str, Any]) -> Stored:
    return msgspec.convert(body, Stored)


def _shown(stored: Stored) -> Token:
    return Token(**{name: getattr(stored, name) for name in Token.__struct_fields__})


_NOBODY = Stored(id="", name="", role=Role.VIEWER, created_at=datetime.min, digest=_digest(""))
