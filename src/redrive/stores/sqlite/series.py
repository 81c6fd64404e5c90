"""Counts over time in two tables: what came since, a row for each batch, and what is summed up."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence

from redrive.drivers.sqlite.database import clauses
from redrive.forensics.series import By, Count, Point, SeriesQuery, packed, points_of, rows_of, told, unpacked
from redrive.stores.sqlite.access import Access, as_json

_SQL = clauses(__package__, "series")
_TOGETHER = 50  # batches in one transaction: nobody else writes meanwhile
_COLUMNS = {By.OUTCOME: "outcome", By.SOURCE: "source", By.CATEGORY: "category", By.GROUP: "group_id"}


class SqliteSeries:
    """Keeps counts over time. Batches are summed up after they are recorded, so that recording does not wait for it."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def add(self, counts: Sequence[Count]) -> None:
        if counts:
            await self._access.write(lambda connection: count(connection, counts))

    async def read(self, query: SeriesQuery) -> Sequence[Point]:
        names = {"source": query.sources, "category": query.categories, "outcome": query.outcomes}
        wanted = {name: as_json(values) for name, values in names.items() if values is not None}
        narrower = "".join(f" AND {name} IN (SELECT value FROM json_each(:{name}))" for name in wanted)  # noqa: S608
        statement = _SQL["read"].replace("{name}", _COLUMNS[query.by]).replace("{narrower}", narrower)
        groups = as_json(query.groups if query.by is By.GROUP else ("",))
        parameters = {"step": query.step, "since": query.since, "until": query.until, "groups": groups, **wanted}

        def work(connection: sqlite3.Connection) -> Counter[tuple[int, str]]:
            points: Counter[tuple[int, str]] = Counter()
            for at, name, number in connection.execute(statement, parameters):
                points[at, name] += number
            for (raw,) in connection.execute(_SQL["all_counted"]):
                points.update(points_of(rows_of(unpacked(raw)), query))
            return points

        return told(await self._access.read(work))

    async def roll_up(self) -> int:
        return await self._access.write(_roll_up)

    async def prune(self, step: int, before: int) -> None:
        named = {"step": step, "before": before}
        await self._access.write(lambda connection: connection.execute(_SQL["prune"], named).rowcount)


def count(connection: sqlite3.Connection, counts: Sequence[Count]) -> None:
    """Count these, within a transaction."""
    if counts:
        connection.execute(_SQL["count"], (packed(counts),))


def _roll_up(connection: sqlite3.Connection) -> int:
    batches = connection.execute(_SQL["counted"], {"limit": _TOGETHER}).fetchall()
    if not batches:
        return 0
    rows = rows_of(count for _, raw in batches for count in unpacked(raw))
    connection.executemany(_SQL["sum_up"], [(*row, number) for row, number in rows.items()])
    connection.execute(_SQL["summed_up"], {"last": batches[-1][0]})
    (left,) = connection.execute(_SQL["left"]).fetchone()
    return int(left)
