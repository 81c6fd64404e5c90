"""Counts over time in two collections: what came since, a document for each batch, and what is summed up.

There is no transaction here: a batch is taken away before it is summed up, so a crash between the two loses its counts,
and nothing is counted twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from bson.binary import Binary
from pymongo import UpdateOne
from pymongo.errors import BulkWriteError

from redrive.forensics.series import By, Count, Point, Row, SeriesQuery, packed, points_of, rows_of, told, unpacked
from redrive.stores.mongodb.access import Access, Fields

_TOGETHER = 50
_DUPLICATE = 11000


class MongoSeries:
    """Keeps counts over time."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def add(self, counts: Sequence[Count]) -> None:
        with self._access.translated_errors():
            await self._access.ready()
            await self.count(counts)

    async def count(self, counts: Sequence[Count]) -> None:
        """Count these; what a batch of letters counts is written after they are."""
        if counts:
            await self._access.counted.insert_one({"counts": Binary(packed(counts))})

    async def read(self, query: SeriesQuery) -> Sequence[Point]:
        """Read what waits first: what is summed up meanwhile is counted twice in that answer, and never left out."""
        groups = list(query.groups) if query.by is By.GROUP else [""]
        wanted: Fields = {"step": query.step, "group": {"$in": groups}, "at": {"$gte": query.since, "$lt": query.until}}
        names = {"source": query.sources, "category": query.categories, "outcome": query.outcomes}
        wanted |= {name: {"$in": list(values)} for name, values in names.items() if values is not None}
        key = {"at": "$at", "name": f"${query.by.value}"}
        points: Counter[tuple[int, str]] = Counter()
        with self._access.translated_errors():
            await self._access.ready()
            waiting = await self._access.counted.find({}).to_list()
            cursor = await self._access.series.aggregate(
                [{"$match": wanted}, {"$group": {"_id": key, "count": {"$sum": "$count"}}}]
            )
            async for row in cursor:
                points[row["_id"]["at"], row["_id"]["name"]] += row["count"]
        for document in waiting:
            points.update(points_of(rows_of(unpacked(bytes(document["counts"]))), query))
        return told(points)

    async def roll_up(self) -> int:
        with self._access.translated_errors():
            await self._access.ready()
            taken = [document async for document in self._access.counted.find({}, {"_id": 1}).limit(_TOGETHER)]
            found = [await self._access.counted.find_one_and_delete({"_id": document["_id"]}) for document in taken]
            raws = [bytes(document["counts"]) for document in found if document is not None]
            await self._sum_up(rows_of(count for raw in raws for count in unpacked(raw)))
            return await self._access.counted.count_documents({})

    async def _sum_up(self, rows: Counter[Row]) -> None:
        updates = [UpdateOne(_named(row), {"$inc": {"count": number}}, upsert=True) for row, number in rows.items()]
        while updates:
            try:
                await self._access.series.bulk_write(updates, ordered=False)
                return
            except BulkWriteError as error:
                problems = error.details["writeErrors"]
                if any(problem["code"] != _DUPLICATE for problem in problems):
                    raise
                updates = [updates[problem["index"]] for problem in problems]  # two made it at once: now it is there

    async def prune(self, step: int, before: int) -> None:
        with self._access.translated_errors():
            await self._access.ready()
            await self._access.series.delete_many({"step": step, "at": {"$lt": before}})


def _named(row: Row) -> Fields:
    step, at, group, source, category, outcome = row
    return {"step": step, "group": group, "at": at, "source": source, "category": category, "outcome": outcome}
