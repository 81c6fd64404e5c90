"""The routes that carry much: letters out and in, and the trail, line by line as JSON."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any, cast

from litestar import Request, Response, Router, get, post
from litestar.di import NamedDependency
from litestar.params import JSONBody, QueryParameter
from litestar.response import Stream
from msgspec import Struct

from redrive.access.actors import Actor, Role
from redrive.access.trail import Checkpoint, Phase
from redrive.access.trail_store import Verdict
from redrive.admin.callers import is_taken_back, note
from redrive.admin.problems import MOST_EDITED, Refused
from redrive.forensics.query import Query
from redrive.service import Service

LINES = "application/x-ndjson"
_Name = Annotated[str, QueryParameter(max_length=200)]


class Imported(Struct, frozen=True):
    """How many lines there were."""

    imported: int


@post("/export", role=Role.ADMIN, status_code=200, media_type=LINES, costly=True)
async def export_letters(
    request: Request[Any, Actor, Any],
    service: NamedDependency[Service],
    actor: NamedDependency[Actor],
    data: JSONBody[Query],
) -> Response[bytes]:
    """The letters as JSON lines, oldest first, unmasked and byte-exact: it takes a token that may unmask, too. An
    answer that breaks off is not whole; it does when the token is revoked meanwhile."""
    return await _streamed(request, actor, "export", service.export(data, actor=actor))


@post("/import", role=Role.ADMIN, status_code=200, request_max_body_size=MOST_EDITED, costly=True)
async def import_letters(
    request: Request[Any, Actor, Any],
    service: NamedDependency[Service],
    actor: NamedDependency[Actor],
    name: _Name = "the request",
) -> Imported:
    """Record what an export wrote. Importing it twice changes nothing."""
    lines = (await request.body()).splitlines()
    return Imported(await service.import_letters(lines, actor=actor, name=name))


@get("/audit/lines", role=Role.ADMIN, whole=True, media_type=LINES, costly=True)
async def list_lines(
    request: Request[Any, Actor, Any],
    service: NamedDependency[Service],
    actor: NamedDependency[Actor],
    name: _Name = "the API",
) -> Response[bytes]:
    """Every line of the trail, oldest first, with its sequence and the hash of the line before."""
    return await _streamed(request, actor, "audit export", service.audit_lines(name, actor=actor))


@get("/audit/checkpoint", role=Role.ADMIN, whole=True)
async def make_checkpoint(service: NamedDependency[Service]) -> Checkpoint:
    """The signed head of the chain, to be kept where nobody with the database can change it."""
    return await service.audit_checkpoint()


@get("/audit/verify", role=Role.ADMIN, whole=True, costly=True)
async def verify_audit(service: NamedDependency[Service]) -> Verdict:
    """Follow the chain of the trail, and name the first line that is not as it was written."""
    return await service.verify_audit()


@post("/audit/verify", role=Role.ADMIN, whole=True, status_code=200, costly=True)
async def verify_against(service: NamedDependency[Service], data: JSONBody[Checkpoint]) -> Verdict:
    """The same as GET, proven against a checkpoint that was kept elsewhere."""
    return await service.verify_audit(data)


async def _streamed(
    request: Request[Any, Actor, Any], actor: Actor, what: str, parts: AsyncIterator[bytes]
) -> Response[bytes]:
    """What is refused is refused before the answer begins: the first part is asked for here.

    Of what comes after it, each part is for who is still let in: an answer may last for hours.
    """
    first = await anext(parts, b"")

    async def all_parts() -> AsyncIterator[bytes]:
        yield first
        async for part in parts:
            if await is_taken_back(request, actor):
                await note(request, actor, what, "broken off: its token or login has ended", Phase.REFUSED)
                raise Refused(401, "this is no longer for you", "the answer is not whole")
            yield part

    return cast("Response[bytes]", Stream(all_parts(), media_type=LINES))


router = Router(
    "/api",
    route_handlers=[export_letters, import_letters, list_lines, make_checkpoint, verify_audit, verify_against],
    tags=["transfer"],
)
