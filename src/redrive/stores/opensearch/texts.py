"""The index of texts: what is shown of each letter, beside it in its own document, with its pieces (stores/pieces.py).

    shown      what is shown, as a value that a script can look into
    pieces     of it, each a term
    shown_by   the rules by which it was made; a letter that was written anew, or by no rules yet, has none

Upkeep makes them after the letter is recorded, the newest first, and a search makes up for what came since. They stay
as long as the letter is only claimed and moved (fields.py); a write over it without them lets them be made again.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from redrive.forensics.query import Query
from redrive.forensics.searchable import DEFAULT, Searchable, folded
from redrive.model import Letter
from redrive.stores.base import Cursor, Page
from redrive.stores.opensearch.access import OK, Action, Json, Op
from redrive.stores.opensearch.fields import Held, letter_in, shown_in
from redrive.stores.opensearch.query import by_age, cursor_of, position, selected
from redrive.stores.pieces import SHORTEST, SPAN, pieces, pieces_of_part

if TYPE_CHECKING:
    from redrive.stores.opensearch.documents import OpenSearchDocuments
    from redrive.stores.opensearch.letters import OpenSearchLetters

_AT_ONCE = 1000  # letters that one search makes up for
_TOGETHER = 200
_LOOKED_AT = 5000  # letters that are looked at for one page
_PIECES = 50  # of a text that is looked for: more do not name fewer letters
_RULES = ("texts", "rules")
_HAS_TEXT = """
def shown = doc['redrive.shown'];
return shown.size() > 0 && shown.get(0).utf8ToString().contains(params.text);
"""


class Texts:
    """Finds letters by what is shown of them."""

    def __init__(self, letters: OpenSearchLetters, documents: OpenSearchDocuments) -> None:
        self._letters = letters
        self._documents = documents
        self._searchable = DEFAULT
        self._is_told = False
        self._rules: str | None = None  # by which texts are made and found now

    def search_as(self, searchable: Searchable) -> None:
        """Make texts by these rules; those that were made by others count no more, and are made anew."""
        self._searchable, self._is_told, self._rules = searchable, True, None

    async def selected(self, query: Query, *more: Json) -> Json:
        """The search for exactly what the query selects, its text included."""
        if not query.text:
            return selected(query, *more)
        await self._make(_AT_ONCE)
        text = folded(query.text)
        exactly = [] if SHORTEST <= len(text) <= SPAN else [_has(text)]
        return selected(replace(query, text=None), *self._clauses(text), *exactly, *more)

    async def page(self, query: Query, after: Cursor | None, limit: int, oldest_first: bool) -> Page:
        """A page of letters with a text. Those with its pieces are looked at one after the other, no more of them than
        is bearable: past that it is a short page, or an empty one, and the rest is on the next."""
        place = None if after is None else position(after)
        await self._make(_AT_ONCE)
        text = folded(query.text or "")
        body = {
            "query": selected(replace(query, text=None), *self._clauses(text)),
            "sort": by_age(oldest_first=oldest_first),
        }
        found: list[Letter] = []
        looked_at = 0
        async for hits in self._letters.pages(body, size=max(limit, _TOGETHER), after=place):
            for hit in hits:
                looked_at, after = looked_at + 1, cursor_of(hit["sort"])
                if text in shown_in(hit):
                    found.append(letter_in(hit, self._letters.shape))
                if len(found) == limit or looked_at == _LOOKED_AT:
                    return Page(tuple(found), after)
        return Page(tuple(found), None)

    async def index(self, most: int) -> int:
        """Make the texts of at most so many letters that have none; returns how many are left then."""
        await self._make(most)
        return await self._letters.count_of(selected(Query(), self._unsearched()))

    async def _make(self, most: int) -> None:
        if self._rules is None:
            self._rules = await self._adopt()
        while most > 0 and await self._index():
            most -= _TOGETHER

    async def _adopt(self) -> str:
        """The rules of the index: ours, if we were told them."""
        known = await self._documents.get(*_RULES)
        if known is not None and not self._is_told:
            return str(known.body["rules"])
        if known is None or known.body["rules"] != self._searchable.rules:
            await self._documents.put(*_RULES, {"rules": self._searchable.rules})
        return self._searchable.rules

    async def _index(self) -> bool:
        """Make some texts; returns whether there may be more to make."""
        if self._rules != self._searchable.rules:
            return False
        body = {"query": selected(Query(), self._unsearched()), "sort": by_age(oldest_first=False)}
        async for some in self._letters.held_pages(body, limit=_TOGETHER):
            known = await self._documents.get(*_RULES)
            if known is not None and known.body["rules"] != self._rules:
                self._rules = str(known.body["rules"])  # somebody was told others meanwhile, who makes the texts now
                return False
            actions = await asyncio.to_thread(lambda some=some: [self._made(held) for held in some])  # type: ignore[misc]
            statuses = await self._letters.write(actions)
            return any(status in OK for status in statuses)
        return False

    def _made(self, held: Held) -> Action:
        """The write of a letter's text beside it, if the letter is still as it was read."""
        text = self._searchable.text(held.letter)
        fields = {"shown": as_value(text), "pieces": pieces(text), "shown_by": _name(self._searchable.rules)}
        return Action(Op.UPDATE, held.letter.id, msgspec.json.encode({"doc": {"redrive": fields}}), held.version)

    def _clauses(self, text: str) -> list[Json]:
        """What every letter with that text meets, and few others, as far as the index can tell."""
        current = {"term": {"redrive.shown_by": _name(self._rules or "")}}
        if len(text) < SHORTEST:
            return [current]
        if len(text) < SPAN:
            return [current, {"prefix": {"redrive.pieces": text}}]
        return [current, *({"term": {"redrive.pieces": piece}} for piece in pieces_of_part(text)[:_PIECES])]

    def _unsearched(self) -> Json:
        """The clause of letters that have no text by our rules."""
        return {"bool": {"must_not": [{"term": {"redrive.shown_by": _name(self._rules or "")}}]}}


def as_value(text: str) -> str:
    """A text as a binary field takes it."""
    return b64encode(text.encode()).decode()


def _name(rules: str) -> str:
    return rules or "default"  # the cluster takes no empty term for a value that is there


def _has(text: str) -> Json:
    return {"script": {"script": {"source": _HAS_TEXT, "params": {"text": text}}}}
