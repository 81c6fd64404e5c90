"""A scope as the sources and tenants that it reaches, which every index knows how to find.

The patterns are read in one place, here, and by no database: what `[`, `%`, `_` or `*` mean in its own language has no
say in who sees what.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import lru_cache
from typing import Protocol

from msgspec.structs import replace

from redrive.forensics.query import Query
from redrive.forensics.scope import exact, reaches
from redrive.model import Letter
from redrive.stores.base import Group, GroupOrder, Hit, Letters, Page, hit_of, sorted_groups

_MOST_GROUPS, _LOOKED_AT = 10_000, 200
Known = Callable[[], Awaitable[Iterable[str]]]
"""Every name of a kind that letters have."""


async def within(query: Query, sources: Known, tenants: Known) -> Query:
    """The query with its scope as the sources and tenants that it reaches; they are asked for only where a pattern has
    to be compared with them. Systems are not known here: a scope that still names some reaches nothing."""
    if query.text == "":  # which is in every letter
        query = replace(query, text=None)
    scope = query.scope
    if scope is None:
        return query
    found = replace(query, scope=None)
    if scope.systems:
        return replace(found, ids=())
    if scope.sources:
        found = replace(found, sources=await _reached(scope.sources, query.sources, sources))
    if scope.tenants:
        found = replace(found, tenants=await _reached(scope.tenants, query.tenants, tenants))
    return found


async def _reached(patterns: tuple[str, ...], asked: tuple[str, ...] | None, known: Known) -> tuple[str, ...]:
    names = exact(patterns) if asked is None else asked
    return _among(patterns, await known()) if names is None else _among_named(patterns, names)


def _among(patterns: tuple[str, ...], names: Iterable[str]) -> tuple[str, ...]:
    return tuple([name for name in names if reaches(patterns, name) and is_text(name)])


_among_named = lru_cache(256)(_among)
"""Whoever asks for a page asks for the same names with each; what they reach depends on no letter."""


def is_text(name: str) -> bool:
    """Whether a letter can have that name: half a surrogate pair is in none, and no driver takes it."""
    return not any("\ud800" <= character <= "\udfff" for character in name)


async def groups_within(letters: Letters, query: Query, *, limit: int, skip: int, order: GroupOrder) -> list[Group]:
    """Groups as `described_within` tells them. By time they are in the order of what the asker sees of them.

    query   without its scope, which it tells by sources and tenants
    """
    if order is GroupOrder.LETTERS:
        return await described_within(letters, query, await letters.groups(query, limit=limit, skip=skip))
    every = await described_within(letters, query, await letters.groups(query, limit=_MOST_GROUPS))
    return sorted_groups(every, order)[skip : skip + limit]


class Searches(Protocol):
    """What can be searched for letters."""

    async def search(self, query: Query, *, limit: int = 50) -> Page: ...


async def tenants_by_looking(letters: Searches, groups: Sequence[str], query: Query, *, most: int) -> dict[str, Hit]:
    """The tenants of the newest letters of each group that the query selects."""
    found: dict[str, Hit] = {}
    for group in groups:
        page = await letters.search(replace(query, groups=(group,)), limit=_LOOKED_AT)
        hit = hit_of({letter.message.tenant for letter in page.letters if letter.message.tenant is not None}, most)
        found[group] = replace(hit, is_all=hit.is_all and page.after is None)
    return found


async def described_within(letters: Letters, query: Query, groups: Sequence[Group]) -> list[Group]:
    """The groups as the letters that the query selects tell them: what a store keeps of a group may come from a letter
    that is out of the asker's scope."""
    return [told for group in groups if (told := await _described(letters, query, group)) is not None]


async def _described(letters: Letters, query: Query, group: Group) -> Group | None:
    only = replace(query, groups=(group.id,))
    oldest, newest = [await _end(letters, only, oldest_first=way) for way in (True, False)]
    if oldest is None or newest is None:
        return None  # its last letter has just left
    first, last = oldest.failures[0], newest.last
    return replace(
        group,
        error_type=last.type,
        message=last.message,
        category=last.category,
        first_at=first.at,
        last_at=last.at,
        first_version=first.version,
        last_version=last.version,
    )


async def _end(letters: Letters, query: Query, *, oldest_first: bool) -> Letter | None:
    """The oldest, or the newest, letter that the query selects; pages before it may be empty."""
    after = None
    while True:
        page = await letters.search(query, after=after, limit=1, oldest_first=oldest_first)
        if page.letters or page.after is None:
            return page.letters[0] if page.letters else None
        after = page.after
