"""Letters in a collection. One document is one letter, so every change of it is atomic without a transaction.

A change of several notes a token of its own in each document that it changed (`_store.by`). Reading the token back
tells which those were, and a write that was prepared from an older document does not find it any more.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial

from bson.objectid import ObjectId
from pymongo import ReplaceOne
from pymongo.errors import BulkWriteError

from redrive.clock import microseconds, moment
from redrive.forensics.query import Query
from redrive.forensics.series import buried, resolved
from redrive.model import (
    Category,
    Letter,
    LetterId,
    MessageId,
    Owner,
    Revision,
    State,
    edited,
    is_anothers,
    rejoined,
    set_apart,
    version_of,
)
from redrive.stores.base import AT_REST, MAY_BECOME, Cursor, Group, GroupOrder, Hit, Page, Tally, hit_of
from redrive.stores.mongodb.access import Access, Fields
from redrive.stores.mongodb.bodies import Bodies
from redrive.stores.mongodb.numbers import Numbers
from redrive.stores.mongodb.query import beyond, cursor_of, is_counted, where
from redrive.stores.mongodb.schema import COUNTS, HAS_TENANT, read, written
from redrive.stores.mongodb.series import MongoSeries
from redrive.stores.mongodb.texts import Texts, unsearched
from redrive.stores.mongodb.versions import drop_versions, keep_version
from redrive.stores.rounds import by_id, rounds
from redrive.stores.scoped import within
from redrive.stores.shape import Shape

_DUPLICATE = 11000
log = logging.getLogger("redrive")
_IN_FLIGHT = [State.RETRYING.value, State.REPLAYING.value]
_AT_REST = [state.value for state in AT_REST]
_OVER = [State.RESOLVED.value, State.ARCHIVED.value]
_PLACE = ("_store.created", "_store.seq")
_OF_OTHERS = tuple(f"_store.{name}" for name in ("by", "parts", "body", "mark", "unsearched"))
"""What names a letter's documents in other collections."""
_URGENCY = [("_store.priority", 1), ("_store.due", 1), ("_store.seq", 1)]  # no time sorts before any time


class MongoLetters:
    """Keeps letters as documents of the store's shape."""

    def __init__(self, access: Access, shape: Shape, numbers: Numbers, series: MongoSeries) -> None:
        self._access = access
        self._series = series
        self._collection = access.letters
        self._shape = shape
        self._numbers = numbers
        self._bodies = Bodies(access.bodies)
        self.texts = Texts(access, self)

    async def record(self, letters: Sequence[Letter]) -> None:
        """Insert the letters at once: as a rule all are new. Those that are known rejoin theirs."""
        with self._access.translated_errors():
            await self._access.ready()
            for some in rounds(letters, by_id):
                known = await self._insert(some)
                again, apart = list[Letter](), list[Letter]()
                fresh = [letter for letter in some if letter.id not in known]
                if known:
                    again, apart = await self._rejoin({letter.id: letter for letter in some if letter.id in known})
                await self._series.count(buried(fresh, again))
                if apart:
                    await self.record(apart)

    async def get(self, id: LetterId) -> Letter | None:
        with self._access.translated_errors():
            document = await self._collection.find_one({"_id": id})
            return None if document is None else await self._letter(document)

    async def search(
        self, query: Query, *, after: Cursor | None = None, limit: int = 50, oldest_first: bool = False
    ) -> Page:
        if query.text:
            query = await self._within(query)
            few = await self.texts.few(query)
            if few is None:
                return await self._looked_for(query, after, limit, oldest_first)
            query = few
        condition = await self.where(query)
        if after is not None:
            condition = {"$and": [condition, beyond(after, oldest_first, _PLACE)]}
        order = [(field, 1 if oldest_first else -1) for field in _PLACE]
        with self._access.translated_errors():
            found = await self._collection.find(condition).sort(order).limit(limit).to_list()
            letters = tuple([await self._letter(document) for document in found])
        last = found[-1]["_store"] if found and len(found) == limit else None
        return Page(letters, None if last is None else cursor_of(last["created"], last["seq"]))

    async def _looked_for(self, query: Query, after: Cursor | None, limit: int, oldest_first: bool) -> Page:
        """A page of letters with a text that many have."""
        ids, place = await self.texts.look(query, after, limit, oldest_first)
        page = await self.search(Query(ids=tuple(ids)), limit=limit, oldest_first=oldest_first)
        return Page(page.letters, place)

    async def count(self, query: Query) -> int:
        condition = await self.where(query)
        with self._access.translated_errors():
            return await self._collection.count_documents(condition)

    async def groups(
        self, query: Query, *, limit: int = 50, skip: int = 0, order: GroupOrder = GroupOrder.LETTERS
    ) -> Sequence[Group]:
        query = await self._within(query)
        condition = await self.where(query)
        options: Fields = {"hint": dict(COUNTS)} if is_counted(query) else {}
        with self._access.translated_errors():
            await self._access.ready()
            cursor = await self._collection.aggregate(
                _groups_of(condition, limit, skip, order), allowDiskUse=True, **options
            )
            rows = [row async for row in cursor]
            newest = await asyncio.gather(*(self._end_of(row["_id"], condition, -1) for row in rows))
            oldest = await asyncio.gather(*(self._end_of(row["_id"], condition, 1) for row in rows))
        ends = zip(rows, newest, oldest, strict=True)
        return [_group(row, last, first or last) for row, last, first in ends if last is not None]

    async def tenants(self, groups: Sequence[str], *, most: int) -> Mapping[str, Hit]:
        async def of(group: str) -> Hit:
            return hit_of(await self._collection.distinct("_store.tenant", {"_store.group": group, **HAS_TENANT}), most)

        with self._access.translated_errors():
            await self._access.ready()
            found = await asyncio.gather(*map(of, groups))
        return dict(zip(groups, found, strict=True))

    async def _end_of(self, group: str, condition: Fields, way: int) -> Fields | None:
        """The fields of a group's newest letter, or of its oldest; None if its last one has just left."""
        order = [(field, way) for field in _PLACE]
        fields = [f"_store.{name}" for name in ("error_type", "error", "category", "first_version", "last_version")]
        wanted = {"$and": [{"_store.group": group}, condition]}
        found = await self._collection.find_one(wanted, fields, sort=order)
        return None if found is None else dict(found["_store"])

    async def tallies(self, query: Query | None = None) -> Sequence[Tally]:
        condition = await self.where(query or Query())
        kinds = {"source": "$_store.source", "state": "$_store.state", "category": "$_store.category"}
        with self._access.translated_errors():
            cursor = await self._collection.aggregate(
                [{"$match": condition}, {"$group": {"_id": kinds, "count": {"$sum": 1}}}]
            )
            rows = [(row["_id"], row["count"]) async for row in cursor]
        return [Tally(kind["source"], State(kind["state"]), Category(kind["category"]), n) for kind, n in rows]

    async def claim(
        self,
        query: Query,
        *,
        to: State,
        owner: Owner,
        now: datetime,
        until: datetime,
        limit: int,
        replay: str | None = None,
    ) -> Sequence[Letter]:
        condition = {"$and": [await self.where(query), _may_become(to, owner)]}
        with self._access.translated_errors():
            chosen = await self._free(condition, limit)
            change = _claim(to, owner, microseconds(now), microseconds(until), replay)
            taken = {document["_id"]: document for document in await self._change(chosen, condition, change)}
            return [await self._letter(taken[id]) for id in chosen if id in taken]

    async def move(
        self,
        ids: Collection[LetterId],
        *,
        expect: Collection[State],
        to: State,
        now: datetime,
        owner: Owner | None = None,
    ) -> Sequence[LetterId]:
        condition: Fields = {"_store.state": {"$in": [state.value for state in expect]}}
        if owner is not None:
            condition["_store.owner"] = owner
        with self._access.translated_errors():
            fields = ("_store.source", "_store.category")
            moved = await self._change(list(dict.fromkeys(ids)), condition, _move(to, microseconds(now)), fields)
            if to is State.RESOLVED and State.RESOLVED not in expect:
                kinds = [(document["_store"]["source"], document["_store"]["category"]) for document in moved]
                await self._series.count(resolved(kinds, now))
        return [document["_id"] for document in moved]

    async def prune(self, query: Query, *, limit: int) -> Sequence[LetterId]:
        """Mark what is to go, then delete it, so that of two who prune only one says that it did."""
        condition = {"$and": [await self.where(query), {"_store.state": {"$in": _AT_REST}}]}
        with self._access.translated_errors():
            oldest = self._collection.find(condition, {"_id": 1}).sort([(field, 1) for field in _PLACE]).limit(limit)
            chosen = [document["_id"] async for document in oldest]
            marked = await self._change(chosen, condition, [], _OF_OTHERS)
            gone = await self._delete(marked)
            await self._bodies.drop(gone)
            await self.texts.drop(gone)
            await drop_versions(self._access, [document["_id"] for document in gone])
        return [document["_id"] for document in gone]

    async def where(self, query: Query) -> Fields:
        """The query as a filter: letters with a text are named by their ids."""
        query = await self._within(query)
        named = await self.texts.named(query) if query.text else query
        return where(query if named is None else named)

    async def _within(self, query: Query) -> Query:
        return await within(query, partial(self._names, "source"), partial(self._names, "tenant"))

    async def _names(self, kind: str) -> list[str]:
        """Every source, or tenant, that has letters, from the index of them."""
        field = f"_store.{kind}"
        with self._access.translated_errors():
            cursor = await self._collection.aggregate(
                [{"$match": {field: {"$gte": ""}}}, {"$group": {"_id": f"${field}"}}]
            )
            return [str(row["_id"]) async for row in cursor]

    async def unsearched(self, limit: int) -> list[tuple[str, Letter]]:
        """Letters whose text is still to be made, with their marks."""
        found = [document async for document in unsearched(self._access, limit)]
        return [(document["_store"]["mark"], await self._letter(document)) for document in found]

    def token(self) -> str:
        """A token that no other change has."""
        return self._numbers.token()

    async def _letter(self, document: Fields) -> Letter:
        return read(document, self._shape, await self._bodies.read(document))

    # -- recording -----------------------------------------------------------------------------------------------

    async def _insert(self, letters: Sequence[Letter]) -> set[LetterId]:
        """Insert them; returns the ids of those that were there before."""
        by = self._numbers.token()
        documents = [await self._written(letter, self._numbers.next(), by) for letter in letters]
        known: set[LetterId] = set()
        while documents:
            try:
                await self._collection.insert_many(documents, ordered=False)
                break
            except BulkWriteError as error:
                repeats, clashing = _duplicates(error, documents)
            await self._bodies.drop(repeats)
            known.update(document["_id"] for document in repeats)
            documents = clashing
        return known

    async def _rejoin(self, letters: dict[LetterId, Letter]) -> tuple[list[Letter], list[Letter]]:
        """Join them to known letters; where somebody changed one meanwhile, it is read again. Returns those that died
        anew, as they are now, and those of other tenants, which are to be recorded apart."""
        joined: list[Letter] = []
        apart: list[Letter] = []
        while letters:
            by = self._numbers.token()
            found = {known["_id"]: known async for known in self._collection.find({"_id": {"$in": list(letters)}})}
            changed: dict[LetterId, Fields] = {}
            after: dict[LetterId, Letter] = {}
            for id, letter in letters.items():
                if (document := found.get(id)) is None:
                    continue
                old = await self._letter(document)
                if is_anothers(old, letter):
                    apart.append(set_apart(letter))
                elif (new := rejoined(old, letter)) is not None:
                    after[id] = new
                    changed[id] = await self._written_over(document, old, new, by)
            mine = await self._replace(found, changed, by)
            gone = [letter for id, letter in letters.items() if id not in found]  # pruned since
            known = await self._insert(gone)
            joined += [letter for id, letter in after.items() if id in mine]
            joined += [letter for letter in gone if letter.id not in known]
            letters = {
                id: letter for id, letter in letters.items() if id in known or (id in changed and id not in mine)
            }
        return joined, apart

    async def edit(self, revisions: Sequence[Revision]) -> Sequence[LetterId]:
        """Edit letters; where somebody changed one meanwhile, it is read again."""
        won: list[LetterId] = []
        left = {revision.letter: revision for revision in revisions}
        with self._access.translated_errors():
            await self._access.ready()
            while left:
                by = self._numbers.token()
                found = {known["_id"]: known async for known in self._collection.find({"_id": {"$in": list(left)}})}
                changed: dict[LetterId, Fields] = {}
                for id, document in found.items():
                    old = await self._letter(document)
                    if (new := edited(old, left[id])) is not None:
                        changed[id] = await self._written_over(document, old, new, by)
                mine = await self._replace(found, changed, by)
                won += [id for id in changed if id in mine]
                left = {id: left[id] for id in changed if id not in mine}
        return won

    async def _written_over(self, document: Fields, old: Letter, new: Letter, by: str) -> Fields:
        """The document of a letter that takes the place of another. What its message was is kept first."""
        if new.version > old.version:
            await keep_version(self._access, version_of(old))
        written = await self._written(new, document["_store"]["seq"], by)
        for name in document["_store"].get("apart", ()):
            _set_apart(written, name)
        return written

    async def _replace(self, old: dict[LetterId, Fields], new: dict[LetterId, Fields], by: str) -> set[LetterId]:
        """Replace documents that are still as they were read; returns their ids. Needless pieces of bodies go."""
        if not new:
            return set()
        as_read = {id: {"_id": id, "_store.by": old[id]["_store"]["by"]} for id in new}
        waiting = dict(new)
        while waiting:
            try:
                await self._collection.bulk_write(
                    [ReplaceOne(as_read[id], waiting[id]) for id in waiting], ordered=False
                )
                break
            except BulkWriteError as error:
                _, clashing = _duplicates(error, list(waiting.values()))
                waiting = {document["_id"]: document for document in clashing}
        written = self._collection.find({"_id": {"$in": list(new)}, "_store.by": by}, {"_id": 1})
        mine = {document["_id"] async for document in written}
        await self._bodies.drop([old[id] if id in mine else new[id] for id in new])
        await self.texts.drop([old[id] for id in new if id in mine])
        return mine

    async def _written(self, letter: Letter, seq: ObjectId, by: str) -> Fields:
        return written(letter, self._shape, seq, by, await self._bodies.write(letter, by))

    # -- changing ------------------------------------------------------------------------------------------------

    async def _change(
        self, ids: Sequence[LetterId], condition: Fields, change: Sequence[Fields], fields: Sequence[str] | None = None
    ) -> list[Fields]:
        """Change those that still meet the condition; they come back as they are now, or these fields of them."""
        if not ids:
            return []
        by = self._numbers.token()
        chosen = {"_id": {"$in": list(ids)}}
        await self._collection.update_many({**chosen, "$and": [condition]}, [*change, {"$set": {"_store.by": by}}])
        return await self._collection.find({**chosen, "_store.by": by}, fields and dict.fromkeys(fields, 1)).to_list()

    async def _free(self, condition: Fields, limit: int) -> list[LetterId]:
        """The ids of letters that wait for no other, the most urgent first."""
        free: list[LetterId] = []
        fields = {"_store.depends": 1}
        cursor = self._collection.find(condition, fields).sort(_URGENCY).batch_size(max(limit, 2))
        async for page in _pages(cursor, limit):
            wanted = {id for document in page for id in document["_store"].get("depends", ())}
            waited_for = await self._open(wanted) if wanted else set()
            free += [
                document["_id"] for document in page if waited_for.isdisjoint(document["_store"].get("depends", ()))
            ]
            if len(free) >= limit:
                break
        return free[:limit]

    async def _open(self, messages: Iterable[MessageId]) -> set[MessageId]:
        """Those of the messages that have a letter which is neither resolved nor archived."""
        condition = {"_store.message": {"$in": list(messages)}, "_store.state": {"$nin": _OVER}}
        return set(await self._collection.distinct("_store.message", condition))

    async def _delete(self, marked: Sequence[Fields]) -> Sequence[Fields]:
        if not marked:
            return []
        ids = [document["_id"] for document in marked]
        same = {"_id": {"$in": ids}, "_store.by": marked[0]["_store"]["by"]}
        result = await self._collection.delete_many(same)
        if result.deleted_count == len(ids):
            return marked
        left = {document["_id"] async for document in self._collection.find({"_id": {"$in": ids}}, {"_id": 1})}
        return [document for document in marked if document["_id"] not in left]


def _duplicates(error: BulkWriteError, documents: Sequence[Fields]) -> tuple[list[Fields], list[Fields]]:
    """Of documents that could not be written: those whose letter is known; and those of which another document has a
    value that is unique in this collection, set apart so that they can be written. Raises what is anything else."""
    problems = error.details["writeErrors"]
    if error.details["writeConcernErrors"] or any(problem["code"] != _DUPLICATE for problem in problems):
        raise error
    known: list[Fields] = []
    clashing: list[Fields] = []
    for problem in problems:
        document = documents[problem["index"]]
        names = [name for name in problem.get("keyPattern", ("_id",)) if name != "_id"]
        fresh = [name for name in names if name not in document["_store"].get("apart", ())]
        if names and not fresh:
            raise error
        for name in fresh:
            log.warning("another document has %s: letter %s is kept beside it", problem["keyValue"], document["_id"])
            _set_apart(document, name)
        (clashing if names else known).append(document)
    return known, clashing


def _set_apart(document: Fields, name: str) -> None:
    """Make a value that is unique in the collection differ from that of somebody else's document, which stays."""
    document[name] = f"{document[name]} ({document['_id']})"
    document["_store"].setdefault("apart", []).append(name)


def _may_become(to: State, owner: Owner) -> Fields:
    """The condition of what a claim may take: by state; from `to` itself only the claimer's own."""
    others = [state.value for state in MAY_BECOME[to] if state is not to]
    ways: list[Fields] = [{"_store.state": {"$in": others}}]
    if to in MAY_BECOME[to]:
        ways.append({"_store.state": to.value, "_store.owner": owner})
    return {"$or": ways}


def _literal(value: object) -> Fields:
    """The text as a literal, also if it begins with a dollar."""
    return {"$literal": value}


def _claim(to: State, owner: Owner, now: int, until: int, replay: str | None) -> list[Fields]:
    """`redrive.model.claimed` as an update of MongoDB."""
    first = {"$cond": [{"$ne": ["$_store.state", to.value]}, 1, 0]}
    changed: Fields = {
        "state": to.value,
        "owner": _literal(owner),
        "lease": until,
        "updated": now,
        "resends": {"$add": ["$_store.resends", first]},
    }
    if to is State.RETRYING:
        changed["retries"] = {"$add": ["$_store.retries", first]}
    if replay:
        changed["replay"] = _literal(replay)
    return [{"$set": {f"_store.{name}": value for name, value in changed.items()}}]


def _move(to: State, now: int) -> list[Fields]:
    """`redrive.model.moved` as an update of MongoDB."""
    changed: Fields = {"state": to.value, "updated": now, "owner": "$$REMOVE", "lease": "$$REMOVE"}
    back = to in (State.PENDING, State.EXHAUSTED)
    undone = {"$in": ["$_store.state", _IN_FLIGHT]} if back else False
    changed["due"] = {"$cond": [undone, "$_store.due", "$$REMOVE"]}
    changed["resends"] = {"$subtract": ["$_store.resends", {"$cond": [undone, 1, 0]}]}
    was_retry = {"$eq": ["$_store.state", State.RETRYING.value]} if back else False
    changed["retries"] = {"$subtract": ["$_store.retries", {"$cond": [was_retry, 1, 0]}]}
    changed["archived_from"] = _archived_from() if to is State.ARCHIVED else "$$REMOVE"
    return [{"$set": {f"_store.{name}": value for name, value in changed.items()}}]


def _archived_from() -> Fields:
    """Where a letter that is archived now comes back to, as `redrive.model.moved` says it."""
    ways = [
        {"case": {"$in": ["$_store.state", _IN_FLIGHT]}, "then": State.EXHAUSTED.value},
        {"case": {"$eq": ["$_store.state", State.ARCHIVED.value]}, "then": "$_store.archived_from"},
    ]
    return {"$switch": {"branches": ways, "default": "$_store.state"}}


_ORDERS = {GroupOrder.LETTERS: "count", GroupOrder.LAST_SEEN: "last", GroupOrder.FIRST_SEEN: "first"}


def _groups_of(condition: Fields, limit: int, skip: int, order: GroupOrder) -> list[Fields]:
    """The aggregation of groups: by group, state and source, then by group."""
    kinds = ("group", "state", "source")
    return [
        {"$match": condition},
        {
            "$group": {
                "_id": {name: f"$_store.{name}" for name in kinds},
                "count": {"$sum": 1},
                "first": {"$min": "$_store.first"},
                "last": {"$max": "$_store.last"},
            }
        },
        {
            "$group": {
                "_id": "$_id.group",
                "count": {"$sum": "$count"},
                "members": {"$push": {"state": "$_id.state", "source": "$_id.source", "count": "$count"}},
                "first": {"$min": "$first"},
                "last": {"$max": "$last"},
            }
        },
        {"$sort": {_ORDERS[order]: -1, "_id": 1}},
        {"$skip": skip},
        {"$limit": limit},
    ]


def _group(row: Fields, newest: Fields, oldest: Fields) -> Group:
    states: Counter[State] = Counter()
    for member in row["members"]:
        states[State(member["state"])] += member["count"]
    return Group(
        id=row["_id"],
        count=row["count"],
        error_type=newest["error_type"],
        message=newest["error"],
        category=Category(newest["category"]),
        sources=tuple(sorted({member["source"] for member in row["members"]})),
        states=dict(states),
        first_at=moment(row["first"]),
        last_at=moment(row["last"]),
        first_version=oldest.get("first_version", ""),
        last_version=newest.get("last_version", ""),
    )


async def _pages(cursor: AsyncIterator[Fields], size: int) -> AsyncIterator[list[Fields]]:
    page: list[Fields] = []
    async for document in cursor:
        page.append(document)
        if len(page) >= size:
            yield page
            page = []
    if page:
        yield page
