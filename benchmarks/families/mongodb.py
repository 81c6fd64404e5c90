"""Letters in MongoDB: recording them beside a bare bulk of the same documents, and finding them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import cache
from itertools import product
from typing import Any
from uuid import uuid4

from pymongo import AsyncMongoClient, ReplaceOne, WriteConcern
from tests.servers.mongodb import MongoDB

from benchmarks.harness import Cell, Measured, Scale, Target, async_rate, in_loop, percentiles, say, side_by_side
from benchmarks.samples import BATCH, batches, fresh
from redrive.forensics.query import Query
from redrive.model import Category, Letter, State
from redrive.stores.mongodb import MongoStore
from redrive.stores.mongodb.numbers import Numbers
from redrive.stores.mongodb.schema import written
from redrive.stores.shape import NATIVE

Fields = dict[str, Any]


@cache
def _server() -> MongoDB:
    """One for all cells; it ends with this process."""
    return MongoDB().start()


@asynccontextmanager
async def _database() -> AsyncIterator[tuple[AsyncMongoClient[Fields], str]]:
    name = f"bench_{uuid4().hex[:8]}"
    client: AsyncMongoClient[Fields] = AsyncMongoClient(_server().url)
    try:
        yield client, name
    finally:
        await client.drop_database(name)
        await client.close()


def record(scale: Scale) -> Measured:
    """Letters a second into an empty collection, in batches of 500, beside bulks of the same documents, made
    beforehand, into a collection that has no secondary index. All are journaled before they are answered."""
    count = scale.of(20_000, 1_000)
    letters = list(fresh(0, count))
    figures = side_by_side(
        {
            "redrive": lambda: in_loop(_record(letters)),
            "bulk upsert": lambda: in_loop(_bare(letters, _upsert)),
            "insert_many": lambda: in_loop(_bare(letters, _insert)),
        },
        scale.rounds,
    )
    insert = figures.pop("insert_many")
    return Measured(
        redrive=figures.pop("redrive"),
        peers=figures,
        details={"insert_many, which cannot be repeated": round(insert)},
        settings={"letters": count, "batch": BATCH, "write concern": "majority, journaled"},
    )


async def _record(letters: Sequence[Letter]) -> float:
    async with _database() as (client, name):
        store = MongoStore(client, database=name)
        await store.check()

        async def all_of_them() -> None:
            for batch in batches(letters, BATCH):
                await store.letters.record(batch)

        return await async_rate(len(letters), all_of_them())


async def _bare(letters: Sequence[Letter], write: Callable[[Any, Sequence[Fields]], Awaitable[object]]) -> float:
    numbers = Numbers()
    documents = [written(letter, NATIVE, numbers.next(), "", 0) for letter in letters]
    async with _database() as (client, name):
        concern = WriteConcern(w="majority", j=True)
        collection = client[name].get_collection("letters", write_concern=concern)
        await collection.insert_one({"_id": ""})

        async def all_of_them() -> None:
            for batch in batches(documents, BATCH):
                await write(collection, batch)

        return await async_rate(len(letters), all_of_them())


async def _upsert(collection: Any, documents: Sequence[Fields]) -> object:
    return await collection.bulk_write(
        [ReplaceOne({"_id": one["_id"]}, one, upsert=True) for one in documents], ordered=False
    )


async def _insert(collection: Any, documents: Sequence[Fields]) -> object:
    return await collection.insert_many(documents, ordered=False)


def newest(scale: Scale) -> Measured:
    """The newest 50 of a state and category among 100,000 letters, beside a bare find of the same documents."""
    return in_loop(_answers(scale, _newest, _bare_newest, "find, same index"))


def groups(scale: Scale) -> Measured:
    """All groups with their states and sources among 100,000 letters, beside a bare $group that counts."""
    return in_loop(_answers(scale, _groups, _bare_groups, "$group, counting only"))


Ask = Callable[[MongoStore, Any, int], Awaitable[object]]


async def _answers(scale: Scale, ours: Ask, bare: Ask, name: str) -> Measured:
    count, times = scale.of(100_000, 1_000), scale.of(200, 5)
    async with _database() as (client, database):
        store = MongoStore(client, database=database)
        say(f"  writing {count:,} letters")
        for batch in batches(list(fresh(0, count)), BATCH):
            await store.letters.record(batch)
        collection = client[database]["letters"]
        await ours(store, collection, 0)
        await bare(store, collection, 0)
        seconds: dict[str, list[float]] = {"redrive": [], name: []}
        for number in range(times):
            for who, ask in (("redrive", ours), (name, bare)):
                began = time.perf_counter()
                await ask(store, collection, number)
                seconds[who].append(time.perf_counter() - began)
    ms = {who: percentiles(some) for who, some in seconds.items()}
    return Measured(
        redrive=ms["redrive"]["p99"],
        peers={name: ms[name]["p99"]},
        details={"ms": ms},
        settings={"letters": count, "asked": times},
    )


_KINDS = list(product((State.PENDING, State.EXHAUSTED), Category))


async def _newest(store: MongoStore, _: Any, number: int) -> object:
    state, category = _KINDS[number % len(_KINDS)]
    return await store.letters.search(Query(states=(state,), categories=(category,)), limit=50)


async def _bare_newest(_: MongoStore, collection: Any, number: int) -> object:
    state, category = _KINDS[number % len(_KINDS)]
    found = collection.find({"_store.state": state.value, "_store.category": category.value})
    return await found.sort([("_store.created", -1), ("_store.seq", -1)]).limit(50).to_list()


async def _groups(store: MongoStore, _: Any, __: int) -> object:
    return await store.letters.groups(Query())


async def _bare_groups(_: MongoStore, collection: Any, __: int) -> object:
    cursor = await collection.aggregate([{"$group": {"_id": "$_store.group", "count": {"$sum": 1}}}])
    return await cursor.to_list()


CELLS = [
    Cell(name="mongodb/record", unit="letters/s", measure=record, target=Target(ratio=0.7)),
    Cell(name="mongodb/newest", unit="ms p99", measure=newest, target=Target(most=20.0), less_is_better=True),
    Cell(name="mongodb/groups", unit="ms p99", measure=groups, less_is_better=True),
]
