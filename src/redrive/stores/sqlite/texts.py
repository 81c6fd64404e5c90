"""The index of texts: trigrams of what is shown of each letter.

It is made after the letter is recorded: by upkeep, a batch after the other, and before a search for what came since.
So a letter is found as soon as it is recorded, unless more wait than one search makes up for (_AT_ONCE), as in a file
that was made before there was an index: those are found when their turn has come.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from msgspec.structs import replace

from redrive.drivers.sqlite.database import clauses
from redrive.forensics.query import Query
from redrive.forensics.searchable import DEFAULT, Searchable, folded
from redrive.model import LetterId
from redrive.stores.sqlite.access import Access

if TYPE_CHECKING:
    from redrive.stores.sqlite.letters import SqliteLetters

_SQL = clauses(__package__, "texts")
_AT_ONCE = 1000  # letters that one search makes up for
_TOGETHER = 50  # in one transaction: nobody else writes meanwhile
_FEW = 5000  # so many are named by their ids; of more, the newest are found by looking
_TRIGRAM = 3


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

    async def index(self, most: int) -> int:
        """Make the texts of at most so many letters that have none; returns how many are left then."""
        if not self._is_current:
            self._is_current = await self._access.write(self._adopt)
        while most > 0 and self._is_current and await self._access.write(self._index):
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

    def _index(self, connection: sqlite3.Connection) -> bool:
        letters = self._letters.unsearched(connection, _TOGETHER)
        if not letters:
            return False
        (rules,) = connection.execute(_SQL["rules"]).fetchone()
        if rules != self._searchable.rules:  # somebody else has other rules now
            self._is_current = False
            return False
        connection.executemany(_SQL["delete"], [(seq,) for seq, _ in letters])
        connection.executemany(_SQL["insert"], [(seq, self._searchable.text(letter)) for seq, letter in letters])
        connection.executemany(_SQL["done"], [(seq,) for seq, _ in letters])
        return True

    async def _having(self, text: str) -> set[LetterId] | None:
        """The letters with that text; None if they are many, or the text is too short for the index."""
        if len(text) < _TRIGRAM:
            return None
        phrase = '"' + text.replace('"', '""') + '"'
        parameters = {"phrase": phrase, "text": text, "limit": _FEW + 1}
        rows = await self._access.read(
            lambda connection: connection.execute(_SQL["having"], parameters).fetchall(), is_search=True
        )
        return None if len(rows) > _FEW else {id for (id,) in rows}
