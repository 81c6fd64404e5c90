"""Letters in OpenSearch: recording them, and finding them among many, beside the client used bare."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from benchmarks.harness import (
    Cell,
    Contender,
    Measured,
    Numbers,
    Scale,
    Target,
    async_rate,
    in_loop,
    percentiles,
    say,
    side_by_side,
)
from benchmarks.samples import BATCH, batches, fresh, letters
from redrive.forensics.query import Query
from redrive.model import Category, Letter, State
from redrive.stores.opensearch import OpenSearchStore
from redrive.stores.opensearch.fields import create
from redrive.stores.shape import NATIVE

_INDEX = "redrive-bench"
_NO_SETTINGS = {"shards": 1, "replicas": "auto", "translog": "fsync of each request, as it is by default"}


# -- recording -------------------------------------------------------------------------------------------------------


def record(scale: Scale) -> Measured:
    """Letters a second in batches of 500, beside the client's own `async_bulk` of the same documents, made before the
    clock starts, in the same batches, into the same mapping."""
    count = scale.of(20_000, 1_000)
    new = list(fresh(0, count))
    documents = [_document(letter, number) for number, letter in enumerate(new)]
    with _server() as url:
        figures = side_by_side(
            {
                "redrive": lambda: in_loop(_recorded(url, lambda client, store: _record(store, new), count)),
                "async_bulk": lambda: in_loop(_recorded(url, lambda client, store: _bulk(client, documents), count)),
            },
            scale.rounds,
        )
    size = sum(len(msgspec.json.encode(document["_source"])) for document in documents) / count
    return Measured(
        redrive=figures.pop("redrive"),
        peers=figures,
        settings={"letters": count, "batch": BATCH, "bytes_a_document": round(size), **_NO_SETTINGS},
    )


def _document(letter: Letter, number: int) -> dict[str, Any]:
    source = create(letter, number, NATIVE).source
    assert source is not None
    return {"_op_type": "create", "_id": letter.id, "_source": msgspec.json.decode(source)}


async def _recorded(url: str, work: Callable[[Any, OpenSearchStore], Awaitable[None]], count: int) -> float:
    """Into indexes that are new, and deleted afterwards; the first write makes them, so it is not measured."""
    async with _client(url) as client:
        store = OpenSearchStore(client, index=_INDEX)
        try:
            await store.letters.record(list(letters(count, 1)))
            figure = await async_rate(count, work(client, store))
            assert await store.letters.count(Query()) == count + 1, "not every letter was written"
            return figure
        finally:
            await client.indices.delete(index=f"{_INDEX}*")


async def _record(store: OpenSearchStore, new: Sequence[Letter]) -> None:
    for some in batches(new):
        await store.letters.record(some)


async def _bulk(client: Any, documents: Sequence[dict[str, Any]]) -> None:
    from opensearchpy.helpers import async_bulk

    await async_bulk(client, documents, index=_INDEX, chunk_size=BATCH)


# -- finding ---------------------------------------------------------------------------------------------------------


def newest(scale: Scale) -> Measured:
    """The newest 50 of a state and category, beside the same search by the bare client, which refreshes nothing."""
    queries = [Query(states=(state,), categories=(category,)) for state in State for category in Category]
    bodies = [_newest_body(query) for query in queries]
    return _latencies(
        scale,
        lambda store, n: store.letters.search(queries[n % len(queries)], limit=50),
        {"bare search": lambda client, n: client.search(index=_INDEX, body=bodies[n % len(bodies)])},
        times=scale.of(300, 10),
    )


def groups(scale: Scale) -> Measured:
    """The overview of all groups, beside a bare count by group and state."""
    body = {
        "size": 0,
        "aggs": {
            "groups": {
                "terms": {"field": "redrive.group", "size": 50},
                "aggs": {"states": {"terms": {"field": "redrive.state"}}},
            }
        },
    }
    return _latencies(
        scale,
        lambda store, n: store.letters.groups(Query()),
        {"bare aggregation, not cached": lambda client, n: client.search(index=_INDEX, body=body, request_cache=False)},
        times=scale.of(30, 5),
    )


def _newest_body(query: Query) -> dict[str, Any]:
    assert query.states
    assert query.categories
    wanted = [{"term": {"redrive.state": query.states[0]}}, {"term": {"redrive.category": query.categories[0]}}]
    return {
        "size": 50,
        "track_total_hits": False,
        "query": {"bool": {"filter": wanted}},
        "sort": [{"redrive.created_at": "desc"}],
    }


Asks = Callable[[Any, int], Awaitable[Any]]


def _latencies(scale: Scale, ours: Asks, peers: dict[str, Asks], *, times: int) -> Measured:
    """The percentiles of the calmest round: a neighbour's work is not in our answer."""
    count = scale.of(200_000, 1_000)
    seen: dict[str, list[Numbers]] = {name: [] for name in ("redrive", *peers)}

    def measured(name: str, url: str, ask: Asks, bare: bool) -> Contender:
        def one() -> float:
            seen[name].append(percentiles(in_loop(_asked(url, ask, times, bare))))
            return seen[name][-1]["p99"]

        return one

    with _server() as url:
        in_loop(_filled(url, count))
        contenders = {"redrive": measured("redrive", url, ours, False)}
        contenders |= {name: measured(name, url, ask, True) for name, ask in peers.items()}
        figures = side_by_side(contenders, scale.rounds, of=min)
        in_loop(_emptied(url))
    return Measured(
        redrive=figures.pop("redrive"),
        peers=figures,
        details={name: min(rounds, key=lambda one: one["p99"]) for name, rounds in seen.items()},
        settings={"letters": count, **_NO_SETTINGS},
    )


async def _asked(url: str, ask: Asks, times: int, bare: bool) -> list[float]:
    """Seconds of each answer, after some to warm up."""
    async with _client(url) as client:
        asked = client if bare else OpenSearchStore(client, index=_INDEX)
        took = []
        for number in range(-(times // 10), times):
            began = time.perf_counter()
            await ask(asked, number)
            took.append(time.perf_counter() - began)
        return took[-times:]


async def _filled(url: str, count: int) -> None:
    say(f"  recording {count:,} letters")
    async with _client(url) as client:
        store = OpenSearchStore(client, index=_INDEX)
        for start in range(0, count, BATCH):
            await store.letters.record(list(letters(start, min(BATCH, count - start))))


async def _emptied(url: str) -> None:
    async with _client(url) as client:
        await client.indices.delete(index=f"{_INDEX}*")


# -- the server ------------------------------------------------------------------------------------------------------


def _client(url: str) -> Any:
    from opensearchpy import AsyncOpenSearch

    return AsyncOpenSearch(url, timeout=60)


@contextmanager
def _server() -> Iterator[str]:
    """One of our own, or that of REDRIVE_BENCH_OPENSEARCH."""
    if url := os.environ.get("REDRIVE_BENCH_OPENSEARCH"):
        yield url
        return
    from tests.servers.opensearch import OpenSearch

    with OpenSearch() as server:
        yield server.url


CELLS = (
    Cell(name="opensearch/record", unit="letters/s", measure=record, target=Target(ratio=0.7)),
    Cell(name="opensearch/newest", unit="ms p99", measure=newest, less_is_better=True),
    Cell(name="opensearch/groups", unit="ms p99", measure=groups, less_is_better=True),
)
