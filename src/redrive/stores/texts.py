"""Letters with a text, found one by one: for a store that keeps no index of what is shown of a letter.

Every letter that the rest of the query selects is looked at in the same way, whatever is in it: how long a search takes
says nothing about what is masked.
"""

from __future__ import annotations

from msgspec.structs import replace

from redrive.forensics.query import Query
from redrive.forensics.searchable import Searchable
from redrive.model import LetterId
from redrive.stores.base import Cursor, Letters, Page

_TOGETHER = 200


async def named(letters: Letters, query: Query, searchable: Searchable) -> Query:
    """The query with its text as the ids of the letters that have it."""
    if query.text is None:
        return query
    rest = replace(query, text=None)
    return replace(rest, ids=tuple(await _found(letters, query, searchable, None, None, True))) if query.text else rest


async def page_of(
    letters: Letters, query: Query, searchable: Searchable, after: Cursor | None, limit: int, oldest_first: bool
) -> Page:
    """One page of the letters with a text: no more of them are looked at than it takes."""
    ids = await _found(letters, query, searchable, after, limit, oldest_first)
    return await letters.search(Query(ids=tuple(ids)), limit=limit, oldest_first=oldest_first)


async def _found(
    letters: Letters,
    query: Query,
    searchable: Searchable,
    after: Cursor | None,
    limit: int | None,
    oldest_first: bool,
) -> list[LetterId]:
    found: list[LetterId] = []
    rest, wanted = replace(query, text=None), query.text or ""
    while limit is None or len(found) < limit:
        page = await letters.search(rest, after=after, limit=_TOGETHER, oldest_first=oldest_first)
        found += [letter.id for letter in page.letters if searchable.has(wanted, letter)]
        after = page.after
        if after is None:
            break
    return found[:limit]
