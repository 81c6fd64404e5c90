"""Reads letters: by id, along an index, and by query in the order of a search."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Collection, Iterable

from msgspec.structs import replace

from redrive.drivers.redis import Value
from redrive.forensics.query import Query, matches
from redrive.forensics.searchable import DEFAULT
from redrive.model import LetterId, letter_id
from redrive.stores.redis.access import Access
from redrive.stores.redis.codec import Found, found
from redrive.stores.redis.index import Index, is_answered, narrow_index, needs_documents, wide_index
from redrive.stores.scoped import within

Place = tuple[int, int]
Row = tuple[LetterId, bytes | None, bytes | None, bytes | None]  # id, head, document, entry
_BATCH = 500
_SCANNED = 10_000  # ids that the server looks at before others have their turn
_SEQ = 5  # bytes of a member that are its seq (lua/letters.lua)
_FEW = 2000  # so many are sorted here; more are read in order from a wide index


class Reader:
    """Reads letters. What is read with its head can be changed by `swap`, if nobody was faster."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self.searchable = DEFAULT

    async def load(self, ids: Iterable[LetterId], *, documents: bool) -> list[Found]:
        """The letters of these ids that exist."""
        letters: list[Found] = []
        left = list(dict.fromkeys(ids))
        while left:
            keys = [id.encode("utf-8", "replace") for id in left[:_BATCH]]
            reply = await self._access.on_letters("load", int(documents), *keys)
            some, left = left[: len(reply) // 3], left[len(reply) // 3 :]
            letters += await self._there(documents, zip(some, reply[::3], reply[1::3], reply[2::3], strict=True))
        return letters

    async def pages(
        self,
        index: Index,
        *,
        ascending: bool,
        documents: bool,
        after: Place | None = None,
        batch: int = _BATCH,
    ) -> AsyncIterator[list[Found]]:
        """Every letter of an index, in its order, some at a time; each time more of them."""
        more, ends = True, (index.least, index.greatest)
        place: tuple[Value, Value] = ("", "") if after is None else after
        while more:
            reply = await self._access.on_letters(
                "page", int(ascending), *ends, *place, batch, int(documents), index.packed
            )
            more, rows = bool(reply[0]), reply[1:]
            if rows:
                place = (rows[-4], int.from_bytes(rows[-5][:_SEQ], "big"))
                ids = [member[_SEQ:].decode() for member in rows[::5]]
                yield await self._there(documents, zip(ids, rows[2::5], rows[3::5], rows[4::5], strict=True))
            batch = max(batch, min(batch * 2, _BATCH))

    async def selected(
        self,
        query: Query,
        *,
        oldest_first: bool,
        documents: bool = False,
        after: Place | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[list[Found]]:
        """The letters that the query selects, in the order of a search, some at a time."""
        needed = needs_documents(query)
        batch = max(1, min(limit or _BATCH, _BATCH))
        if (ids := await self._named(query)) is not None:
            letters = await self.load(ids, documents=documents or needed)
            rest = replace(query, message_ids=None)  # they are in the ids: a head does not tell them
            yield _ordered(
                [stored for stored in letters if matches(rest, stored.letter, self.searchable)], oldest_first, after
            )
        elif (few := await self._few(query, needed, limit)) is not None:
            ordered = _ordered(few, oldest_first, after)
            for start in range(0, len(ordered), batch):
                yield await self._whole(query, ordered[start : start + batch], documents and not needed)
        else:
            at_once = needed or (documents and is_answered(query))
            pages = self.pages(wide_index(query), ascending=oldest_first, documents=at_once, after=after, batch=batch)
            async for some in pages:
                chosen = [stored for stored in some if matches(query, stored.letter, self.searchable)]
                yield await self._whole(query, chosen, documents and not at_once)

    async def _whole(self, query: Query, letters: list[Found], documents: bool) -> list[Found]:
        """The same letters with their documents, if the query needs them; one that changed meanwhile may drop out."""
        if not documents or not letters:
            return letters
        whole = await self.load([stored.id for stored in letters], documents=True)
        return [stored for stored in whole if matches(query, stored.letter, self.searchable)]

    async def within(self, query: Query) -> Query:
        """The query with its scope as sources and tenants."""
        return await within(query, self.sources, self._tenants)

    async def _tenants(self) -> set[str]:
        """Every tenant that has letters. There is no list of them: the heads are looked at."""
        tenants: set[str] = set()
        async for some in self.pages(wide_index(Query()), ascending=True, documents=False):
            tenants |= {stored.head.tenant for stored in some if isinstance(stored.head.tenant, str)}
        return tenants

    async def sources(self) -> set[str]:
        """Every source that has letters."""
        fields = await self._access.command("HKEYS", f"{self._access.letters}:counts")
        return {field.split(b":", 2)[2].decode() for field in fields}

    async def _few(self, query: Query, documents: bool, limit: int | None) -> list[Found] | None:
        """All that the query selects, if it asks for what only few letters have; otherwise None."""
        index = narrow_index(query)
        if index is None:
            return None
        chosen: dict[LetterId, Found] = {}
        async for some in self.pages(index, ascending=True, documents=documents):
            chosen |= {stored.id: stored for stored in some if matches(query, stored.letter, self.searchable)}
            if limit is not None and len(chosen) > _FEW:
                return None
        return list(chosen.values())

    async def _named(self, query: Query) -> Collection[LetterId] | None:
        """The ids that a query names, by themselves, by their beginning or by their messages."""
        named: list[set[LetterId]] = []
        if query.ids is not None:
            named.append(set(query.ids))
        if query.message_ids is not None:
            sources = await self.sources()
            named.append({letter_id(source, id) for source in sources for id in query.message_ids})
        if not named and query.id_prefix:
            named.append(await self._beginning(query.id_prefix))
        return set.intersection(*named) if named else None

    async def _beginning(self, prefix: str) -> set[LetterId]:
        """The ids with that beginning. There is no index of ids: the server looks at all of them."""
        pattern = re.sub(r"([*?\[\]\\^])", r"\\\1", prefix) + "*"
        ids: set[LetterId] = set()
        cursor = None
        while cursor != 0:
            scan = (
                "HSCAN",
                f"{self._access.letters}:heads",
                cursor or 0,
                "MATCH",
                pattern.encode("utf-8", "replace"),
                "COUNT",
                _SCANNED,
            )
            cursor, heads = await self._access.command(*scan)
            ids |= {id.decode() for id in heads}
        return ids

    async def _there(self, documents: bool, rows: Iterable[Row]) -> list[Found]:
        """The letters that exist. One whose entry somebody took has a head but no document, and is forgotten here."""
        letters: list[Found] = []
        taken: list[tuple[str, bytes]] = []
        for id, raw, document, entry in rows:
            if raw is not None and (document is not None or not documents):
                letters.append(found(id, raw, document, entry))
            elif raw is not None:
                taken.append((id, raw))
        if taken:
            parts = (part for id, raw in taken for part in (id, raw, b"", b"", b"", b""))
            await self._access.on_letters("swap", len(taken), *parts)
        return letters


def _ordered(letters: Iterable[Found], oldest_first: bool, after: Place | None) -> list[Found]:
    kept = sorted(letters, key=lambda stored: stored.head.place, reverse=not oldest_first)
    if after is None:
        return kept
    return [stored for stored in kept if (stored.head.place > after if oldest_first else stored.head.place < after)]
