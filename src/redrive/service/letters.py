"""Letters as they are seen, and the one that is unmasked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from redrive.access.actors import Actor
from redrive.answers import Unanswered
from redrive.app import Redrive
from redrive.errors import NotAllowed, UnknownLetter, UsageError
from redrive.flow.held import held_key_of
from redrive.forensics.ancestry import InReplay, LetterLineage, Related
from redrive.forensics.carried import CarriedMessage, carried
from redrive.forensics.query import Query
from redrive.forensics.trace_context import PLACE
from redrive.forensics.views import Detail, Summary, detail, summary
from redrive.model import Letter, LetterId, Message
from redrive.service.acting import acts
from redrive.service.asking import bounded
from redrive.service.digests import digest_of_body
from redrive.service.edits import Edits
from redrive.service.redacting import each_off_loop, off_loop, size_on_line
from redrive.service.series import OfSeries
from redrive.stores.base import Cursor
from redrive.stores.paging import every_letter
from redrive.systems.decoding import decoded_body

_SOME = 100
_RELATED, _REPLAYS = 50, 200  # letters that one is tied to, and replays that are looked through for it
_PATIENCE = 1.0  # seconds in which its children are found, or not all of them are told


class Summaries(Struct, frozen=True):
    """A page of letters."""

    letters: list[Summary]
    after: Cursor | None


class OfLetters(OfSeries):
    """What is seen of letters, one or many."""

    def __init__(self, app: Redrive, *, unanswered: Callable[[Unanswered], None] = lambda backend: None) -> None:
        super().__init__(app, unanswered=unanswered)
        self.edits = Edits(self)

    async def letters(self, query: Query, *, after: Cursor | None = None, limit: int = 50) -> Summaries:
        """A page of letters, newest first."""
        await self._check(query)
        page = await self.app.store.letters.search(query, after=after, limit=bounded(limit))
        return Summaries(await self._summaries(page.letters), page.after)

    async def _summaries(self, letters: Sequence[Letter]) -> list[Summary]:
        return await each_off_loop(letters, lambda letter: summary(letter, self.redactor), size_on_line)

    async def letter(self, id: LetterId) -> Detail:
        """The letter of that id, of the only id that begins so, or of the message with that id."""
        letter = await self.find(id)
        held = await held_key_of(self.app.store.documents, letter)
        versions = await self.edits.versions(letter)
        shown = (await off_loop([letter], lambda found: detail(found, self.redactor, held, versions)))[0]
        shown = replace(shown, decoded=await asyncio.to_thread(decoded_body, letter, self.redactor))
        address = self.app.settings.admin.trace_url
        if address is None or shown.trace_id is None:
            return shown
        return replace(shown, trace_url=address.replace(PLACE, shown.trace_id))

    async def lineage(self, id: LetterId) -> LetterLineage:
        """What a letter waits for, what waits for it, the replays it was in, and its versions. Children are letters
        that died since it first failed."""
        letter = await self.find(id)
        parents = [await self._related(message) for message in letter.depends_on[:_RELATED]]
        children, is_all = await self._children(letter)
        newest = [replay.id for replay in await self.replays.list(_REPLAYS)]
        ids = list(dict.fromkeys([*newest, *([letter.replay] if letter.replay else ())]))
        entries = await self.app.store.ledger.of_letter(letter.id, ids)
        text = self.redactor.text
        replays = [InReplay(entry.replay, entry.status, entry.at, text(entry.note)) for entry in entries]
        return LetterLineage(
            id=letter.id,
            parents=parents,
            parent=parents[0] if parents else None,
            children=children,
            is_all_children=is_all,
            replays=replays,
            versions=list(await self.edits.versions(letter)),
        )

    async def _related(self, message: str) -> Related:
        page = await self.app.store.letters.search(Query(message_ids=(message,)), limit=1)
        shown = await self._summaries(page.letters)
        return Related(self.redactor.text(message), shown[0] if shown else None)

    async def _children(self, letter: Letter) -> tuple[list[Summary], bool]:
        """The letters that wait for that one, newest first, and whether these are all. A store that would have to look
        at too many letters for it is not waited for."""
        query = Query(parents=(letter.message.id,), since=letter.failures[0].at)
        try:
            async with asyncio.timeout(_PATIENCE):
                page = await self.app.store.letters.search(query, limit=_RELATED)
        except TimeoutError:
            return [], False
        return await self._summaries(page.letters), page.after is None

    async def find(self, id: LetterId) -> Letter:
        """The letter itself, unredacted: for what goes back to a transport, never for what is shown."""
        letter = await self.app.store.letters.get(id)
        if letter is not None:
            return letter
        for query in (Query(message_ids=(id,)), Query(id_prefix=id)):
            page = await self.app.store.letters.search(query, limit=2)
            if len(page.letters) > 1:
                names = ", ".join(f"{letter.id} ({letter.message.source})" for letter in page.letters)
                raise UsageError(f"{id!r} means more than one letter: {names}")
            if page.letters and id:
                return page.letters[0]
        raise UnknownLetter(id)

    async def carried(self, id: LetterId) -> CarriedMessage:
        """The message of a letter, to run a handler on it elsewhere, with its secrets masked; see `unmask`."""
        letter = await self.find(id)
        return (await off_loop([letter], lambda found: carried(found, self.redactor, raw=False)))[0]

    @acts("unmask")
    async def unmask(self, id: LetterId, *, actor: Actor, reason: str) -> CarriedMessage:
        """The message of one letter as it is, for who may see its secrets and says why. The trail has what was shown:
        which fields, and a digest of the body, never the secret."""
        if not actor.may_unmask:
            raise NotAllowed(
                f"{actor.name!r} may not see secrets: that takes a token of `redrive token create --unmask`"
            )
        if not any(map(str.isalnum, reason)):  # what cannot be seen is no reason either
            raise UsageError("say why the secrets of this letter have to be seen: the reason is kept in the trail")
        letter = await self.find(id)
        await self.note(actor, "unmask", _shown_of(letter.message, await self.trail.key()), about=[letter.id])
        decoded = await asyncio.to_thread(decoded_body, letter, None)
        return replace(carried(letter, self.redactor, raw=True), decoded=decoded)

    async def message(self, id: LetterId, *, actor: Actor, reason: str) -> CarriedMessage:
        """The message of a letter: as it is for who may see secrets and says why, masked for everybody else."""
        if actor.may_unmask and reason:
            return await self.unmask(id, actor=actor, reason=reason)
        return await self.carried(id)

    async def whole_letters(self, query: Query, *, actor: Actor, limit: int | None = None) -> AsyncIterator[Letter]:
        """The letters themselves, oldest first, to run code of a user on them: for who may see secrets. That they were
        read is in the trail before the first of them is."""
        await self.note_unmasked(actor, query)
        async for letter in every_letter(self.app.store.letters, query, limit=limit, size=_SOME, oldest_first=True):
            yield letter

    async def named(self, ids: Iterable[LetterId]) -> Query:
        """Exactly those letters, named as `letter` takes it; one that does not exist is an error."""
        return Query(ids=tuple([(await self.find(id)).id for id in ids]))

    async def count(self, query: Query) -> int:
        await self._check(query)
        return await self.app.store.letters.count(query)


def _shown_of(message: Message, key: bytes) -> str:
    """What an unmasking shows, without it."""
    digest = digest_of_body(message.body, key)
    names = ", ".join(sorted({name for name, _ in message.headers})[:20])
    return f"body of {len(message.body):,} bytes, hmac-sha256 {digest}; headers {names or 'none'}"
