"""Which letters cannot go back from here: their transport is not one of this process's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from msgspec.structs import replace

from redrive.forensics.query import Query
from redrive.stores.base import Letters
from redrive.stores.paging import every_letter

_MOST_READ = 5000
OTHERS = "(others)"


async def not_configured(letters: Letters, query: Query, total: int, names: Collection[str]) -> dict[str, int]:
    """Transports that are none of `names` -> how many of the `total` letters of the query go back through them.

    Usually there are none, which two counts say. Otherwise letters are read, up to a bound, for the names; what is past
    it is counted as others.
    """
    wanted = tuple(name for name in names if query.transports is None or name in query.transports)
    missing = total - (await letters.count(replace(query, transports=wanted)) if wanted else 0)
    if missing <= 0:
        return {}
    found: Counter[str] = Counter()
    async for letter in every_letter(letters, query, limit=_MOST_READ):
        found[letter.transport] += letter.transport not in names
    named = {name: count for name, count in found.items() if count}
    rest = missing - sum(named.values())
    return {**named, OTHERS: rest} if rest > 0 else named
