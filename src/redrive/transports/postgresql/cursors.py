"""Where the next fetch of a source begins: behind what the last one took.

Without it, each fetch would pass by all that is leased and, while some long transaction keeps PostgreSQL from cleaning
up, all that was deleted. What a cursor does not see (a lease that ended, something more urgent, a transaction that
committed late) is seen by a look at everything, which comes soon, and sooner if the cursor finds less than is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redrive.clock import Clock

Cursor = tuple[int | None, int | None]
"""Priority and place of what was taken last; nothing: look at everything."""
_EVERYTHING: Cursor = (None, None)
_SOONEST = 0.2  # seconds between two looks at everything
_SHARE = 10  # a look at everything takes at most such a part of the time


class _Place:
    __slots__ = ("began", "cursor", "due")

    def __init__(self) -> None:
        self.cursor = _EVERYTHING
        self.began = 0.0
        self.due = 0.0  # when everything is looked at again


class Cursors:
    """One for each source."""

    def __init__(self, clock: Clock) -> None:
        self._elapsed = clock.elapsed
        self._places: dict[str, _Place] = {}

    def next(self, source: str) -> Cursor:
        """Where to begin."""
        place = self._places.setdefault(source, _Place())
        place.began = self._elapsed()
        if place.began >= place.due:
            place.cursor = _EVERYTHING
        return place.cursor

    def seen(self, source: str, cursor: Cursor, rows: list[Any], limit: int) -> Sequence[Any]:
        """The rows in their order. Notes where they end, if there may be more behind them."""
        place = self._places.setdefault(source, _Place())
        if rows and rows[0][-1] is None:  # tenants took turns: they are in order
            return rows
        rows.sort(key=_order)
        if len(rows) < limit:
            place.cursor, place.due = _EVERYTHING, 0.0
            return rows
        if cursor == _EVERYTHING:
            now = self._elapsed()
            place.due = now + max(_SOONEST, _SHARE * (now - place.began))
        place.cursor = rows[-1][4], rows[-1][-1]
        return rows

    def reset(self, source: str) -> None:
        """Something went back to its place."""
        self._places.pop(source, None)


def _order(row: Any) -> tuple[int, int]:
    return row[4], row[-1]
