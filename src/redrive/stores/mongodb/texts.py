"""The index of texts: what is shown of each letter, in a collection of its own, with its pieces (stores/pieces.py).

    _id      LETTER/MARK
    letter   its id
    mark     `_store.mark` of the letter that the text was made of: it changes whenever what is written of it does
    rules    by which it was made
    text     what is shown
    pieces   of it, each in the index

A letter that has no text yet has `_store.unsearched`, and upkeep takes from there, the newest first, or a search before
it looks. Only a text with the mark of its letter counts: so neither an edit, a deletion, another process nor a kill in
between lets a letter be found by what it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from pymongo import ReplaceOne, UpdateOne

from redrive.forensics.query import Query
from redrive.forensics.searchable import DEFAULT, Searchable, folded
from redrive.model import Letter, LetterId
from redrive.stores.base import Cursor
from redrive.stores.mongodb.access import Access, Fields
from redrive.stores.mongodb.documents import MongoDocuments
from redrive.stores.mongodb.query import beyond, cursor_of, where
from redrive.stores.pieces import SHORTEST, SPAN, pieces, pieces_of_part

if TYPE_CHECKING:
    from redrive.stores.mongodb.letters import MongoLetters

_AT_ONCE = 1000  # letters that one search makes up for
_TOGETHER = 100
_FEW = 5000  # so many are named by their ids; of more, the newest are found by looking
_RARE = 50  # a piece that so few have is rare enough: others are not asked for
_WINDOWS = (500, 4500, 15_000)  # letters that are looked at for one page, in so many steps
_MARKED = 5000  # letters that get another mark at once
_PLACE = ("_store.created", "_store.seq")
_LAST = chr(0x10FFFF)
_RULES = ("texts", "rules")


class Texts:
    """Finds letters by what is shown of them."""

    def __init__(self, access: Access, letters: MongoLetters) -> None:
        self._access = access
        self._letters = letters
        self._documents = MongoDocuments(access)
        self._searchable = DEFAULT
        self._is_told = False
        self._is_current = False

    def search_as(self, searchable: Searchable) -> None:
        """Make texts by these rules; those that were made by others are made anew."""
        self._searchable, self._is_told, self._is_current = searchable, True, False

    async def named(self, query: Query, *, at_most: int | None = None) -> Query | None:
        """The query with its text as the ids of the letters that have it; None, if they are more than that."""
        await self._make(_AT_ONCE)
        text = folded(query.text or "")
        found = await self._having(text, None if at_most is None else min(at_most, _FEW))
        if found is None:
            return None
        ids = found if query.ids is None else found & set(query.ids)
        return replace(query, text=None, ids=tuple(ids))

    async def few(self, query: Query) -> Query | None:
        """The query with its text as ids, if few letters have it."""
        return await self.named(query, at_most=_FEW)

    async def look(
        self, query: Query, after: Cursor | None, limit: int, oldest_first: bool
    ) -> tuple[list[LetterId], Cursor | None]:
        """Letters with a text that many have, found by looking at one after the other, and where to look on. Past a
        bound it is a short page, or an empty one: the rest is on the next."""
        condition, text = where(replace(query, text=None)), folded(query.text or "")
        order = [(field, 1 if oldest_first else -1) for field in _PLACE]
        fields = dict.fromkeys((*_PLACE, "_store.mark"), 1)
        found: list[LetterId] = []
        for window in _WINDOWS:
            place = condition if after is None else {"$and": [condition, beyond(after, oldest_first, _PLACE)]}
            with self._access.translated_errors():
                looked_at = await self._access.letters.find(place, fields).sort(order).limit(window).to_list()
                having = await self._with_text(looked_at, text)
            for document in looked_at:
                after = cursor_of(document["_store"]["created"], document["_store"]["seq"])
                if document["_id"] in having:
                    found.append(document["_id"])
                    if len(found) == limit:
                        return found, after
            if len(looked_at) < window:
                return found, None
        return found, after

    async def index(self, most: int) -> int:
        """Make the texts of at most so many letters that have none; returns how many are left then."""
        await self._make(most)
        with self._access.translated_errors():
            return await self._access.letters.count_documents(_UNSEARCHED)

    async def _make(self, most: int) -> None:
        with self._access.translated_errors():
            await self._access.ready()
            if not self._is_current:
                self._is_current = await self._adopt()
            while most > 0 and self._is_current and await self._index():
                most -= _TOGETHER

    async def drop(self, documents: Sequence[Fields]) -> None:
        """Delete the texts of letters that are gone, or that are others now. One that is still to be made is not there;
        whoever makes it just now deletes it."""
        stores = [(document["_id"], document["_store"]) for document in documents]
        gone = [_name(id, store["mark"]) for id, store in stores if "mark" in store and "unsearched" not in store]
        if gone:
            await self._access.texts.delete_many({"_id": {"$in": gone}})

    async def _adopt(self) -> bool:
        """Whether our rules are those of the index; if we were told them, they are from now on. Texts that other rules
        made may show what is masked now: they count no more, and go. Where there were none, only letters that have no
        mark get one, so that two who begin at once do not undo each other's texts."""
        rules = self._searchable.rules
        known = await self._documents.get(*_RULES)
        body = {} if known is None else known.body
        if body == {"rules": rules, "is_whole": True}:
            return True
        if known is not None and not self._is_told and body["rules"] != rules:
            return False
        is_first = known is None or (body["rules"] == rules and body.get("is_first", False))
        await self._documents.put(*_RULES, {"rules": rules, "is_whole": False, "is_first": is_first})
        await self._mark_anew({**_LETTERS, "_store.mark": {"$exists": False}} if is_first else _LETTERS)
        await self._access.texts.delete_many({"rules": {"$ne": rules}})
        await self._documents.put(*_RULES, {"rules": rules, "is_whole": True})
        return True

    async def _mark_anew(self, letters: Fields) -> None:
        """Let these letters have no text, some thousand at a time: who writes waits for none of them."""
        change = [{"$set": {"_store.mark": self._letters.token(), "_store.unsearched": "$_store.seq"}}]
        last: Any = ""
        while True:
            beyond_last = {"_id": {"$gt": last}}
            some = self._access.letters.find(beyond_last, {"_id": 1}).sort("_id", 1).limit(_MARKED)
            ids = [document["_id"] async for document in some]
            if not ids:
                return
            last = ids[-1]
            await self._access.letters.update_many({"_id": {"$gte": ids[0], "$lte": last}, **letters}, change)

    async def _index(self) -> bool:
        """Make some texts; returns whether there were letters without."""
        letters = await self._letters.unsearched(_TOGETHER)
        if not letters:
            return False
        searchable = self._searchable
        texts = await asyncio.to_thread(lambda: [_document(mark, letter, searchable) for mark, letter in letters])
        await self._access.texts.bulk_write([ReplaceOne({"_id": text["_id"]}, text, upsert=True) for text in texts])
        known = await self._documents.get(*_RULES)
        self._is_current = known is not None and known.body["rules"] == searchable.rules
        if self._is_current:
            done = [UpdateOne(_of(text), {"$unset": {"_store.unsearched": 1}}) for text in texts]
            await self._access.letters.bulk_write(done, ordered=False)
        await self._drop_outdated(texts)
        return True

    async def _drop_outdated(self, texts: Sequence[Fields]) -> None:
        """Delete those of the texts whose letter is gone, or another one by now, or that nobody may read any more."""
        counting = await self._counting({text["letter"] for text in texts}) if self._is_current else set()
        outdated = [text["_id"] for text in texts if text["_id"] not in counting]
        if outdated:
            await self._access.texts.delete_many({"_id": {"$in": outdated}})

    async def _having(self, text: str, most: int | None) -> set[LetterId] | None:
        """The letters with that text; None if they are more than that, or if the text is too short to say so."""
        if most is not None and len(text) < SHORTEST:
            return None
        wanted = [{"pieces": await self._rarest(text)} if len(text) >= SPAN else _begins(text)]
        if len(text) > SPAN:
            wanted.append(_has(text))
        found = self._access.texts.find({"$and": wanted}, {"letter": 1}).limit(0 if most is None else most + 1)
        names: set[str] = set()
        letters: set[LetterId] = set()
        with self._access.translated_errors():
            async for document in found:
                names.add(document["_id"])
                letters.add(document["letter"])
            if most is not None and len(names) > most:
                return None
            return {name.rpartition("/")[0] for name in names & await self._counting(letters)}

    async def _rarest(self, text: str) -> str:
        """The piece of a text that the fewest letters have, as far as that is worth asking for."""
        counts: dict[str, int] = {}
        for piece in pieces_of_part(text)[:_RARE]:
            command = {"count": self._access.texts.name, "query": {"pieces": piece}, "limit": _FEW + 1}
            with self._access.translated_errors():
                counts[piece] = (await self._access.texts.database.command(command))["n"]
            if counts[piece] <= _RARE:
                break
        return min(counts, key=lambda piece: counts[piece])

    async def _counting(self, letters: set[LetterId]) -> set[str]:
        """The names of the texts that count now, of these letters."""
        names: set[str] = set()
        for some in _parts(list(letters)):
            found = self._access.letters.find({"_id": {"$in": some}}, {"_store.mark": 1})
            names |= {_name(document["_id"], document["_store"].get("mark", "")) async for document in found}
        return names

    async def _with_text(self, documents: Sequence[Fields], text: str) -> set[LetterId]:
        """Those of the letters that have the text."""
        names = [_name(document["_id"], document["_store"].get("mark", "")) for document in documents]
        having: set[LetterId] = set()
        for some in _parts(names):
            found = self._access.texts.find({"$and": [{"_id": {"$in": some}}, _has(text)]}, {"letter": 1})
            having |= {document["letter"] async for document in found}
        return having


_LETTERS: Fields = {"_store.seq": {"$exists": True}}  # others may keep documents there, too
_UNSEARCHED: Fields = {"_store.unsearched": {"$exists": True}}


async def unsearched(access: Access, limit: int) -> AsyncIterator[Fields]:
    """Letters whose text is still to be made, the newest first: they are what people look for."""
    async for document in access.letters.find(_UNSEARCHED).sort("_store.unsearched", -1).limit(limit):
        yield document


def _document(mark: str, letter: Letter, searchable: Searchable) -> Fields:
    text = searchable.text(letter)
    of = {"_id": _name(letter.id, mark), "letter": letter.id, "mark": mark}
    return {**of, "rules": searchable.rules, "text": text, "pieces": pieces(text)}


def _name(letter: LetterId, mark: str) -> str:
    return f"{letter}/{mark}"


def _of(text: Fields) -> Fields:
    """The letter that a text was made of, as it was."""
    return {"_id": text["letter"], "_store.mark": text["mark"]}


def _has(text: str) -> Fields:
    return {"$expr": {"$gte": [{"$indexOfBytes": ["$text", {"$literal": text}]}, 0]}}


def _begins(text: str) -> Fields:
    """The condition that a piece begins so: one of them, not one that is not before and another that is not after."""
    return {"pieces": {"$elemMatch": {"$gte": text, "$lt": text + _LAST * SPAN}}} if text else {}


def _parts(items: list[str]) -> list[list[str]]:
    return [items[start : start + _FEW] for start in range(0, len(items), _FEW)]
