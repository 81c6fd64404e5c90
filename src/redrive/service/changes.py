"""A letter changed by its id: what the command line and the API both ask for, whoever has seen of it what."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from msgspec import UNSET, Struct
from msgspec.structs import replace

from redrive.access.actors import Actor, Via
from redrive.forensics.editing import UNSEEN, NotEditable, VersionView, difference
from redrive.forensics.jsonpatch import Operation, patch_between
from redrive.forensics.secrets import MASK
from redrive.model import Headers, Letter, Message, Version, version_of
from redrive.service.redacting import off_loop

if TYPE_CHECKING:
    from redrive.service.service import Service


class Change(Struct, frozen=True, kw_only=True):
    """What a letter is to have: another body, or a patch of the one it has, and other headers.

    version       the one that it takes the place of
    headers       all of them, in the place of those there are
    some_headers  only what is to be set; None removes a header, and what is not named stays
    """

    version: int
    body: bytes | None = None
    patch: tuple[Operation, ...] | None = None
    headers: Headers | None = None
    some_headers: tuple[tuple[str, bytes | None], ...] = ()
    why: str = ""


class Edited(Struct, frozen=True):
    """A letter that was edited, and its versions."""

    id: str
    version: int
    versions: list[VersionView]


class Preview(Struct, frozen=True):
    """What would change, masked, and nothing was changed."""

    id: str
    version: int  # the one it has
    diff: list[str]


class Changes:
    """Changes letters, and shows what that would change."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def make(self, id: str, change: Change, *, actor: Actor) -> Edited:
        """Keep it as a new version. Raises ChangedMeanwhile if it was edited meanwhile, or is on its way."""
        letter = await self._service.find(id)
        body, headers = await self._made(letter, change, actor)
        new = await self._service.edits.edit(
            letter, actor=actor, body=body, headers=headers, why=change.why, expect=change.version
        )
        return await self._edited(new)

    async def preview(self, id: str, change: Change, *, actor: Actor) -> Preview:
        """What it would change, for whoever cannot see the message itself. Changes nothing."""
        letter = await self._service.find(id)
        body, headers = await self._made(letter, change, actor)
        old = version_of(letter)
        message = replace(
            letter.message,
            body=letter.message.body if body is None else body,
            headers=letter.message.headers if headers is None else headers,
        )
        new = Version(letter.id, letter.version + 1, message.headers, len(message.body), None, message.body)
        # nothing at all, and nothing but what is masked, look alike: who guesses a secret is not told when he is right
        return Preview(letter.id, letter.version, difference(old, new, self._service.redactor) or [UNSEEN])

    async def undo(self, id: str, *, actor: Actor, to: int | None = None, expect: int | None = None) -> Edited:
        """The message of the version before, or of that one, as a new version."""
        letter = await self._service.find(id)
        return await self._edited(await self._service.edits.undo(letter, actor=actor, to=to, expect=expect))

    async def _made(self, letter: Letter, change: Change, actor: Actor) -> tuple[bytes | None, Headers | None]:
        edits, headers = self._service.edits, change.headers
        if change.some_headers:
            headers = _with(letter.message.headers if headers is None else headers, change.some_headers)
        if actor.via is not Via.STORE:  # who has the store sees what is there, and means what they write
            edits.refuse_masked(letter, change.body, headers)
        if change.patch is None:
            return change.body, headers
        patch, redactor = change.patch, self._service.redactor
        (body,) = await off_loop([letter], lambda letter: edits.patched(letter, patch, redactor))
        return body, headers

    async def _edited(self, letter: Letter) -> Edited:
        return Edited(letter.id, letter.version, await self._service.edits.versions(letter))


def _with(before: Headers, given: tuple[tuple[str, bytes | None], ...]) -> Headers:
    names = {name for name, _ in given}
    kept = tuple(pair for pair in before if pair[0] not in names)
    return kept + tuple((name, value) for name, value in given if value is not None)


def change_of_masked(shown: Message, wanted: Change) -> Change:
    """The same change of a message that somebody was shown with its secrets masked: only what they changed in it."""
    before, after = dict(shown.headers), dict(wanted.headers or ())
    some = tuple((name, value) for name, value in after.items() if before.get(name) != value)
    gone = tuple((name, None) for name in before if name not in after)
    body: bytes | None = None if wanted.body == shown.body else wanted.body
    patch: tuple[Operation, ...] | None = None
    if body is not None and MASK.encode() in shown.body:
        patch, body = _patch(shown.body, body) or None, None
    return replace(wanted, body=body, patch=patch, headers=None, some_headers=(*some, *gone))


def _patch(shown: bytes, new: bytes) -> tuple[Operation, ...]:
    try:
        patch = patch_between(json.loads(shown), json.loads(new))
    except (ValueError, RecursionError):
        raise NotEditable("what you see is masked, and no JSON: give the whole body with --body FILE") from None
    if any(MASK in json.dumps(step.value) for step in patch if step.value is not UNSET):
        raise NotEditable(f"what you changed holds {MASK}, which is not what is there: leave that part as it is")
    return tuple(patch)
