"""Counts over time, and of tenants by group: what came since, a row for each batch, and what is summed up."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from redrive.drivers.sqlite.database import clauses
from redrive.forensics.series import By, Count, Point, SeriesQuery, packed, points_of, rows_of, told, unpacked
from redrive.stores.base import Hit, hit_of
from redrive.stores.sqlite.access import Access, as_json

_SQL = clauses(__package__, "series")
_TOGETHER = 50  # batches in one transaction: nobody else writes meanwhile
Hits = Mapping[tuple[str, str | None], int]
"""How many letters there are of a group and a tenant."""
_hits = msgspec.msgpack.Decoder(list[tuple[str, str, int]]).decode
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


def count(connection: sqlite3.Connection, counts: Sequence[Count], hits: Hits | None = None) -> None:
    """Count these, and new letters by group and tenant, within a transaction."""
    of_tenants = [(group, tenant, n) for (group, tenant), n in (hits or {}).items() if tenant is not None]
    if counts or of_tenants:
        connection.execute(_SQL["count"], (packed(counts), packed(of_tenants) if of_tenants else None))


def tenants_of(connection: sqlite3.Connection, groups: Sequence[str], most: int) -> dict[str, Hit]:
    """The tenants that letters of these groups are of, those of batches that are not summed up yet included."""
    waiting: dict[str, Counter[str]] = {group: Counter() for group in groups}
    for (raw,) in connection.execute(_SQL["all_hits"]):
        for group, tenant, number in _hits(raw):
            if group in waiting:
                waiting[group][tenant] += number
    return {group: hit_of(_hit(connection, group, new, most), most) for group, new in waiting.items()}


def _hit(connection: sqlite3.Connection, group: str, new: Counter[str], most: int) -> set[str]:
    """The first tenants of a group, one more than asked for, and perhaps others behind them."""
    found = {tenant for (tenant,) in connection.execute(_SQL["tenants_hit"], (group, most + 1))}
    for tenant, number in new.items():
        known = connection.execute(_SQL["hits_of_tenant"], (group, tenant)).fetchone()
        if number + (known[0] if known else 0) > 0:
            found.add(tenant)
    return found


def _roll_up(connection: sqlite3.Connection) -> int:
    batches = connection.execute(_SQL["counted"], {"limit": _TOGETHER}).fetchall()
    if not batches:
        return 0
    rows = rows_of(count for _, raw, _ in batches for count in unpacked(raw))
    connection.executemany(_SQL["sum_up"], [(*row, number) for row, number in rows.items()])
    connection.executemany(_SQL["hit"], [hit for _, _, raw in batches if raw is not None for hit in _hits(raw)])
    connection.execute(_SQL["summed_up"], {"last": batches[-1][0]})
    (left,) = connection.execute(_SQL["left"]).fetchone()
    return int(left)
