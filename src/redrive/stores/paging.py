"""Reads all that a query selects, a page at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from redrive.forensics.query import Query
from redrive.model import Letter
from redrive.stores.base import Letters

_PAGE = 500


async def every_page(
    letters: Letters, query: Query, *, limit: int | None = None, size: int = _PAGE, oldest_first: bool = False
) -> AsyncIterator[Sequence[Letter]]:
    """The letters that the query selects, at most `limit`, in pages of `size`; an empty page is left out.

    A page is read when the one before was dealt with, and from where that one ended: whoever moves or deletes the
    letters of a page neither misses nor repeats another. One that dies again meanwhile is the newest then: read the
    oldest first where none may be missed.
    """
    after, left = None, limit
    while left is None or left > 0:
        page = await letters.search(
            query, after=after, limit=size if left is None else min(size, left), oldest_first=oldest_first
        )
        if page.letters:
            yield page.letters
        after, left = page.after, None if left is None else left - len(page.letters)
        if after is None:
            return


async def every_letter(
    letters: Letters, query: Query, *, limit: int | None = None, size: int = _PAGE, oldest_first: bool = False
) -> AsyncIterator[Letter]:
    """The letters that the query selects, at most `limit`; they are read in pages of `size`."""
    async for page in every_page(letters, query, limit=limit, size=size, oldest_first=oldest_first):
        for letter in page:
            yield letter
