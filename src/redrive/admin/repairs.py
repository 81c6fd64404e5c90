"""The routes of repairs: a script runs where whoever wrote it is; what it made is applied and undone here."""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as NotBase64
from typing import Annotated

from litestar import Router, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody
from msgspec import Meta, Struct

from redrive.access.actors import Actor, Role
from redrive.admin.letters import Limit
from redrive.admin.problems import MOST_EDITED, Unreadable
from redrive.repair.spool import Proposal, Spool
from redrive.service import Service
from redrive.service.repairs import Repair, Undone

_Text = Annotated[str, Meta(max_length=1000)]


class Proposed(Struct, frozen=True, forbid_unknown_fields=True):
    """A letter in the version that the script saw, and its new message; bytes are Base64."""

    letter: str
    version: Annotated[int, Meta(ge=0)]
    body: str
    headers: tuple[tuple[str, str], ...] = ()


class Repairing(Struct, frozen=True, forbid_unknown_fields=True):
    """What a script made of letters."""

    script: Annotated[str, Meta(min_length=1, max_length=1000)]
    proposals: Annotated[tuple[Proposed, ...], Meta(min_length=1)]
    reason: _Text = ""
    id: Annotated[str, Meta(min_length=1, max_length=100)] | None = None


class Shown(Struct, frozen=True):
    """A repair, and the letters that have its version."""

    repair: Repair
    letters: list[str]


@get("/", role=Role.VIEWER, whole=True)
async def list_repairs(service: NamedDependency[Service], limit: Limit = 50) -> list[Repair]:
    """Newest first."""
    return await service.repairs.all(limit)


@get("/{id:str}", role=Role.VIEWER, whole=True)
async def show_repair(service: NamedDependency[Service], id: FromPath[str]) -> Shown:
    """What it changed, and which letters have its version now."""
    return Shown(await service.repairs.get(id), [letter async for letter in service.repairs.changed(id)])


@post("/", role=Role.OPERATOR, whole=True, status_code=200, request_max_body_size=MOST_EDITED, costly=True)
async def apply_repair(
    service: NamedDependency[Service], actor: NamedDependency[Actor], data: JSONBody[Repairing]
) -> Repair:
    """Edit each letter that is still in the version that the script saw. One act, which can be undone as one."""
    if data.id is not None:
        await service.repairs.check_new(data.id)
    with Spool() as spool:
        await service.repairs.take_in(map(_proposal, data.proposals), spool)
        return await service.repairs.apply(spool, script=data.script, actor=actor, reason=data.reason, id=data.id)


@post("/{id:str}/undo", role=Role.OPERATOR, whole=True, status_code=200, costly=True)
async def undo_repair(service: NamedDependency[Service], actor: NamedDependency[Actor], id: FromPath[str]) -> Undone:
    """Give back what the letters had before it, byte for byte, except those that were edited since."""
    return await service.repairs.undo(id, actor=actor)


def _proposal(given: Proposed) -> Proposal:
    headers = tuple((name, _bytes(value)) for name, value in given.headers)
    return Proposal(given.letter, given.version, _bytes(given.body), headers)


def _bytes(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (NotBase64, ValueError) as error:
        raise Unreadable(f"this is no Base64: {error}") from None


router = Router("/api/repairs", route_handlers=[list_repairs, show_repair, apply_repair, undo_repair], tags=["repairs"])
