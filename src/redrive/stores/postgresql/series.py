"""Counts over time in two tables: what came since, a row for each batch, and what is summed up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from redrive.drivers.postgresql.link import rows
from redrive.drivers.postgresql.pool import Connection
from redrive.forensics.series import By, Count, Point, Row, SeriesQuery, packed, points_of, rows_of, told, unpacked
from redrive.stores.postgresql.access import Access
from redrive.stores.postgresql.codec import keyed, unclean

_TOGETHER = 50
_COLUMNS = {By.OUTCOME: "outcome", By.SOURCE: "source", By.CATEGORY: "category", By.GROUP: "group_id"}


class PostgresSeries:
    """Keeps counts over time. Batches are summed up after they are recorded, so that recording does not wait for it."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def add(self, counts: Sequence[Count]) -> None:
        if counts:
            await self._access.run(lambda connection: self.count(connection, counts))

    async def count(self, connection: Connection, counts: Sequence[Count]) -> None:
        """Count these, within a transaction."""
        if counts:
            await rows(connection, self._access.sql("count_over_time"), {"counts": packed(counts)})

    async def read(self, query: SeriesQuery) -> Sequence[Point]:
        names = {"source": query.sources, "category": query.categories, "outcome": query.outcomes}
        wanted = {name: [keyed(value) for value in values] for name, values in names.items() if values is not None}
        narrower = "".join(f" AND s.{name} = ANY(%({name})s::text[])" for name in wanted)
        groups = [keyed(group) for group in query.groups] if query.by is By.GROUP else [""]
        parameters = {"step": query.step, "since": query.since, "until": query.until, "groups": groups, **wanted}
        statement = self._access.sql("series", column=_COLUMNS[query.by], narrower=narrower)
        points: Counter[tuple[int, str]] = Counter()
        for at, name, number, raw in await self._access.fetch(statement, parameters):
            if raw is None:
                points[at, unclean(name)] += number
            else:
                points.update(points_of(rows_of(unpacked(bytes(raw))), query))
        return told(points)

    async def roll_up(self) -> int:
        async def work(connection: Connection) -> int:
            taken = await rows(connection, self._access.sql("take_counted"), {"limit": _TOGETHER})
            summed = rows_of(count for (raw,) in taken for count in unpacked(bytes(raw)))
            if summed:
                await rows(connection, self._access.sql("sum_up"), _columns(summed))
            [[left]] = await rows(connection, self._access.sql("left_counted"))
            return int(left)

        return await self._access.run(work)

    async def prune(self, step: int, before: int) -> None:
        await self._access.fetch(self._access.sql("prune_series"), {"step": step, "before": before})


def _columns(summed: Counter[Row]) -> dict[str, list[int] | list[str]]:
    """The rows as one array for each column. Two long names are one here only if they are one in every table."""
    kept: Counter[Row] = Counter()
    for (step, at, group, source, category, outcome), number in summed.items():
        kept[step, at, keyed(group), keyed(source), category, outcome] += number
    return {
        "steps": [row[0] for row in kept],
        "ats": [row[1] for row in kept],
        "groups": [row[2] for row in kept],
        "sources": [row[3] for row in kept],
        "categories": [row[4] for row in kept],
        "outcomes": [row[5] for row in kept],
        "counts": list(kept.values()),
    }
