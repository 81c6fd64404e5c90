"""Letters with a text, found one by one: for a store that keeps no index of what is shown of a letter.

Every letter that the rest of the query selects is looked at in the same way, whatever is in it: how long a search takes
says nothing about what is masked. For one page a bounded number is looked at; it may be short then, or empty, and the
next one goes on from there. Who counts, or acts on, letters with a text has all of them looked at.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec.structs import replace

from redrive.forensics.query import Query
from redrive.forensics.searchable import Searchable
from redrive.model import Letter, LetterId
from redrive.stores.base import Cursor, Letters, Page

_TOGETHER = 200
_AT_MOST = 2000  # letters that are looked at for one page


async def named(letters: Letters, query: Query, searchable: Searchable) -> Query:
    """The query with its text as the ids of the letters that have it."""
    if query.text is None:
        return query
    rest = replace(query, text=None)
    return replace(rest, ids=tuple(await _found(letters, query, searchable))) if query.text else rest


async def page_of(
    letters: Letters, query: Query, searchable: Searchable, after: Cursor | None, limit: int, oldest_first: bool
) -> Page:
    """One page of the letters with a text: no more of them are looked at than it takes, nor than _AT_MOST."""
    found: list[LetterId] = []
    rest, wanted = replace(query, text=None), query.text or ""
    for _ in range(_AT_MOST // _TOGETHER):
        page = await letters.search(rest, after=after, limit=_TOGETHER, oldest_first=oldest_first)
        found += await _having(page.letters, wanted, searchable)
        after = page.after
        if len(found) >= limit or after is None:
            break
    shown = await letters.search(Query(ids=tuple(found[:limit])), limit=limit, oldest_first=oldest_first)
    return Page(shown.letters, shown.after if len(found) >= limit else after)


async def _found(letters: Letters, query: Query, searchable: Searchable) -> list[LetterId]:
    found: list[LetterId] = []
    rest, after = replace(query, text=None), None
    while True:
        page = await letters.search(rest, after=after, limit=_TOGETHER, oldest_first=True)
        found += await _having(page.letters, query.text or "", searchable)
        after = page.after
        if after is None:
            return found


async def _having(letters: Sequence[Letter], text: str, searchable: Searchable) -> list[LetterId]:
    """Those of the letters that have the text. Redaction is work for a thread: others are served meanwhile."""
    return await asyncio.to_thread(lambda: [letter.id for letter in letters if searchable.has(text, letter)])
