"""Lines of a replay's ledger that are found by a text: in the id of their letter, or in why."""

from __future__ import annotations

from collections.abc import Callable

from redrive.stores.base import Cursor, Entry, EntryStatus, Ledger

_PAGE, _LOOKED_AT = 500, 20_000


async def with_text(
    ledger: Ledger,
    replay: str,
    text: str,
    shown: Callable[[Entry], Entry],
    *,
    status: EntryStatus | None,
    after: Cursor | None,
    limit: int,
) -> tuple[list[Entry], Cursor | None]:
    """A page of the lines that have that text as they are shown, and where the next begins. It looks at so many lines
    and no more: it may be shorter than asked for, or empty, and there are more behind it."""
    found, looked, wanted = list[Entry](), 0, text.casefold()
    while True:
        lines, rest = await ledger.entries(replay, status=status, after=after, limit=_PAGE)
        lines = [shown(entry) for entry in lines]
        places = [place for place, entry in enumerate(lines) if wanted in f"{entry.letter}\n{entry.note}".casefold()]
        fit = places[: limit - len(found)]
        found += [lines[place] for place in fit]
        if len(fit) < len(places):  # the next page begins behind the last that fits
            _, behind = await ledger.entries(replay, status=status, after=after, limit=fit[-1] + 1)
            return found, behind
        after, looked = rest, looked + len(lines)
        if after is None or looked >= _LOOKED_AT or len(found) == limit:
            return found, after
