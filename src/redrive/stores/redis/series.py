"""Counts over time: a list of what came since, and hashes of what is summed up, one for each bucket."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from redrive.forensics.series import By, Count, Point, Row, SeriesQuery, packed, points_of, rows_of, told, unpacked
from redrive.stores.redis.access import Access

_TOGETHER = 20  # batches, or buckets, in one script: the server does nothing else meanwhile


class RedisSeries:
    """Keeps counts over time."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._counted = f"{access.letters}:counted"

    async def add(self, counts: Sequence[Count]) -> None:
        if counts:
            await self._access.command("RPUSH", self._counted, packed(counts))

    async def read(self, query: SeriesQuery) -> Sequence[Point]:
        named = await self._of_groups(query)
        fields = [_field(group, source) for group, source in named]
        if query.by is By.GROUP and not fields:
            fields = [b""]
        place = (self._access.letters, query.step, query.since, query.until)
        waiting, *buckets = await self._access.run("series", (self._counted,), (*place, *fields))
        points = Counter[tuple[int, str]]()
        for raw in waiting:
            points.update(points_of(rows_of(unpacked(raw)), query))
        rows: Counter[Row] = Counter()
        for start, numbers in zip(buckets[::2], buckets[1::2], strict=True):
            at = int(start)
            if query.by is By.GROUP:
                for (group, source), number in zip(named, numbers, strict=False):
                    rows[query.step, at, group, source, "", "buried"] += int(number or 0)
            else:
                for field, number in _pairs(numbers):
                    outcome, category, source = field.decode().split(":", 2)
                    rows[query.step, at, "", source, category, outcome] += int(number)
        points.update(points_of(rows, query))
        return told(points)

    async def roll_up(self) -> int:
        return int(await self._access.run("roll_up", (self._counted,), (self._access.letters, _TOGETHER)))

    async def prune(self, step: int, before: int) -> None:
        key, place = f"{self._access.letters}:series:{step}", (self._access.letters, step, before, _TOGETHER)
        while await self._access.run("prune_series", (key,), place) == _TOGETHER:
            pass

    async def _of_groups(self, query: SeriesQuery) -> list[tuple[str, str]]:
        """The groups that are asked for, with every source that they may have."""
        if query.by is not By.GROUP or not query.groups:
            return []
        known = f"{self._access.letters}:series:sources"
        sources = query.sources
        if sources is None:
            sources = tuple([name.decode() for name in await self._access.command("SMEMBERS", known)])
        return [(group, source) for group in dict.fromkeys(query.groups) for source in sources]


def _field(group: str, source: str) -> bytes:
    name = group.encode("utf-8", "replace")
    return b"%d:%b%b" % (len(name), name, source.encode("utf-8", "replace"))


def _pairs(numbers: Sequence[Any]) -> Sequence[tuple[bytes, bytes]]:
    return list(zip(numbers[::2], numbers[1::2], strict=True))
