"""The index of texts: trigrams of what is shown of each letter.

It is made after the letter is recorded: by upkeep, a batch after the other, and before a search for what came since.
So a letter is found as soon as it is recorded, unless more wait than one search makes up for (_AT_ONCE), as in a file
that was made before there was an index: those are found when their turn has come.

Texts are made and looked for in the threads of searches: neither who writes nor who reads a page waits for one, and a
search ends when nobody waits for it any more.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from redrive.drivers.sqlite.database import clauses
from redrive.forensics.query import Query
from redrive.forensics.searchable import DEFAULT, Searchable, folded
from redrive.model import LetterId
from redrive.stores.base import Cursor
from redrive.stores.sqlite.access import Access, as_json
from redrive.stores.sqlite.query import TRIGRAM, cursor_of, ordered, phrase

if TYPE_CHECKING:
    from redrive.stores.sqlite.letters import SqliteLetters

_SQL = clauses(__package__, "texts")
_AT_ONCE = 1000  # letters that one search makes up for
_TOGETHER = 50  # in one transaction: nobody else writes meanwhile
_FEW = 5000  # so many are named by their ids; of more, the newest are found by looking
_WINDOWS = (500, 4500, 15_000)  # letters that are looked at for one page, in so many steps

Made = tuple[int, int, str]
"""The seq of a letter, the mark that it had in `unsearched`, and its text."""


class Texts:
    """Finds letters by what is shown of them."""

    def __init__(self, access: Access, letters: SqliteLetters) -> None:
        self._access = access
        self._letters = letters
        self._searchable = DEFAULT
        self._is_told = False
        self._is_current = False

    def search_as(self, searchable: Searchable) -> None:
        """Make texts by these rules; those that were made by others are made anew."""
        self._searchable, self._is_told, self._is_current = searchable, True, False

    async def plain(self, query: Query) -> Query:
        """The query with its scope as sources and tenants, and its text as ids, if few letters have it."""
        query = await self._access.within(query)
        if not query.text:
            return query
        await self.index(_AT_ONCE)
        found = await self._having(folded(query.text))
        if found is None:
            return query
        return replace(query, text=None, ids=tuple(found if query.ids is None else found & set(query.ids)))

    async def count(self, text: str) -> int:
        """How many letters have a text that the index can answer."""
        parameters = {"phrase": phrase(text)}
        return await self._access.read(
            lambda connection: int(connection.execute(_SQL["count"], parameters).fetchone()[0]), is_search=True
        )

    async def look(
        self, query: Query, after: Cursor | None, limit: int, oldest_first: bool
    ) -> tuple[list[int], Cursor | None]:
        """The seqs of letters with a text that many have, found by looking at one after the other, and where to look
        on. Past a bound it is a short page, or an empty one: the rest is on the next."""
        text, rest = {"text": folded(query.text or "")}, replace(query, text=None)

        def work(connection: sqlite3.Connection) -> tuple[list[int], Cursor | None]:
            found: list[int] = []
            place = after
            for window in _WINDOWS:
                select, parameters = ordered(rest, place, window, oldest_first)
                statement = _SQL["looked_at"].replace("{ordered}", select)
                rows = connection.execute(statement, {**parameters, **text}).fetchall()
                for created_at, seq, has in rows:
                    place = cursor_of(created_at, seq)
                    if has:
                        found.append(seq)
                        if len(found) == limit:
                            return found, place
                if len(rows) < window:
                    return found, None
            return found, place

        return await self._access.read(work, is_search=True)

    async def index(self, most: int) -> int:
        """Make the texts of at most so many letters that have none; returns how many are left then."""
        if not self._is_current:
            self._is_current = await self._access.write(self._adopt)
        while most > 0 and self._is_current:
            made = await self._access.read(self._made, is_search=True)
            if not made:
                break
            await self._access.write(lambda connection, made=made: self._write(connection, made))  # type: ignore[misc]
            most -= _TOGETHER
        rows = await self._access.read(lambda connection: connection.execute(_SQL["left"]).fetchone())
        return int(rows[0])

    def _adopt(self, connection: sqlite3.Connection) -> bool:
        """Whether our rules are those of the index; if we were told them, they are from now on. Texts that other rules
        made may show what is masked now, so none of them stays."""
        (rules,) = connection.execute(_SQL["rules"]).fetchone()
        if rules != self._searchable.rules and self._is_told:
            for name in ("forget", "begin_anew", "all_anew"):
                connection.execute(_SQL[name])
            connection.execute(_SQL["adopt"], (self._searchable.rules,))
            return True
        return bool(rules == self._searchable.rules)

    def _made(self, connection: sqlite3.Connection) -> list[Made]:
        """The texts of some letters that have none."""
        letters = self._letters.unsearched(connection, _TOGETHER)
        return [(seq, mark, self._searchable.text(letter)) for seq, mark, letter in letters]

    def _write(self, connection: sqlite3.Connection, made: Sequence[Made]) -> None:
        (rules,) = connection.execute(_SQL["rules"]).fetchone()
        if rules != self._searchable.rules:  # somebody else has other rules now
            self._is_current = False
            return
        for seq, mark, text in made:
            if connection.execute(_SQL["done"], (seq, mark)).rowcount:
                connection.execute(_SQL["delete"], (seq,))
                connection.execute(_SQL["insert"], (seq, text))

    async def _having(self, text: str) -> set[LetterId] | None:
        """The letters with that text; None if they are many, or the text is too short for the index."""
        if len(text) < TRIGRAM:
            return None
        parameters = {"phrase": phrase(text), "limit": _FEW + 1}

        def work(connection: sqlite3.Connection) -> set[LetterId] | None:
            seqs = [seq for (seq,) in connection.execute(_SQL["having"], parameters)]
            if len(seqs) > _FEW:
                return None
            return {id for (id,) in connection.execute(_SQL["ids"], (as_json(map(str, seqs)),))}

        return await self._access.read(work, is_search=True)
