"""The ledger in a collection.

A selection is written by the server itself, under a token, and counts from the moment in which that token is noted
as the replay's own: one insert, which only the first can make. A selection that a crash cut short is nobody's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from pymongo import UpdateOne
from pymongo.errors import DuplicateKeyError

from redrive.clock import microseconds, moment
from redrive.forensics.query import Query
from redrive.model import LetterId
from redrive.stores.base import REPLAYABLE, Cursor, Entry, EntryStatus
from redrive.stores.mongodb.access import Access, Fields
from redrive.stores.mongodb.letters import MongoLetters
from redrive.stores.mongodb.numbers import Numbers
from redrive.stores.mongodb.query import beyond, cursor_of

_FREEZABLE = [state.value for state in REPLAYABLE]
_FINAL = (EntryStatus.RESOLVED, EntryStatus.FAILED)
_PLACE = ("created", "seq")


class MongoLedger:
    """Keeps the lines of every replay."""

    def __init__(self, access: Access, letters: MongoLetters, numbers: Numbers) -> None:
        self._access = access
        self._letters = letters
        self._numbers = numbers
        self._tokens: dict[str, str] = {}  # of replays that are frozen, which they stay

    async def freeze(self, replay: str, query: Query, *, now: datetime) -> int:
        condition = {"$and": [await self._letters.where(query), {"_store.state": {"$in": _FREEZABLE}}]}
        with self._access.translated_errors():
            await self._access.ready()
            if await self._frozen(replay) is None:
                token = self._numbers.token()
                cursor = await self._access.letters.aggregate(
                    [{"$match": condition}, _line(token, microseconds(now)), {"$merge": self._access.ledger.name}]
                )
                await cursor.close()
                await self._note(replay, token)
            return await self._access.ledger.count_documents({"frozen": await self._frozen(replay)})

    async def entries(
        self, replay: str, *, status: EntryStatus | None = None, after: Cursor | None = None, limit: int = 500
    ) -> tuple[Sequence[Entry], Cursor | None]:
        condition: Fields = {} if after is None else beyond(after, True, _PLACE)
        if status is not None:
            condition["status"] = status.value
        with self._access.translated_errors():
            condition["frozen"] = await self._token(replay)
            lines = self._access.ledger.find(condition).sort([(field, 1) for field in _PLACE])
            rows = await lines.limit(limit).to_list()
        entries = [
            Entry(replay, row["_id"]["letter"], EntryStatus(row["status"]), moment(row["at"]), row["note"])
            for row in rows
        ]
        return entries, cursor_of(rows[-1]["created"], rows[-1]["seq"]) if rows and len(rows) == limit else None

    async def of_letter(self, letter: LetterId, replays: Sequence[str]) -> Sequence[Entry]:
        with self._access.translated_errors():
            tokens = {await self._token(replay): replay for replay in replays}
            ids = [{"frozen": token, "letter": letter} for token in tokens]
            rows = await self._access.ledger.find({"_id": {"$in": ids}}).to_list()
        found = {
            tokens[row["frozen"]]: Entry(
                tokens[row["frozen"]], letter, EntryStatus(row["status"]), moment(row["at"]), row["note"]
            )
            for row in rows
        }
        return [found[replay] for replay in replays if replay in found]

    async def mark(self, entries: Iterable[Entry]) -> None:
        with self._access.translated_errors():
            changes = [self._change(entry, await self._token(entry.replay)) for entry in entries]
            if changes:
                await self._access.ledger.bulk_write(changes)

    async def tally(self, replay: str) -> dict[EntryStatus, int]:
        with self._access.translated_errors():
            mine = {"$match": {"frozen": await self._token(replay)}}
            cursor = await self._access.ledger.aggregate([mine, {"$group": {"_id": "$status", "count": {"$sum": 1}}}])
            return {EntryStatus(row["_id"]): row["count"] async for row in cursor}

    async def _frozen(self, replay: str) -> str | None:
        """The token of a replay's selection; None before it is frozen."""
        if replay not in self._tokens:
            note = await self._access.replays.find_one({"_id": replay})
            if note is None:
                return None
            self._tokens[replay] = note["frozen"]
        return self._tokens[replay]

    async def _token(self, replay: str) -> str:
        return await self._frozen(replay) or f"of {replay}"  # lines of a replay that was frozen elsewhere

    async def _note(self, replay: str, token: str) -> None:
        """Make that selection the one that counts; delete it if another process was faster."""
        try:
            await self._access.replays.insert_one({"_id": replay, "frozen": token})
        except DuplicateKeyError:
            await self._access.ledger.delete_many({"frozen": token})

    def _change(self, entry: Entry, token: str) -> UpdateOne:
        line: Fields = {
            "frozen": token,
            "status": entry.status.value,
            "at": microseconds(entry.at),
            "note": {"$literal": entry.note},
            "created": {"$ifNull": ["$created", microseconds(entry.at)]},
            "seq": {"$ifNull": ["$seq", self._numbers.next()]},
        }
        if entry.status not in _FINAL:
            open_ = {"$in": [{"$ifNull": ["$status", EntryStatus.SELECTED.value]}, [EntryStatus.SELECTED.value]]}
            line = {name: {"$cond": [open_, value, f"${name}"]} for name, value in line.items()}
        return UpdateOne({"_id": {"frozen": token, "letter": entry.letter}}, [{"$set": line}], upsert=True)


def _line(token: str, now: int) -> Fields:
    """A letter as a line of the ledger."""
    return {
        "$project": {
            "_id": {"frozen": {"$literal": token}, "letter": "$_id"},
            "frozen": {"$literal": token},
            "created": "$_store.created",
            "seq": "$_store.seq",
            "status": {"$literal": EntryStatus.SELECTED.value},
            "at": {"$literal": now},
            "note": {"$literal": ""},
        }
    }
