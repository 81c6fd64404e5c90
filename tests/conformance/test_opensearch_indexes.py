"""What is special about OpenSearch: mappings, shapes that people search by hand, and more than 10,000 of anything."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from opensearchpy import AsyncOpenSearch

from redrive.errors import ConfigError, StoreUnavailable
from redrive.forensics.query import Query
from redrive.model import State
from redrive.stores.opensearch import OpenSearchStore, open_store
from redrive.stores.opensearch.access import Refused
from redrive.stores.shape import Document
from redrive.testing.builders import make_failure, make_letter, make_message
from redrive.testing.clock import START
from tests.conformance.opensearch_indexes import TaskShape
from tests.servers.opensearch import OpenSearch

ALL = Query()
ROOT = Path(__file__).parents[2]
MANY = 10_500


@pytest_asyncio.fixture
async def client(opensearch_server: OpenSearch) -> AsyncIterator[AsyncOpenSearch]:
    async with AsyncOpenSearch(opensearch_server.url, timeout=60) as client:
        yield client
        await client.indices.delete(index="special*", ignore_unavailable=True)


async def made(client: AsyncOpenSearch, properties: dict[str, Any], index: str = "special") -> None:
    await client.indices.create(index=index, body={"mappings": {"properties": properties}})


async def indexes(client: AsyncOpenSearch) -> set[str]:
    return set(await client.indices.get(index="special*"))


# -- mappings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("properties", "field", "wanted", "found"),
    [
        ({"redrive": {"properties": {"state": {"type": "text"}}}}, "redrive.state", "keyword", "text"),
        ({"redrive": {"type": "keyword"}}, "redrive", "object", "keyword"),
        ({"status": {"type": "long"}}, "status", "keyword", "long"),
        ({"task": {"type": "text"}}, "task", "object (not searched)", "text"),
    ],
)
async def test_an_index_with_a_wrong_mapping_is_told_and_left_alone(
    client: AsyncOpenSearch, properties: dict[str, Any], field: str, wanted: str, found: str
) -> None:
    await made(client, properties)
    before = await client.indices.get_mapping(index="special")
    store = OpenSearchStore(client, index="special", shape=TaskShape())
    for work in (store.letters.record([make_letter()]), store.letters.count(ALL), store.check()):
        with pytest.raises(ConfigError) as caught:
            await work
        for word in ("'special'", f" {field} ", f"as {found},", f"needs {wanted}:"):
            assert word in str(caught.value)
    assert await client.indices.get_mapping(index="special") == before
    assert await indexes(client) == {"special"}, "nothing was made beside it"
    assert (await client.count(index="special"))["count"] == 0


async def test_an_index_that_lacks_our_fields_gets_them_and_keeps_what_is_in_it(client: AsyncOpenSearch) -> None:
    await made(client, {"status": {"type": "keyword"}})
    await client.index(index="special", id="theirs", body={"status": "pending"})
    store = OpenSearchStore(client, index="special", shape=TaskShape())
    letter = make_letter()
    await store.letters.record([letter])
    assert (await store.letters.search(ALL)).letters == (letter,), "a document that is no letter is not ours"
    assert await store.letters.get("theirs") is None
    assert await store.letters.prune(ALL, limit=10) == [letter.id]
    assert (await client.get(index="special", id="theirs"))["_source"] == {"status": "pending"}


async def test_an_alias_of_several_indexes_is_no_place_to_write(client: AsyncOpenSearch) -> None:
    for name in ("special-a", "special-b"):
        await client.indices.create(index=name, body={"aliases": {"special": {}}})
    with pytest.raises(ConfigError, match="alias of 2 indexes"):
        await OpenSearchStore(client, index="special").letters.record([make_letter()])


async def test_many_stores_make_the_indexes_at_once(client: AsyncOpenSearch) -> None:
    stores = [OpenSearchStore(client, index="special") for _ in range(6)]
    await asyncio.gather(*(store.letters.record([make_letter()]) for store in stores))
    assert await stores[0].letters.count(ALL) == 6
    assert await indexes(client) == {"special", "special-ledger", "special-documents", "special-series"}


async def test_indexes_that_somebody_else_is_just_making_are_waited_for(client: AsyncOpenSearch) -> None:
    """Until a node has their shards they answer nothing: here none may have them."""
    held = {"settings": {"index.routing.allocation.enable": "none"}}
    for index in ("special", "special-ledger", "special-documents", "special-series"):
        await client.indices.create(index=index, body=held, params={"wait_for_active_shards": "0"})
    store = OpenSearchStore(client, index="special", timeout=timedelta(minutes=2))
    reading = asyncio.create_task(store.documents.get("kind", "id"))
    early, _ = await asyncio.wait([reading], timeout=1)
    assert not early
    await client.indices.put_settings(index="special*", body={"index.routing.allocation.enable": "all"})
    assert await reading is None


async def test_looking_makes_nothing(client: AsyncOpenSearch) -> None:
    await OpenSearchStore(client, index="special").check()
    assert await indexes(client) == set()


async def test_indexes_that_somebody_deletes_are_made_again(client: AsyncOpenSearch) -> None:
    store = OpenSearchStore(client, index="special")
    await store.letters.record([make_letter()])
    await client.indices.delete(index="special*")
    with pytest.raises(StoreUnavailable, match="no such index"):
        await store.letters.count(ALL)
    assert await store.letters.count(ALL) == 0
    await store.letters.record([make_letter()])
    assert await store.letters.count(ALL) == 1


async def test_the_settings_of_the_url_are_those_of_the_index(
    client: AsyncOpenSearch, opensearch_server: OpenSearch
) -> None:
    store = open_store(f"opensearch://{opensearch_server.address}/special?shards=2&replicas=0&timeout=60s")
    letters = [make_letter(make_message(source=f"source-{n % 3}"), group=f"group-{n % 7}") for n in range(50)]
    await store.letters.record(letters)
    settings = (await client.indices.get_settings(index="special"))["special"]["settings"]["index"]
    assert (settings["number_of_shards"], settings["number_of_replicas"]) == ("2", "0")
    groups = await store.letters.groups(ALL, limit=1)
    assert [(group.id, group.count) for group in groups] == [("group-0", 8)], "exact over shards, too"
    await store.aclose()


# -- documents that people read --------------------------------------------------------------------------------------


async def test_whoever_searches_by_hand_sees_the_truth(client: AsyncOpenSearch) -> None:
    """The shape's own fields change with the letter, and can be searched by their own types."""
    store = OpenSearchStore(client, index="special", shape=TaskShape())
    letter = make_letter(make_message(id="task-1"), make_failure(message="No such user"), next_retry_at=START)
    await store.letters.record([letter])

    async def seen(**term: str) -> dict[str, Any]:
        await client.indices.refresh(index="special")
        [hit] = (await client.search(index="special", body={"query": {"term": term}}))["hits"]["hits"]
        return {name: hit["_source"][name] for name in ("status", "retry_count", "next_retry_at", "updated_at")}

    assert await seen(task_id="task-1") == {
        "status": "pending",
        "retry_count": 0,
        "next_retry_at": START.isoformat(),
        "updated_at": START.isoformat(),
    }
    later = START + timedelta(hours=1)
    await store.letters.claim(ALL, to=State.RETRYING, owner="me", now=later, until=later, limit=1)
    assert (await seen(status="retrying"))["retry_count"] == 1
    await store.letters.move([letter.id], expect=[State.RETRYING], to=State.EXHAUSTED, now=later)
    assert await seen(status="exhausted") == {
        "status": "exhausted",
        "retry_count": 0,
        "next_retry_at": START.isoformat(),
        "updated_at": later.isoformat(),
    }
    again = make_letter(letter.message, make_failure(attempt=2, message="Timed out"), at=later)
    await store.letters.record([again])
    await seen(error="timed")


async def test_a_client_of_somebody_else_stays_open(client: AsyncOpenSearch) -> None:
    store = OpenSearchStore(client, index="special")
    await store.letters.record([make_letter()])
    await store.aclose()
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.letters.count(ALL)
    assert await client.ping()


# -- odd and large ---------------------------------------------------------------------------------------------------


async def test_words_that_are_longer_than_an_index_can_hold(client: AsyncOpenSearch) -> None:
    store = OpenSearchStore(client, index="special")
    long = ["ä" * 20_000, "ä" * 20_000 + "b"]
    letters = [
        make_letter(make_message(id=word, tenant=word, correlation_id=word), make_failure(type=word, message=word))
        for word in long
    ]
    await store.letters.record(letters)
    for word, letter in zip(long, letters, strict=True):
        for query in (Query(message_ids=(word,)), Query(tenants=(word,)), Query(error_type=word)):
            assert (await store.letters.search(query)).letters == (letter,)
    assert await store.letters.count(Query(text=long[1])) == 1


async def test_one_letter_that_is_refused_holds_up_no_other(client: AsyncOpenSearch) -> None:
    class Bad(TaskShape):
        def dump(self, letter: Any) -> Document:
            document = super().dump(letter)
            return {**document, "updated_at": "yesterday"} if letter.message.id == "bad" else document

    store = OpenSearchStore(client, index="special", shape=Bad())
    with pytest.raises(Refused, match=r"refuses 1 of 3 documents: .*updated_at"):
        await store.letters.record([make_letter(), make_letter(make_message(id="bad")), make_letter()])
    assert await store.letters.count(ALL) == 2


async def test_more_of_everything_than_a_page_of_results_may_hold(opensearch_server: OpenSearch) -> None:
    store = open_store(f"opensearch://{opensearch_server.address}/special-many?timeout=60s")
    letters = [
        make_letter(make_message(id=f"{n:05}", body=b""), at=START + timedelta(seconds=n), group=f"group-{n:05}")
        for n in range(MANY)
    ]
    ids = [letter.id for letter in letters]
    await store.letters.record(letters)
    assert await store.letters.count(ALL) == MANY
    assert len(await store.letters.groups(ALL)) == 50
    page = await store.letters.search(ALL, limit=MANY + 1, oldest_first=True)
    assert [letter.id for letter in page.letters] == ids
    assert await store.letters.count(Query(ids=tuple(ids))) == MANY
    assert await store.ledger.freeze("r", ALL, now=START) == MANY
    entries, _ = await store.ledger.entries("r", limit=MANY + 1)
    assert [entry.letter for entry in entries] == ids
    call: dict[str, Any] = {"to": State.REPLAYING, "owner": "me", "now": START, "until": START}
    assert [letter.id for letter in await store.letters.claim(ALL, limit=5, **call)] == ids[:5]
    assert await store.letters.prune(ALL, limit=MANY) == ids[5:]
    await store.aclose()


# -- several processes -----------------------------------------------------------------------------------------------


async def started(script: str, *arguments: str) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, *arguments, cwd=ROOT, stdin=pipe, stdout=pipe
    )


_CLAIMER = """
import asyncio, sys
from datetime import timedelta
from redrive.forensics.query import Query
from redrive.model import State
from redrive.registry import open_store
from redrive.testing.clock import START

async def main(url, owner):
    store = open_store(url)
    print("ready", flush=True)
    sys.stdin.readline()
    call = dict(to=State.RETRYING, owner=owner, now=START, until=START + timedelta(hours=1), limit=9)
    while some := await store.letters.claim(Query(states=(State.PENDING,)), **call):
        print(*(letter.id for letter in some), flush=True)
    await store.aclose()

asyncio.run(main(*sys.argv[1:]))
"""


async def test_processes_that_claim_at_once_never_get_one_letter(
    client: AsyncOpenSearch, opensearch_server: OpenSearch
) -> None:
    url = f"opensearch://{opensearch_server.address}/special?timeout=60s"
    store = open_store(url)
    letters = [make_letter() for _ in range(150)]
    await store.letters.record(letters)
    owners = ["ann", "bob", "eve"]
    children = [await started(_CLAIMER, url, owner) for owner in owners]
    for child in children:
        assert child.stdout
        assert await child.stdout.readline() == b"ready\n"
    answers = await asyncio.gather(*(child.communicate(b"\n") for child in children))
    got = [printed.decode().split() for printed, _ in answers]
    taken = [id for some in got for id in some]
    assert len(taken) == len(set(taken)) == len(letters)
    for owner, some in zip(owners, got, strict=True):
        assert {one.owner for one in (await store.letters.search(Query(ids=tuple(some)), limit=200)).letters} <= {owner}
    await store.aclose()


_KILLED = """
import asyncio, os, signal, sys
from redrive.forensics.query import Query
from redrive.registry import open_store
from redrive.testing.clock import START

async def main(url):
    store = open_store(url)
    async def dies(kind, *arguments, **more):
        os.kill(os.getpid(), signal.SIGKILL)
    store.documents.put = dies
    await store.ledger.freeze("r", Query(), now=START)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_freeze_that_was_killed_left_nothing_that_counts(
    client: AsyncOpenSearch, opensearch_server: OpenSearch
) -> None:
    url = f"opensearch://{opensearch_server.address}/special?timeout=60s"
    store = open_store(url)
    first = [make_letter() for _ in range(5)]
    await store.letters.record(first)
    child = await started(_KILLED, url)
    await child.communicate()
    assert child.returncode == -signal.SIGKILL
    await client.indices.refresh(index="special-ledger")
    assert (await client.count(index="special-ledger"))["count"] == 5, "it had written all of its lines"
    assert await store.ledger.tally("r") == {}
    await store.letters.prune(Query(ids=(first[0].id,)), limit=1)
    later = make_letter(at=START + timedelta(hours=1))
    await store.letters.record([later])
    assert await store.ledger.freeze("r", ALL, now=START) == 5
    entries, _ = await store.ledger.entries("r")
    assert {entry.letter for entry in entries} == {one.id for one in [*first[1:], later]}
    await store.aclose()


async def test_of_two_who_freeze_at_once_one_selection_counts(client: AsyncOpenSearch) -> None:
    stores = [OpenSearchStore(client, index="special") for _ in range(4)]
    await stores[0].letters.record([make_letter() for _ in range(20)])
    numbers = await asyncio.gather(*(store.ledger.freeze("r", ALL, now=START) for store in stores))
    assert numbers == [20] * 4
    await client.indices.refresh(index="special-ledger")
    assert (await client.count(index="special-ledger"))["count"] == 20, "who came second took his lines back"
