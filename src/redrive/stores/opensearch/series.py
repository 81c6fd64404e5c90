"""Counts over time in an index of their own: what came since, a document for each batch, and what is summed up.

There is no transaction here: a batch is taken away before it is summed up, so a crash between the two loses its counts,
and nothing is counted twice.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from hashlib import blake2b
from uuid import uuid4

import msgspec

from redrive.forensics.series import By, Count, Point, Row, SeriesQuery, packed, points_of, rows_of, told, unpacked
from redrive.stores.opensearch.access import OK, Access, Action, Json, Op
from redrive.stores.opensearch.schema import Schema

_TOGETHER = 50
_PAGE = 1000
_NEW, _SUM = "new", "sum"
_FIELDS = ("step", "at", "group", "source", "category", "outcome")


class OpenSearchSeries:
    """Keeps counts over time."""

    def __init__(self, access: Access, schema: Schema) -> None:
        self._access = access
        self._schema = schema
        self._index = schema.series

    async def add(self, counts: Sequence[Count]) -> None:
        await self._schema.ready()
        await self.count(counts)

    async def count(self, counts: Sequence[Count]) -> None:
        """Count these; what a batch of letters counts is written after they are."""
        if counts:
            batch = uuid4().hex
            source = {"kind": _NEW, "batch": batch, "counts": b64encode(packed(counts)).decode()}
            await self._access.write(self._index, [Action(Op.CREATE, batch, msgspec.json.encode(source))])

    async def read(self, query: SeriesQuery) -> Sequence[Point]:
        """Read what waits first: what is summed up meanwhile is counted twice in that answer, and never left out."""
        await self._fresh()
        points: Counter[tuple[int, str]] = Counter()
        async for hits in self._access.pages(self._index, _waiting(), size=_PAGE):
            for raw in map(_raw, hits):
                points.update(points_of(rows_of(unpacked(raw)), query))
        async for bucket in self._sums(query):
            points[bucket["key"]["at"], bucket["key"]["name"]] += int(bucket["total"]["value"])
        return told(points)

    async def roll_up(self) -> int:
        await self._fresh()
        body = {**_waiting(), "seq_no_primary_term": True, "size": _TOGETHER, "track_total_hits": True}
        answer = (await self._access.search(self._index, body))["hits"]
        hits = answer["hits"]
        if not hits:
            return 0
        actions = [Action(Op.DELETE, hit["_id"], None, (hit["_seq_no"], hit["_primary_term"])) for hit in hits]
        statuses = await self._access.write(self._index, actions)
        ours = [hit for hit, status in zip(hits, statuses, strict=True) if status in OK]
        await self._sum_up(rows_of(count for hit in ours for count in unpacked(_raw(hit))))
        return int(answer["total"]["value"]) - len(hits)

    async def prune(self, step: int, before: int) -> None:
        await self._fresh()
        wanted = {"bool": {"filter": [{"term": {"step": step}}, {"range": {"at": {"lt": before}}}]}}
        body = {"query": wanted, "_source": False, "sort": [{"at": "asc"}], "size": _PAGE, "track_total_hits": False}
        while hits := (await self._access.search(self._index, body))["hits"]["hits"]:
            await self._access.write(self._index, [Action(Op.DELETE, hit["_id"]) for hit in hits])
            await self._access.refresh(self._index)

    async def _sum_up(self, rows: Counter[Row]) -> None:
        """Add to what is there, again where somebody else did at the same time."""
        left = {_id(row): (row, number) for row, number in rows.items()}
        while left:
            found = {hit["_id"]: hit for some in _parts(left) for hit in await self._access.read(self._index, some)}
            actions = [_added(id, row, number, found.get(id)) for id, (row, number) in left.items()]
            statuses = await self._access.write(self._index, actions)
            lost = [action.id for action, status in zip(actions, statuses, strict=True) if status not in OK]
            left = {id: left[id] for id in lost}

    async def _sums(self, query: SeriesQuery) -> AsyncIterator[Json]:
        """What is summed up, by start and name, page by page."""
        keys = [{"at": {"terms": {"field": "at"}}}, {"name": {"terms": {"field": query.by.value}}}]
        after: Json | None = None
        while True:
            kinds: Json = {"size": _PAGE, "sources": keys} | ({} if after is None else {"after": after})
            sums = {"composite": kinds, "aggs": {"total": {"sum": {"field": "count"}}}}
            body = {"size": 0, "query": _selected(query), "aggs": {"sums": sums}}
            found = (await self._access.search(self._index, body))["aggregations"]["sums"]
            for bucket in found["buckets"]:
                yield bucket
            after = found.get("after_key")
            if after is None:
                return

    async def _fresh(self) -> None:
        await self._schema.ready()
        await self._access.refresh(self._index)


def _waiting() -> Json:
    return {"query": {"term": {"kind": _NEW}}, "sort": [{"batch": "asc"}]}


def _raw(hit: Json) -> bytes:
    return b64decode(hit["_source"]["counts"])


def _selected(query: SeriesQuery) -> Json:
    groups = list(query.groups) if query.by is By.GROUP else [""]
    names = {"source": query.sources, "category": query.categories, "outcome": query.outcomes}
    narrowed = [{"terms": {name: list(values)}} for name, values in names.items() if values is not None]
    span = {"range": {"at": {"gte": query.since, "lt": query.until}}}
    kind = [{"term": {"kind": _SUM}}, {"term": {"step": query.step}}, {"terms": {"group": groups}}]
    return {"bool": {"filter": [*kind, span, *narrowed]}}


def _added(id: str, row: Row, number: int, known: Json | None) -> Action:
    before = 0 if known is None else int(known["_source"]["count"])
    source = {"kind": _SUM, **dict(zip(_FIELDS, row, strict=True)), "count": before + number}
    guard = None if known is None else (known["_seq_no"], known["_primary_term"])
    return Action(Op.CREATE if known is None else Op.INDEX, id, msgspec.json.encode(source), guard)


def _id(row: Row) -> str:
    return blake2b(msgspec.json.encode(row), digest_size=20).hexdigest()


def _parts(left: dict[str, tuple[Row, int]]) -> Iterator[list[str]]:
    ids = list(left)
    return (ids[start : start + _PAGE] for start in range(0, len(ids), _PAGE))
