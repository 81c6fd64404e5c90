"""The routes that edit a letter, and undo that.

Nobody's base is what he was shown: a new body says which version it takes the place of, a patch is applied here, to the
real body, and neither may carry a mask back in.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as NotBase64
from typing import Annotated

from litestar import post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody
from msgspec import Meta, Struct

from redrive.access.actors import Actor, Role
from redrive.admin.problems import MOST_EDITED, Unreadable
from redrive.forensics.editing import VersionView
from redrive.forensics.jsonpatch import Operation
from redrive.model import Headers, Letter
from redrive.service import Service


class Change(Struct, frozen=True, forbid_unknown_fields=True):
    """A new body (`body` as text, or `body_base64`), or a JSON Patch of it, or headers; several of them together.

    version   the one that it takes the place of, as the letter was shown
    headers   what is to be set; null removes a header, and what is not named stays
    """

    version: Annotated[int, Meta(ge=0)]
    body: str | None = None
    body_base64: str | None = None
    patch: Annotated[tuple[Operation, ...], Meta(min_length=1, max_length=1000)] | None = None
    headers: dict[str, str | None] | None = None
    reason: Annotated[str, Meta(max_length=1000)] = ""


class Undo(Struct, frozen=True, forbid_unknown_fields=True):
    """Which version the letter has now, and which one is to come back: the one before, if none is named."""

    version: Annotated[int, Meta(ge=0)]
    to: Annotated[int, Meta(ge=0)] | None = None


class Edited(Struct, frozen=True):
    """A letter that was edited, and its versions."""

    id: str
    version: int
    versions: list[VersionView]


@post("/letters/{id:str}/edit", role=Role.OPERATOR, status_code=200, request_max_body_size=MOST_EDITED)
async def edit_letter(
    service: NamedDependency[Service], actor: NamedDependency[Actor], id: FromPath[str], data: JSONBody[Change]
) -> Edited:
    """Another body or other headers. Every version is kept. 409 if it was edited meanwhile, or is on its way."""
    letter = await service.find(id)
    body, headers = _body(data), _headers(letter.message.headers, data.headers)
    service.edits.refuse_masked(letter, body, headers)
    if data.patch is not None:
        body = service.edits.patched(letter, data.patch, service.redactor)
    new = await service.edits.edit(
        letter, actor=actor, body=body, headers=headers, why=data.reason, expect=data.version
    )
    return await _edited(service, new)


@post("/letters/{id:str}/undo", role=Role.OPERATOR, status_code=200)
async def undo_edit(
    service: NamedDependency[Service], actor: NamedDependency[Actor], id: FromPath[str], data: JSONBody[Undo]
) -> Edited:
    """The message of the version before, or of the one that is named, as a new version. None is lost."""
    letter = await service.find(id)
    return await _edited(service, await service.edits.undo(letter, actor=actor, to=data.to, expect=data.version))


async def _edited(service: Service, letter: Letter) -> Edited:
    return Edited(letter.id, letter.version, await service.edits.versions(letter))


def _body(data: Change) -> bytes | None:
    given = [name for name in ("body", "body_base64", "patch") if getattr(data, name) is not None]
    if len(given) > 1 or not (given or data.headers):
        raise Unreadable("say what is to change: one of `body`, `body_base64` and `patch`, or `headers`")
    if data.body_base64 is None:
        return None if data.body is None else data.body.encode("utf-8", "surrogatepass")
    try:
        return b64decode(data.body_base64, validate=True)
    except (NotBase64, ValueError) as error:
        raise Unreadable(f"body_base64: {error}") from None


def _headers(before: Headers, given: dict[str, str | None] | None) -> Headers | None:
    if not given:
        return None
    kept = tuple(pair for pair in before if pair[0] not in given)
    return kept + tuple((name, value.encode()) for name, value in given.items() if value is not None)
