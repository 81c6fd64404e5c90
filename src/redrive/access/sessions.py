"""Logins at the console: kept in the store, so that every server knows them, and looked at again every few minutes.

A browser has a random id in a cookie. The store has only its hash; the refresh token beside it is encrypted with a key
made of the id, so that who reads the database can neither be somebody nor ask the identity provider as somebody.

A session is rechecked once `recheck` has passed: the identity provider is asked, with the refresh token, who this is
now. One server asks, by compare-and-set; what others answer meanwhile is the role of before, for at most half a minute
more. Who has no refresh token has a session as long as its ID token.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from redrive.access.actors import Actor
from redrive.access.claims import LoginRefused, person_of
from redrive.access.issuer import IssuerAway
from redrive.access.people import People
from redrive.clock import Clock
from redrive.errors import MissingExtra, Unavailable
from redrive.stores.base import Document, Documents

try:
    from cryptography.fernet import Fernet, InvalidToken
except ImportError as error:
    raise MissingExtra("signing people in", "oidc") from error

KIND = "session"
_ASKING = timedelta(seconds=30)  # in which one server asks for all
_LONGEST_ID = 100
_SWEPT = 1000


class Session(Struct, frozen=True, kw_only=True):
    """Somebody who signed in with a browser."""

    actor: Actor
    begun_at: datetime
    expires_at: datetime
    recheck_at: datetime
    refresh: str = ""  # encrypted


class Sessions:
    """Those of a store."""

    def __init__(self, people: People, documents: Documents, clock: Clock) -> None:
        self._people = people
        self._documents = documents
        self._clock = clock

    async def begin(self, answer: Mapping[str, Any], nonce: str) -> tuple[str, Session]:
        """A new session of whoever the identity provider's answer is about; returns the id for the cookie, too."""
        claims = await self._people.identify(_text(answer, "id_token"), nonce=nonce)
        id = secrets.token_urlsafe(32)
        session = self._made(id, person_of(self._people.oidc, claims), claims, answer.get("refresh_token"))
        await self._documents.put(KIND, digest_of(id), _body(session), expect=0)
        await self._sweep()
        return id, session

    async def check(self, id: str) -> Session | None:
        """The session of that id; None if there is none, or it is over. LoginRefused, once, if this ended it."""
        found = await self._found(id)
        if found is None:
            return None
        document, session = found
        now = self._clock.now()
        if now >= session.expires_at:
            await self._documents.delete(KIND, document.id)
            return None
        if now < session.recheck_at:
            return session
        asking = replace(session, recheck_at=now + _ASKING)
        if not await self._documents.put(KIND, document.id, _body(asking), expect=document.version):
            return await self.check(id)
        return await self._rechecked(id, session)

    async def end(self, id: str) -> Session | None:
        """End a session, here and, if it wants to know, at the identity provider; returns it if there was one."""
        found = await self._found(id)
        if found is None:
            return None
        document, session = found
        await self._documents.delete(KIND, document.id)
        refresh = _decrypted(id, session.refresh)
        if refresh:
            with suppress(LoginRefused, IssuerAway):
                await self._people.issuer.revoke(refresh)
        return session

    async def _found(self, id: str) -> tuple[Document, Session] | None:
        if not id or len(id) > _LONGEST_ID:
            return None
        document = await self._documents.get(KIND, digest_of(id))
        return None if document is None else (document, msgspec.convert(document.body, Session))

    async def _rechecked(self, id: str, session: Session) -> Session:
        try:
            new = await self._asked_again(id, session)
        except LoginRefused as error:
            await self._documents.delete(KIND, digest_of(id))
            raise LoginRefused(f"this login has ended: {error}", who=session.actor) from None
        except Unavailable:
            await self._write(id, session)
            raise
        await self._write(id, new)
        return new

    async def _asked_again(self, id: str, session: Session) -> Session:
        refresh = _decrypted(id, session.refresh)
        form = {"grant_type": "refresh_token", "refresh_token": refresh}
        answer = await self._people.issuer.submit((await self._people.issuer.addresses()).token_endpoint, form)
        claims = await self._people.identify(_text(answer, "id_token"), nonce=None)
        actor = person_of(self._people.oidc, claims)
        if actor.id != session.actor.id:
            raise LoginRefused("the identity provider says that it is somebody else")
        new = self._made(id, actor, claims, answer.get("refresh_token") or refresh)
        return replace(new, begun_at=session.begun_at, expires_at=min(new.expires_at, session.expires_at))

    async def _write(self, id: str, session: Session) -> None:
        """Write a session unless it was ended meanwhile."""
        document = await self._documents.get(KIND, digest_of(id))
        if document is not None:
            await self._documents.put(KIND, document.id, _body(session), expect=document.version)

    def _made(self, id: str, actor: Actor, claims: Mapping[str, Any], refresh: Any) -> Session:
        now, oidc = self._clock.now(), self._people.oidc
        kept = isinstance(refresh, str) and bool(refresh)
        until = now + oidc.session
        if not kept:
            until = datetime.fromtimestamp(min(until.timestamp(), float(claims["exp"])), UTC)
        return Session(
            actor=actor,
            begun_at=now,
            expires_at=until,
            recheck_at=now + oidc.recheck if kept else until,
            refresh=_encrypted(id, refresh) if kept else "",
        )

    async def _sweep(self) -> None:
        """Delete some that are over, beginning anywhere, so that all have their turn."""
        now = self._clock.now()
        found = [*await self._documents.list(KIND, limit=_SWEPT, after=secrets.token_hex(32))]
        if len(found) < _SWEPT:  # behind the last comes the first: else who is there would hardly ever have a turn
            found += await self._documents.list(KIND, limit=_SWEPT - len(found))
        for document in found:
            if msgspec.convert(document.body, Session).expires_at <= now:
                await self._documents.delete(KIND, document.id, expect=document.version)


def digest_of(id: str) -> str:
    """What the store knows a session by."""
    return hashlib.sha256(id.encode()).hexdigest()


def _cipher(id: str) -> Fernet:
    return Fernet(base64.urlsafe_b64encode(hashlib.sha256(b"refresh:" + id.encode()).digest()))


def _encrypted(id: str, text: str) -> str:
    return _cipher(id).encrypt(text.encode()).decode()


def _decrypted(id: str, text: str) -> str:
    try:
        return _cipher(id).decrypt(text.encode()).decode() if text else ""
    except InvalidToken:
        return ""


def _text(answer: Mapping[str, Any], name: str) -> str:
    found = answer.get(name)
    if not isinstance(found, str):
        raise LoginRefused("the identity provider did not say who this is: its answer has no ID token")
    return found


def _body(session: Session) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.to_builtins(session)
    return body
