"""The index of texts: what is shown of each letter, in a table of its own with trigrams (pg_trgm).

A text is made after its letter is recorded: by upkeep, batch after batch, and before a search for what came since.
So a letter is found as soon as it is recorded, unless more wait than one search makes up for (_AT_ONCE), as in a
database that was made before there was an index: those are found when their turn has come. No lock is held while texts
are made; one that another process has outdated meanwhile is not written (sql/write_texts.sql).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from redrive.drivers.postgresql.link import rows
from redrive.drivers.postgresql.pool import Connection
from redrive.drivers.postgresql.trust import Doubt
from redrive.forensics.query import Query
from redrive.forensics.searchable import DEFAULT, Searchable, folded
from redrive.model import Letter, LetterId
from redrive.stores.base import Cursor
from redrive.stores.postgresql.access import Access
from redrive.stores.postgresql.query import beyond, cursor_of, in_order, pattern

if TYPE_CHECKING:
    from redrive.stores.postgresql.letters import PostgresLetters

_AT_ONCE = 1000  # letters that one search makes up for
_TOGETHER = 100
_FEW = 5000  # so many are named by their ids; of more, the newest are found by looking
_WINDOWS = (500, 4500, 15_000)  # letters that are looked at for one page, in so many steps
_TRIGRAM = 3
_MAKING = 3600.0  # seconds


class Texts:
    """Finds letters by what is shown of them."""

    def __init__(self, access: Access, letters: PostgresLetters) -> None:
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
        found = await self._having(query.text)
        if found is None:
            return query
        return replace(query, text=None, ids=tuple(found if query.ids is None else found & set(query.ids)))

    async def look(
        self, query: Query, after: Cursor | None, limit: int, oldest_first: bool
    ) -> tuple[list[LetterId], Cursor | None]:
        """Letters with a text that many have, found by looking at one after the other, and where to look on. Past a
        bound it is a short page, or an empty one: the rest is on the next."""
        condition = in_order(replace(query, text=None))
        found: list[LetterId] = []
        for window in _WINDOWS:
            place = beyond(after, oldest_first)
            more = {"text": pattern(query.text or ""), "limit": window}
            looked_at = await self._access.fetch(
                self._access.sql(
                    "looked_at",
                    keys=condition.keys,
                    where=condition.sql + place.sql,
                    way="ASC" if oldest_first else "DESC",
                ),
                {**condition.parameters, **place.parameters, **more},
            )
            for created_at, seq, id, has in looked_at:
                after = cursor_of(created_at, seq)
                if has:
                    found.append(id)
                    if len(found) == limit:
                        return found, after
            if len(looked_at) < window:
                return found, None
        return found, after

    async def index(self, most: int) -> int:
        """Make the texts of at most so many letters that have none; returns how many are left then."""
        if not self._is_current:
            self._is_current = await self._access.run(self._adopt)
        while most > 0 and self._is_current and await self._index():
            most -= _TOGETHER
        [[left]] = await self._access.fetch(self._access.sql("left"), {})
        return int(left)

    async def make_index(self) -> None:
        """Make the index of texts if it is not there and the extension pg_trgm can be had; else nothing happens."""
        if not await self.has_index():
            await self._access.fetch(self._access.sql("index_texts"), {}, patience=_MAKING)

    async def has_index(self) -> bool:
        """Whether texts are found by an index, or there are no tables yet."""
        found = await self._access.fetch(self._access.sql("has_index"), {})
        return all(made for (made,) in found)

    async def _adopt(self, connection: Connection) -> bool:
        """Whether our rules are those of the index; if we were told them, they are from now on. Texts that other rules
        made may show what is masked now, so none of them stays."""
        rules = {"rules": self._searchable.rules}
        if self._is_told:
            if await rows(connection, self._access.sql("adopt_rules"), rules):
                await rows(connection, self._access.sql("forget_texts"))
                await rows(connection, self._access.sql("all_unsearched"))
            return True
        [[now]] = await rows(connection, self._access.sql("rules_now"))
        return bool(now == self._searchable.rules)

    async def _index(self) -> bool:
        """Make some texts; returns whether there were letters without."""
        letters = await self._letters.unsearched(_TOGETHER)
        if not letters:
            return False
        searchable = self._searchable
        texts = await asyncio.to_thread(lambda: [searchable.text(letter) for _, letter in letters])
        self._is_current = await self._access.run(lambda connection: self._write(connection, letters, texts))
        return True

    async def _write(self, connection: Connection, letters: Sequence[tuple[int, Letter]], texts: Sequence[str]) -> bool:
        """Write texts; returns whether our rules are those of the index still."""
        [[rules]] = await rows(connection, self._access.sql("rules"))
        if rules != self._searchable.rules:
            return False
        made = sorted(zip(letters, texts, strict=True), key=lambda pair: pair[0][1].id)
        parameters = {
            "ids": [letter.id for (_, letter), _ in made],
            "marks": [mark for (mark, _), _ in made],
            "texts": [text for _, text in made],
        }
        await rows(connection, self._access.sql("write_texts"), parameters)
        return True

    async def _having(self, text: str) -> set[LetterId] | None:
        """The letters with that text; None if they are many, or the text is too short for the index."""
        if len(folded(text)) < _TRIGRAM:
            return None
        parameters = {"text": pattern(text), "limit": _FEW + 1}
        found = await self._access.fetch(self._access.sql("having"), parameters)
        return None if len(found) > _FEW else {id for (id,) in found}


NO_INDEX = Doubt(
    "has no index of texts: a search for a text reads the texts of all letters",
    "as the owner of the database or a superuser: `CREATE EXTENSION pg_trgm`; upkeep makes the index then",
    is_failure=False,
)
