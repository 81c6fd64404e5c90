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
from redrive.forensics.jsonpatch import Operation
from redrive.service import Service
from redrive.service.changes import Change, Edited, Preview


class Wanted(Struct, frozen=True, forbid_unknown_fields=True):
    """A new body (`body` as text, or `body_base64`), or a JSON Patch of it, or headers; several of them together.

    version      the one that it takes the place of, as the letter was shown
    headers      what is to be set; null removes a header, and what is not named stays
    all_headers  names and values, as Base64, in the place of all there are
    """

    version: Annotated[int, Meta(ge=0)]
    body: str | None = None
    body_base64: str | None = None
    patch: Annotated[tuple[Operation, ...], Meta(min_length=1, max_length=1000)] | None = None
    headers: dict[str, str | None] | None = None
    all_headers: tuple[tuple[str, str], ...] | None = None
    reason: Annotated[str, Meta(max_length=1000)] = ""


class Undo(Struct, frozen=True, forbid_unknown_fields=True):
    """Which version the letter has now, and which one is to come back: the one before, if none is named."""

    version: Annotated[int, Meta(ge=0)]
    to: Annotated[int, Meta(ge=0)] | None = None


@post("/letters/{id:str}/edit", role=Role.OPERATOR, status_code=200, request_max_body_size=MOST_EDITED)
async def edit_letter(
    service: NamedDependency[Service], actor: NamedDependency[Actor], id: FromPath[str], data: JSONBody[Wanted]
) -> Edited:
    """Another body or other headers. Every version is kept. 409 if it was edited meanwhile, or is on its way."""
    return await service.changes.make(id, _change(data), actor=actor)


@post("/letters/{id:str}/preview", role=Role.OPERATOR, status_code=200, request_max_body_size=MOST_EDITED)
async def preview_edit(
    service: NamedDependency[Service], actor: NamedDependency[Actor], id: FromPath[str], data: JSONBody[Wanted]
) -> Preview:
    """What such an edit would change, masked. Changes nothing."""
    return await service.changes.preview(id, _change(data), actor=actor)


@post("/letters/{id:str}/undo", role=Role.OPERATOR, status_code=200)
async def undo_edit(
    service: NamedDependency[Service], actor: NamedDependency[Actor], id: FromPath[str], data: JSONBody[Undo]
) -> Edited:
    """The message of the version before, or of the one that is named, as a new version. None is lost."""
    return await service.changes.undo(id, actor=actor, to=data.to, expect=data.version)


def _change(data: Wanted) -> Change:
    given = [name for name in ("body", "body_base64", "patch") if getattr(data, name) is not None]
    if len(given) > 1 or not (given or data.headers or data.all_headers is not None):
        raise Unreadable("say what is to change: one of `body`, `body_base64` and `patch`, or `headers`")
    body = None if data.body is None else data.body.encode("utf-8", "surrogatepass")
    some = tuple((name, None if value is None else value.encode()) for name, value in (data.headers or {}).items())
    return Change(
        version=data.version,
        body=body if data.body_base64 is None else _bytes("body_base64", data.body_base64),
        patch=data.patch,
        headers=None
        if data.all_headers is None
        else tuple((name, _bytes("all_headers", value)) for name, value in data.all_headers),
        some_headers=some,
        why=data.reason,
    )


def _bytes(name: str, text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (NotBase64, ValueError) as error:
        raise Unreadable(f"{name}: {error}") from None
