"""The ledger as documents of an index: one for each letter of each replay."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import aclosing, suppress
from datetime import datetime
from hashlib import blake2b
from itertools import count
from typing import Any
from uuid import uuid4

import msgspec

from redrive.clock import microseconds, moment
from redrive.errors import StoreUnavailable
from redrive.forensics.query import Query
from redrive.model import LetterId
from redrive.stores.base import Cursor, Entry, EntryStatus, number_in
from redrive.stores.opensearch.access import OK, Access, Action, Json, Op
from redrive.stores.opensearch.documents import OpenSearchDocuments
from redrive.stores.opensearch.letters import OpenSearchLetters
from redrive.stores.opensearch.schema import Schema
from redrive.stores.rounds import rounds

_PAGE = 1000
_FROZEN = "frozen"  # the kind of the documents that say which freeze of a replay counts
_PROCEED = {"conflicts": "proceed"}
_FINAL = (EntryStatus.RESOLVED, EntryStatus.FAILED)


class OpenSearchLedger:
    """Keeps the lines of every replay.

    There is no transaction over many documents. So a freeze writes its lines under a name of its own, and they count
    when a document says that this is the freeze of the replay: it can be written once. What a freeze that died left
    behind is seen by nobody.
    """

    def __init__(
        self, access: Access, schema: Schema, letters: OpenSearchLetters, documents: OpenSearchDocuments
    ) -> None:
        self._access = access
        self._schema = schema
        self._letters = letters
        self._documents = documents
        self._index = schema.ledger
        self._freezes: dict[str, str] = {}

    async def freeze(self, replay: str, query: Query, *, now: datetime) -> int:
        if await self._freeze_of(replay) is None:
            mine = uuid4().hex
            await self._select(mine, replay, query, now)
            await self._documents.put(_FROZEN, replay, {"freeze": mine}, expect=0)  # unless somebody else was first
            await self._tidy(replay)
        return sum((await self.tally(replay)).values())

    async def entries(
        self, replay: str, *, status: EntryStatus | None = None, after: Cursor | None = None, limit: int = 500
    ) -> tuple[Sequence[Entry], Cursor | None]:
        narrow: list[Json] = [{"range": {"number": {"gt": number_in(after)}}}]
        narrow += [{"term": {"status": status.value}}] if status else []
        body = {"query": await self._lines_of(replay, *narrow), "sort": [{"number": "asc"}]}
        pages = self._access.pages(self._index, body, size=_PAGE, limit=limit)
        hits = [hit async for some in pages for hit in some]
        entries = [_entry(replay, hit["_source"]) for hit in hits]
        return entries, str(hits[-1]["sort"][0]) if hits and len(hits) == limit else None

    async def of_letter(self, letter: LetterId, replays: Sequence[str]) -> Sequence[Entry]:
        keys = {_key(await self._freeze_of(replay) or replay, letter): replay for replay in replays}
        hits = await self._access.read(self._index, list(keys)) if keys else []
        found = {keys[hit["_id"]]: _entry(keys[hit["_id"]], hit["_source"]) for hit in hits if "_source" in hit}
        return [found[replay] for replay in replays if replay in found]

    async def mark(self, entries: Iterable[Entry]) -> None:
        for some in rounds(list(entries), lambda entry: (entry.replay, entry.letter)):
            left = list(some)
            while left:
                page, left = left[:_PAGE], left[_PAGE:]
                left += await self._mark(page)

    async def tally(self, replay: str) -> dict[EntryStatus, int]:
        body = {
            "size": 0,
            "query": await self._lines_of(replay),
            "aggs": {"statuses": {"terms": {"field": "status", "size": len(EntryStatus)}}},
        }
        answer = await self._access.search(self._index, body)
        buckets = answer["aggregations"]["statuses"]["buckets"]
        return {EntryStatus(bucket["key"]): bucket["doc_count"] for bucket in buckets}

    async def _select(self, freeze: str, replay: str, query: Query, now: datetime) -> None:
        numbers = count(1)
        async with aclosing(self._letters.freezable(query)) as pages:
            async for ids in pages:
                entries = [Entry(replay, id, EntryStatus.SELECTED, now) for id in ids]
                await self._access.write(self._index, [_line(freeze, entry, next(numbers)) for entry in entries])

    async def _mark(self, entries: Sequence[Entry]) -> list[Entry]:
        """Write these entries; returns those whose line somebody else wrote at the same time."""
        freezes = {replay: await self._freeze_of(replay) or replay for replay in {entry.replay for entry in entries}}
        keys = {_key(freezes[entry.replay], entry.letter): entry for entry in entries}
        known = {hit["_id"]: hit for hit in await self._access.read(self._index, list(keys))}
        writes = {key: _marked(freezes[entry.replay], entry, known.get(key)) for key, entry in keys.items()}
        actions = {key: action for key, action in writes.items() if action is not None}
        statuses = await self._access.write(self._index, list(actions.values()))
        return [keys[key] for key, status in zip(actions, statuses, strict=True) if status not in OK]

    async def _lines_of(self, replay: str, *narrow: Json) -> Json:
        """The query of a replay's lines, after a refresh."""
        freeze = await self._freeze_of(replay) or replay
        await self._access.refresh(self._index)
        return {"bool": {"filter": [{"term": {"replay": replay}}, {"term": {"freeze": freeze}}, *narrow]}}

    async def _freeze_of(self, replay: str) -> str | None:
        """The freeze of a replay that counts; it never changes, so it is read once."""
        if replay not in self._freezes:
            document = await self._documents.get(_FROZEN, replay)
            if document is None:
                return None
            self._freezes[replay] = document.body["freeze"]
        return self._freezes[replay]

    async def _tidy(self, replay: str) -> None:
        """Delete what other freezes of a replay wrote. Nobody sees it, so a failure is ignored."""
        counts = await self._freeze_of(replay)
        others = {"filter": [{"term": {"replay": replay}}], "must_not": [{"term": {"freeze": counts}}]}
        body = {"query": {"bool": others}}
        with suppress(StoreUnavailable):
            await self._access.refresh(self._index)
            await self._access.request("POST", f"/{self._index}/_delete_by_query", body, params=_PROCEED)


def _line(freeze: str, entry: Entry, number: int, guard: Any = None) -> Action:
    source = {
        "replay": entry.replay,
        "freeze": freeze,
        "letter": entry.letter,
        "number": number,
        "status": entry.status.value,
        "at": microseconds(entry.at),
        "note": entry.note,
    }
    op = Op.CREATE if guard is None else Op.INDEX
    return Action(op, _key(freeze, entry.letter), msgspec.json.encode(source), guard)


def _marked(freeze: str, entry: Entry, known: Json | None) -> Action | None:
    """The write of an entry; None if what is known says more."""
    if known is None:
        return _line(freeze, entry, time.time_ns() // 1000)  # behind all that were frozen
    old = known["_source"]
    if entry.status not in _FINAL and old["status"] != EntryStatus.SELECTED:
        return None
    return _line(freeze, entry, old["number"], (known["_seq_no"], known["_primary_term"]))


def _entry(replay: str, source: Json) -> Entry:
    return Entry(replay, source["letter"], EntryStatus(source["status"]), moment(source["at"]), source["note"])


def _key(freeze: str, letter: LetterId) -> str:
    return blake2b(f"{freeze}\0{letter}".encode(), digest_size=20).hexdigest()
