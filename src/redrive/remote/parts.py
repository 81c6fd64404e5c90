"""The parts of a service on a server: approvals, incidents, edits, repairs, tokens."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Collection
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import quote

from msgspec import Struct

from redrive.access.actors import Actor
from redrive.access.approvals import Approval
from redrive.access.tokens import Token, UnknownToken
from redrive.alerts.incidents import Incident, IncidentState
from redrive.errors import RedriveError, UnknownIncident, UnknownLetter, UsageError
from redrive.flow.fits import Fits
from redrive.flow.replay import Progress, selectable
from redrive.forensics.query import Query
from redrive.model import EDITABLE, Headers, Letter, LetterId, Message
from redrive.remote.http import Http
from redrive.repair.process import Script
from redrive.repair.spool import Spool
from redrive.service.changes import Change, Edited, Preview
from redrive.service.home import nothing
from redrive.service.repairs import Findings, Repair, Undone, findings_of
from redrive.service.tokens import NewToken, check_overlap, check_wanted

if TYPE_CHECKING:
    from redrive.remote.service import RemoteService

_MOST = 64 << 20  # bytes of a repair, as they are before they are Base64


class ShownRepair(Struct, frozen=True):
    """A repair, and the letters that have its version."""

    repair: Repair
    letters: list[str]


class MadeToken(Struct, frozen=True):
    """A token, and its text."""

    token: Token
    text: str


class RemoteApprovals:
    """What waits for a second person."""

    def __init__(self, http: Http) -> None:
        self._http = http

    async def seen_by(self, actor: Actor, limit: int = 50) -> list[Approval]:
        found: list[Approval] = await self._http.get(list[Approval], "/api/approvals", {"limit": limit})
        return found

    async def approve(self, id: str, *, actor: Actor) -> Approval:
        return await self._decide(id, "approve")

    async def refuse(self, id: str, *, actor: Actor, why: str) -> Approval:
        return await self._decide(id, "refuse", {"reason": why})

    async def withdraw(self, id: str, *, actor: Actor) -> Approval:
        return await self._decide(id, "withdraw")

    async def _decide(self, id: str, how: str, body: dict[str, str] | None = None) -> Approval:
        decided: Approval = await self._http.post(Approval, f"/api/approvals/{at(id)}/{how}", body)
        return decided


class RemoteIncidents:
    """What is wrong."""

    def __init__(self, http: Http) -> None:
        self._http = http

    async def list(self, *, states: Collection[IncidentState] | None = None, limit: int = 1000) -> list[Incident]:
        wanted = {"states": None if states is None else [*states], "limit": limit}
        found: list[Incident] = await self._http.get(list[Incident], "/api/incidents", wanted)
        return found

    async def get(self, id: str) -> Incident:
        found: Incident = await self._http.get(Incident, f"/api/incidents/{at(id, UnknownIncident)}")
        return found


class RemoteChanges:
    """Letters that are edited."""

    def __init__(self, http: Http) -> None:
        self._http = http

    async def make(self, id: str, change: Change, *, actor: Actor) -> Edited:
        done: Edited = await self._http.post(Edited, f"/api/letters/{at(id, UnknownLetter)}/edit", _wanted(change))
        return done

    async def preview(self, id: str, change: Change, *, actor: Actor) -> Preview:
        shown: Preview = await self._http.post(
            Preview, f"/api/letters/{at(id, UnknownLetter)}/preview", _wanted(change)
        )
        return shown

    async def undo(self, id: str, *, actor: Actor, to: int | None = None, expect: int | None = None) -> Edited:
        path = f"/api/letters/{at(id, UnknownLetter)}"
        version = expect if expect is not None else (await self._http.get(_Version, path)).version
        done: Edited = await self._http.post(Edited, f"{path}/undo", {"version": version, "to": to})
        return done


class _Version(Struct, frozen=True):
    """What an undo has to know of a letter."""

    version: int


def _wanted(change: Change) -> dict[str, object]:
    wanted: dict[str, object] = {"version": change.version, "reason": change.why}
    if change.body is not None:
        wanted["body_base64"] = _base64(change.body)
    if change.patch is not None:
        wanted["patch"] = change.patch
    if change.headers is not None:
        wanted["all_headers"] = _headers(change.headers)
    if change.some_headers:
        wanted["headers"] = {name: None if value is None else _text(name, value) for name, value in change.some_headers}
    return wanted


def _text(name: str, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise UsageError(f"the header {name} is not UTF-8: that takes a token that may unmask") from None


class RemoteRepairs:
    """Scripts over many letters: run here, on letters as they are, and applied there."""

    def __init__(self, service: RemoteService, http: Http) -> None:
        self._service = service
        self._http = http

    async def propose(
        self,
        query: Query,
        script: Script,
        spool: Spool,
        *,
        actor: Actor,
        checks: Fits | None = None,
        progress: Progress = nothing,
    ) -> Findings:
        def why_not(letter: Letter, message: Message) -> str | None:
            if letter.state not in EDITABLE:
                return f"{letter.id} is {letter.state}"
            return None if checks is None else checks(message)

        letters = self._service.whole_letters(selectable(query), actor=actor)
        return await findings_of(letters, script, spool, why_not, self._service.redactor, progress)

    async def apply(
        self,
        spool: Spool,
        *,
        script: str,
        actor: Actor,
        reason: str = "",
        id: str | None = None,
        progress: Progress = nothing,
    ) -> Repair:
        proposals, size = [], 0
        for batch in spool.batches(100):
            size += sum(len(item.body) for item in batch)
            if size > _MOST:
                raise UsageError(
                    f"the script changes more than {_MOST >> 20} MiB, which a server does not take at once: narrow the "
                    f"selection, or run it beside the store. Nothing was changed"
                )
            proposals += [
                {
                    "letter": item.letter,
                    "version": item.version,
                    "body": _base64(item.body),
                    "headers": _headers(item.headers),
                }
                for item in batch
            ]
        body = {"script": script, "proposals": proposals, "reason": reason, "id": id}
        done: Repair = await self._http.post(Repair, "/api/repairs", body)
        progress(spool.count)
        return done

    async def undo(self, id: str, *, actor: Actor, progress: Progress = nothing) -> Undone:
        done: Undone = await self._http.post(Undone, f"/api/repairs/{at(id)}/undo")
        progress(done.restored)
        return done

    async def changed(self, id: str) -> AsyncIterator[LetterId]:
        for letter in (await self._shown(id)).letters:
            yield letter

    async def get(self, id: str) -> Repair:
        return (await self._shown(id)).repair

    async def all(self, limit: int = 50) -> list[Repair]:
        found: list[Repair] = await self._http.get(list[Repair], "/api/repairs", {"limit": limit})
        return found

    async def _shown(self, id: str) -> ShownRepair:
        found: ShownRepair = await self._http.get(ShownRepair, f"/api/repairs/{at(id)}")
        return found


class RemoteTokens:
    """Who may come in."""

    def __init__(self, http: Http) -> None:
        self._http = http

    async def list(self, *, actor: Actor) -> list[Token]:
        found: list[Token] = await self._http.get(list[Token], "/api/tokens")
        return found

    async def create(self, wanted: NewToken, *, actor: Actor) -> tuple[Token, str]:
        check_wanted(wanted)
        body = {
            "name": wanted.name,
            "role": wanted.role,
            "scope": wanted.scope,
            "unmask": wanted.unmask,
            "begins_in_seconds": _seconds(wanted.begins_in),
            "expires_in_seconds": _seconds(wanted.lives_for),
        }
        made: MadeToken = await self._http.post(MadeToken, "/api/tokens", body)
        return made.token, made.text

    async def rotate(self, id: str, *, overlap: timedelta, actor: Actor) -> tuple[Token, str]:
        check_overlap(overlap)
        body = {"overlap_seconds": overlap.total_seconds()}
        made: MadeToken = await self._http.post(MadeToken, f"/api/tokens/{at(id, UnknownToken)}/rotate", body)
        return made.token, made.text

    async def revoke(self, id: str, *, actor: Actor) -> Token:
        revoked: Token = await self._http.delete(Token, f"/api/tokens/{at(id, UnknownToken)}")
        return revoked


def _no_id(id: str) -> UsageError:
    return UsageError(f"{id!r} is no id")


def at(id: str, unknown: Callable[[str], RedriveError] = _no_id) -> str:
    """An id as a part of a path, whatever somebody typed; `unknown` is raised for what is none, as a store does."""
    if not id:
        raise _no_id(id)
    if id in (".", "..") or "/" in id:  # which would be a way through the path
        raise unknown(id)
    return quote(id, safe="")


def _seconds(span: timedelta | None) -> float | None:
    return None if span is None else span.total_seconds()


def _headers(headers: Headers) -> list[tuple[str, str]]:
    return [(name, _base64(value)) for name, value in headers]


def _base64(data: bytes) -> str:
    return b64encode(data).decode()
