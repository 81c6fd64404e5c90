"""Editing: a letter gets another message, every version of it is kept, and all of it can be undone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from redrive.access.actors import Actor
from redrive.errors import ChangedMeanwhile, MessageTooLarge, UsageError
from redrive.flow.fits import Fits, fits
from redrive.forensics.editing import VersionView, is_masked, patch_body, version_views
from redrive.forensics.jsonpatch import Operation
from redrive.forensics.redact import Redactor
from redrive.model import EDITABLE, Edit, Headers, Letter, Message, Revision, State, Version, version_of
from redrive.service.acting import acts
from redrive.service.digests import digest_of
from redrive.stores.paging import every_page
from redrive.telemetry.events import LettersMoved

if TYPE_CHECKING:
    from redrive.forensics.query import Query
    from redrive.service.asking import Asking
    from redrive.service.four_eyes import FourEyes

_LONGEST_WHY = 1000
_PAGE = 500


class Edits:
    """Edits letters, and undoes that.

    checks   whether a handler here could decode a message
    """

    def __init__(self, asking: Asking, checks: Fits | None = None) -> None:
        self._asking = asking
        self._app = asking.app
        self._fits = checks or fits(asking.app.handlers)
        self.four_eyes: FourEyes | None = None

    @acts("edit")
    async def edit(
        self,
        letter: Letter,
        *,
        actor: Actor,
        body: bytes | None = None,
        headers: Headers | None = None,
        why: str = "",
        expect: int | None = None,
    ) -> Letter:
        """Give the letter, as it was read, another body or other headers. Raises ChangedMeanwhile if somebody else was
        first, or if it is on its way."""
        self._check_expected(letter, expect)
        message = replace(
            letter.message,
            body=letter.message.body if body is None else body,
            headers=letter.message.headers if headers is None else headers,
        )
        if (message.body, message.headers) == (letter.message.body, letter.message.headers):
            raise UsageError(f"nothing of {letter.id} would change")
        await self._let_wait(letter, message, actor, why)
        edit = Edit(by=str(actor), at=self._app.clock.now(), why=why[:_LONGEST_WHY])
        new = await self._write(letter, message, edit)
        await self._asking.note(actor, "edit", f"{letter.id}: version {new.version}{f' ({why})' if why else ''}")
        return new

    def patched(self, letter: Letter, patch: Sequence[Operation], redactor: Redactor | None = None) -> bytes:
        """The body after a JSON Patch of the real one. With a redactor, what it masks can be changed and not read."""
        return patch_body(letter.message.body, patch, redactor)

    @acts("undo")
    async def undo(self, letter: Letter, *, actor: Actor, to: int | None = None, expect: int | None = None) -> Letter:
        """Give the letter the message of the version before, or of that one. That is a version too: none is lost."""
        self._check_expected(letter, expect)
        number = await self._before(letter) if to is None else to
        version = await self.version(letter, number)
        message = replace(letter.message, body=version.body, headers=version.headers)
        root = version.edit.restores if version.edit and version.edit.restores is not None else number
        edit = Edit(by=str(actor), at=self._app.clock.now(), why=f"as in version {root}", restores=root)
        await self._let_wait(letter, message, actor, edit.why)
        new = await self._write(letter, message, edit, checked=False)
        await self._asking.note(actor, "undo", f"{letter.id}: version {new.version} is version {root} again")
        return new

    async def versions(self, letter: Letter) -> list[VersionView]:
        """Every version with what it changed, masked, the oldest first."""
        older = [await self.version(letter, number) for number in range(letter.version)]
        return version_views(letter, older, self._asking.redactor) if older else []

    async def version(self, letter: Letter, number: int) -> Version:
        """That version, with its bytes, unredacted."""
        if number == letter.version:
            return version_of(letter)
        found = await self._app.store.versions.get(letter.id, number) if 0 <= number < letter.version else None
        if found is None:
            raise UsageError(f"{letter.id} has no version {number}: it has 0 to {letter.version}")
        return found

    async def kept(self, letter: Letter) -> list[Version]:
        """The versions before the newest, for an export."""
        found = [await self._app.store.versions.get(letter.id, number) for number in range(letter.version)]
        return [version for version in found if version is not None]

    def check_with(self, checks: Fits) -> None:
        """Ask these handlers, from now on, whether they could decode what is to be kept."""
        self._fits = checks

    def why_not(self, letter: Letter, message: Message) -> str | None:
        """Why the letter cannot have that message; None if it can."""
        limit = self._app.settings.body_limit
        if letter.state not in EDITABLE:
            return _not_editable(letter)
        if len(message.body) > limit:
            return str(MessageTooLarge(len(message.body), limit))
        return self._fits(message)

    def refuse_masked(self, letter: Letter, body: bytes | None, headers: Headers | None) -> None:
        """Refuse what somebody was shown masked and sends back as it was shown: the mask would be the message."""
        before, message = letter.message, "send a JSON Patch: it changes only what it names"
        if body is not None and is_masked(body.decode("utf-8", "replace"), before.body.decode("utf-8", "replace")):
            raise UsageError(f"the body says [redacted], which is what you were shown and not what is there: {message}")
        was = {value for _, value in before.headers}
        if any(b"[redacted]" in value and value not in was for _, value in headers or ()):
            raise UsageError("a header says [redacted], which is what you were shown: leave it out, and it stays")

    async def unarchive(self, query: Query, *, actor: Actor) -> int:
        """Take archived letters back to what they were. None of them is retried by itself. Returns how many."""
        wanted, total = replace(query, states=(State.ARCHIVED,)), 0
        async for page in every_page(self._app.store.letters, wanted, size=_PAGE, oldest_first=True):
            total += await self._unarchive(page)
        self._app.events.emit(LettersMoved(to=State.PENDING, count=total, actor=str(actor)))
        await self._asking.note(actor, "unarchive", f"{total:,} letter{'' if total == 1 else 's'}")
        return total

    async def _unarchive(self, letters: Sequence[Letter]) -> int:
        moved, now = 0, self._app.clock.now()
        for to in (State.PENDING, State.EXHAUSTED, State.SENT, State.RESOLVED):
            ids = [letter.id for letter in letters if (letter.archived_from or State.EXHAUSTED) is to]
            if ids:
                move = self._app.store.letters.move(ids, expect=[State.ARCHIVED], to=to, now=now)
                moved += len(await move)
        return moved

    async def _before(self, letter: Letter) -> int:
        """The number of the version whose message the one before had."""
        if letter.version == 0:
            raise UsageError(f"{letter.id} was never edited: there is nothing to undo")
        restored = letter.edit.restores if letter.edit else None
        number = letter.version if restored is None else restored
        if number == 0:
            raise UsageError(f"{letter.id} is as it came: there is nothing left to undo")
        return number - 1

    async def _let_wait(self, letter: Letter, message: Message, actor: Actor, why: str) -> None:
        """Let it wait for a second person where every letter does: what was approved is exactly this message."""
        if self.four_eyes is not None and self.four_eyes.is_on:
            key = await self._asking.trail.key()
            digest = digest_of([(letter.id, letter.version, message.body, message.headers)], key)
            what = f"edit of {letter.id}, version {letter.version}"
            await self.four_eyes.check_written("edit", 1, digest, actor, reason=why, what=what)

    async def _write(self, letter: Letter, message: Message, edit: Edit, *, checked: bool = True) -> Letter:
        why = self.why_not(letter, message) if checked else None
        if letter.state not in EDITABLE:
            raise ChangedMeanwhile(_not_editable(letter))
        if why is not None:
            raise UsageError(f"{letter.id} cannot be edited so: {why}")
        revision = Revision(letter.id, letter.version, message.body, message.headers, edit)
        if not await self._app.store.versions.edit([revision]):
            raise ChangedMeanwhile(await self._what_happened(letter))
        return replace(letter, message=message, version=letter.version + 1, edit=edit, updated_at=edit.at)

    async def _what_happened(self, letter: Letter) -> str:
        now = await self._app.store.letters.get(letter.id)
        if now is None:
            return f"{letter.id} was deleted meanwhile"
        return _not_editable(now) if now.state not in EDITABLE else _edited_meanwhile(now, letter.version)

    def _check_expected(self, letter: Letter, expect: int | None) -> None:
        if expect is not None and letter.version != expect:
            raise ChangedMeanwhile(_edited_meanwhile(letter, expect))


def _edited_meanwhile(letter: Letter, expect: int) -> str:
    who = f" by {letter.edit.by}" if letter.edit and letter.edit.by else ""
    return (
        f"{letter.id} was edited meanwhile{who}: you changed version {expect}, and it has version {letter.version}. "
        f"Nothing was written: look at it, and edit it again"
    )


def _not_editable(letter: Letter) -> str:
    if letter.state is State.RESOLVED:
        return f"{letter.id} is resolved: its message succeeded, and is not sent any more"
    return f"{letter.id} is {letter.state}: its message is on its way. Edit it when it has come back"
