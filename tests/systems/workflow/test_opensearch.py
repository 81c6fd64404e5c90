"""Tasks in OpenSearch: the document's fields and queries, outages, restarts, several processors."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from opensearchpy import AsyncOpenSearch
from opensearchpy import OpenSearch as Blocking

from redrive.errors import ConfigError, StoreUnavailable
from redrive.forensics.query import Query
from redrive.model import Letter
from redrive.stores.memory import MemoryStore
from redrive.systems.workflow import DeadLetterQueue, DeadLetterStatus, RetryPolicy, WorkflowApp, WorkflowSettings
from redrive.systems.workflow.spool import SpooledStore
from redrive.telemetry.events import BackendDown, BackendUp, Event, Events
from redrive.testing.clock import ManualClock
from redrive.testing.waiting import until
from tests.servers.fixtures import StartsServer
from tests.servers.opensearch import OpenSearch
from tests.servers.toxiproxy import Proxy, Toxiproxy
from tests.systems.workflow.helpers import REPOS, TASK, Worker, enqueued, failing, status_of

INDEX = "mahavishnu_dlq"


@pytest_asyncio.fixture
async def client(opensearch_server: OpenSearch) -> AsyncIterator[AsyncOpenSearch]:
    async with AsyncOpenSearch(opensearch_server.url) as client:
        await _delete(client)
        yield client
        await _delete(client)


async def _delete(client: AsyncOpenSearch, index: str = INDEX) -> None:
    await client.indices.delete(index=f"{index}*", params={"ignore_unavailable": "true"})


async def _found(client: AsyncOpenSearch, query: dict[str, Any]) -> list[str]:
    await client.indices.refresh(index=INDEX)
    answer = await client.search(index=INDEX, body=query)
    return sorted(hit["_source"]["task_id"] for hit in answer["hits"]["hits"])


async def test_the_index_has_the_documents_fields_and_types(client: AsyncOpenSearch) -> None:
    async with DeadLetterQueue(opensearch_client=client) as dlq:
        task = await dlq.enqueue("wf", TASK, REPOS, "Connection timeout", metadata={"priority": "high"})
    answer = await client.indices.get_mapping(index=INDEX)
    fields = answer[INDEX]["mappings"]["properties"]
    assert {name: field.get("type", "object") for name, field in fields.items() if name != "redrive"} == {
        "task_id": "keyword",
        "task": "object",
        "repos": "keyword",
        "error": "text",
        "failed_at": "date",
        "retry_count": "integer",
        "max_retries": "integer",
        "retry_policy": "keyword",
        "next_retry_at": "date",
        "status": "keyword",
        "metadata": "object",
        "error_category": "keyword",
        "last_error": "text",
        "total_attempts": "integer",
        "updated_at": "date",
    }
    await client.indices.refresh(index=INDEX)
    [hit] = (await client.search(index=INDEX))["hits"]["hits"]
    assert {name: value for name, value in hit["_source"].items() if name != "redrive"} == task.to_dict()


async def test_the_documents_queries_find_what_they_should(client: AsyncOpenSearch) -> None:
    async with DeadLetterQueue(opensearch_client=client) as dlq:
        await enqueued(dlq, "exhausted", max_retries=1, error="rate limit")
        await dlq.run_retry_cycle(failing("rate limit"))
        await enqueued(dlq, "soon", retry_policy=RetryPolicy.LINEAR, error="Connection timeout")
        await enqueued(dlq, "never", retry_policy=RetryPolicy.NEVER, error="malformed")
        dlq.register_backoff("tomorrow", lambda retries: "1d")
        await enqueued(dlq, "tomorrow", retry_policy="tomorrow", error="busy")
        for name in ("status.keyword", "status"):
            assert await _found(client, {"query": {"term": {name: "exhausted"}}}) == ["exhausted"]
        for name in ("error_category.keyword", "error_category"):
            found = await _found(client, {"query": {"term": {name: "transient"}}})
            assert found == ["exhausted", "tomorrow"]
        assert await _found(client, {"query": {"range": {"next_retry_at": {"lte": "now+1h"}}}}) == ["soon"]
        assert await _found(client, {"query": {"match": {"error": "TIMEOUT"}}}) == ["soon"]


async def test_two_tasks_may_have_one_name_for_two_types(client: AsyncOpenSearch) -> None:
    async with DeadLetterQueue(opensearch_client=client) as dlq:
        tasks: list[dict[str, Any]] = [{"x": 1}, {"x": "text"}, {"x": {"y": []}}, {"": None, "a..b": [[1], ["x"]]}]
        for number, task in enumerate(tasks):
            await dlq.enqueue(f"t{number}", task, [], "x", metadata={"m": task})
        kept = {task.task_id: (task.task, task.metadata) for task in await dlq.list_tasks()}
        assert kept == {f"t{number}": (task, {"m": task}) for number, task in enumerate(tasks)}


async def test_metadata_is_searched(client: AsyncOpenSearch) -> None:
    async with DeadLetterQueue(opensearch_client=client) as dlq:
        await dlq.enqueue("wf_abc123", TASK, REPOS, "x", metadata=METADATA)
        await dlq.enqueue("other", TASK, REPOS, "x", metadata={"business_unit": "shipping", "since": "2030-01-01"})
        await dlq.enqueue("odd", TASK, REPOS, "x", metadata={"business_unit": "payments", "since": "long ago"})
        for name in ("metadata.business_unit", "metadata.business_unit.keyword"):
            assert await _found(client, {"query": {"term": {name: "payments"}}}) == ["odd", "wf_abc123"]
        delayed = {"range": {"metadata.slos.max_delay_minutes": {"gte": 15}}}
        assert await _found(client, {"query": delayed}) == ["wf_abc123"]


METADATA = {
    "workflow_type": "code_sweep",
    "priority": "high",
    "business_unit": "payments",
    "slos": {"max_delay_minutes": 15},
    "on_call_team": "platform-team",
}
KEYWORDS = ("task_id", "repos", "retry_policy", "status", "error_category")
DOCUMENTED = {
    **{key: {"type": "keyword"} for key in KEYWORDS},
    **{key: {"type": "object"} for key in ("task", "metadata")},
    **{key: {"type": "text"} for key in ("error", "last_error")},
    **{key: {"type": "date"} for key in ("failed_at", "next_retry_at", "updated_at")},
    **{key: {"type": "integer"} for key in ("retry_count", "max_retries", "total_attempts")},
}
THEIRS = {
    "task_id": "theirs",
    "task": {"type": "code_sweep", "depth": 3},
    "repos": ["/a"],
    "error": "Connection timeout",
    "failed_at": "2030-01-01T00:00:00+00:00",
    "retry_count": 0,
    "max_retries": 3,
    "retry_policy": "exponential",
    "next_retry_at": None,
    "status": "exhausted",
    "metadata": {"priority": "high", "weight": 1},
    "error_category": "transient",
    "last_error": "Connection timeout",
    "total_attempts": 1,
    "updated_at": "2030-01-01T00:00:00+00:00",
}


@pytest.mark.parametrize("made", ["by the document's mapping", "by its first document", "strictly", "by us, before"])
async def test_an_index_that_others_made_is_taken_and_searched_as_it_is(client: AsyncOpenSearch, made: str) -> None:
    if made == "by its first document":
        await client.index(index=INDEX, id="theirs", body=THEIRS, params={"refresh": "true"})
    else:
        dynamic = {"dynamic": "strict"} if made == "strictly" else {}
        unsearched = {"task": {"type": "object", "enabled": False}, "metadata": {"type": "object", "enabled": False}}
        fields = {**DOCUMENTED, **(unsearched if made == "by us, before" else {})}
        await client.indices.create(index=INDEX, body={"mappings": {**dynamic, "properties": fields}})
    async with DeadLetterQueue(opensearch_client=client) as dlq:
        odd: list[dict[str, Any]] = [{"type": {"a": 1}}, {"type": [1, "x"], "depth": "deep"}, {"type": "2030-01-01"}]
        for number, task in enumerate(odd):
            await dlq.enqueue(f"t{number}", task, REPOS, "rate limit", metadata={**METADATA, "weight": task})
        await dlq.enqueue("exhausted", TASK, REPOS, "rate limit", "immediate", 1, METADATA)
        await dlq.run_retry_cycle(failing("rate limit"))
        stats = await dlq.get_statistics()
        assert (stats["queue_size"], stats["persistence"]["waiting"]) == (4, 0)
        tasks = {task.task_id: (task.task, task.metadata["weight"]) for task in await dlq.list_tasks("pending")}
        assert tasks == {f"t{number}": (task, task) for number, task in enumerate(odd)}
        assert "exhausted" in await _found(client, {"query": {"term": {"status.keyword": "exhausted"}}})
        assert "exhausted" in await _found(client, {"query": {"term": {"error_category.keyword": "transient"}}})
        if made != "by us, before":
            found = await _found(client, {"query": {"match": {"metadata.business_unit": "payments"}}})
            assert "exhausted" in found
        assert await dlq.get_task("theirs") is None, "what is no letter is not ours"


async def test_an_index_that_cannot_hold_tasks_is_left_as_it_is_and_tasks_wait(client: AsyncOpenSearch) -> None:
    """Whoever enqueues is not told of it by an exception; he who looks is."""
    await client.indices.create(index=INDEX, body={"mappings": {"properties": {"status": {"type": "integer"}}}})
    facts: list[Event] = []
    async with DeadLetterQueue(opensearch_client=client, observability_manager=facts.append) as dlq:
        for name in "abc":
            await enqueued(dlq, name)
        with pytest.raises(ConfigError, match="status as integer"):
            await dlq.list_tasks()
        persistence = (await dlq.get_statistics())["persistence"]
        assert (persistence["available"], persistence["waiting"]) == (False, 3)
        assert "status as integer" in next(fact.why for fact in facts if isinstance(fact, BackendDown))
        assert (await client.indices.get_mapping(index=INDEX))[INDEX]["mappings"]["properties"] == {
            "status": {"type": "integer"}
        }
        assert await _found(client, {}) == []
        await _delete(client)
        await until(lambda: any(isinstance(fact, BackendUp) for fact in facts))
        assert await _found(client, {"query": {"exists": {"field": "task_id"}}}) == ["a", "b", "c"]


async def test_a_restart_finds_everything_and_two_processors_share_it(client: AsyncOpenSearch) -> None:
    running: set[str] = set()
    seen: list[str] = []

    async def callback(task: dict[str, Any], repos: list[str]) -> None:
        assert task["name"] not in running, "retried twice at once"
        running.add(task["name"])
        seen.append(task["name"])
        await asyncio.sleep(0.005)
        running.remove(task["name"])

    names = [f"t{number}" for number in range(30)]
    async with DeadLetterQueue(opensearch_client=client) as first:
        await asyncio.gather(*(enqueued(first, name) for name in names))
        stats = await first.get_statistics()
    queues = [DeadLetterQueue(opensearch_client=client, parallel=4) for _ in range(2)]
    after = await queues[0].get_statistics()
    assert {key: after[key] for key in ("queue_size", "status_breakdown", "error_categories", "retry_policies")} == {
        key: stats[key] for key in ("queue_size", "status_breakdown", "error_categories", "retry_policies")
    }
    await asyncio.gather(*(queue.run_retry_cycle(callback) for queue in queues))
    assert sorted(seen) == sorted(names)
    assert (await queues[0].get_statistics())["status_breakdown"]["resolved"] == 30
    for queue in queues:
        await queue.aclose()


async def test_the_app_keeps_its_failed_workflows_there(client: AsyncOpenSearch) -> None:
    async def sweep(task: dict[str, Any], repo: str) -> None:
        raise ConnectionError("the model server is away")

    async with WorkflowApp(WorkflowSettings(), adapters={"llamaindex": sweep}, opensearch_client=client) as app:
        assert app.opensearch_integration is not None
        result = await app.execute_workflow_parallel({"type": "code_sweep"}, "llamaindex", ["/a", "/b"])
        assert result["dlq_enqueued"]
        assert await _found(client, {"query": {"term": {"repos": "/a"}}}) == [result["dlq_task_id"]]


# -- away ------------------------------------------------------------------------------------------------------------


def _impatient(server: OpenSearch | Proxy, timeout: float = 10) -> AsyncOpenSearch:
    return AsyncOpenSearch(f"http://{server.address}", timeout=timeout, max_retries=0)


async def test_no_task_is_lost_or_doubled_when_opensearch_goes_and_comes(
    start_server: StartsServer, tmp_path: Path
) -> None:
    """Under load: two apps enqueue and retry while the cluster is killed and started. One has a spool on disk."""
    server = start_server(OpenSearch)
    facts: list[Event] = []
    running: set[str] = set()
    done: Counter[str] = Counter()

    async def callback(task: dict[str, Any], repos: list[str]) -> None:
        assert task["name"] not in running, "retried twice at once"
        running.add(task["name"])
        await asyncio.sleep(0.002)
        running.remove(task["name"])
        done[task["name"]] += 1

    async with _impatient(server) as one, _impatient(server) as two:
        first = DeadLetterQueue(opensearch_client=one, observability_manager=facts.append)
        second = DeadLetterQueue(opensearch_client=two, spool=tmp_path / "spool.db")
        names: list[str] = []

        async def enqueue(number: int) -> None:
            for _ in range(number):
                names.append(f"t{len(names)}")
                await enqueued((first, second)[len(names) % 2], names[-1])

        await enqueue(20)
        stopped = asyncio.Event()
        processors = [asyncio.create_task(_cycles(queue, callback, stopped)) for queue in (first, second)]
        await until(lambda: len(done) > 5)
        coming = asyncio.create_task(enqueue(40))
        await until(lambda: len(names) > 30)
        server.kill9()
        await coming
        for queue in (first, second):
            persistence = (await queue.get_statistics())["persistence"]
            assert not persistence["available"]
            assert persistence["waiting"] > 0
        with pytest.raises(StoreUnavailable):
            await second.list_tasks()
        server.start()
        await until(lambda: len(done) == 60, timeout=180, what="all tasks retried")

        async def resolved() -> bool:
            stats = [await queue.get_statistics() for queue in (first, second)]
            return [one["status_breakdown"]["resolved"] for one in stats] == [60, 60]

        await until(resolved, timeout=180)
        assert set(done) == set(names)
        again = sum(done.values()) - len(done)
        assert again == 0, "every outcome was kept until it could be written"
        told = [type(fact) for fact in facts if isinstance(fact, BackendDown | BackendUp)]
        assert (told[0], told[-1], told.count(BackendUp)) == (BackendDown, BackendUp, 1)
        stopped.set()
        await asyncio.gather(*processors)
        for queue in (first, second):
            assert (await queue.get_statistics())["persistence"]["waiting"] == 0
            await queue.aclose()


async def _cycles(queue: DeadLetterQueue, callback: Any, stopped: asyncio.Event) -> None:
    """One cycle after the other, without the pause of a processor."""
    while not stopped.is_set():
        with suppress(StoreUnavailable):
            await queue.run_retry_cycle(callback)
        await asyncio.sleep(0.05)


async def test_a_client_that_blocks_does(opensearch_server: OpenSearch, client: AsyncOpenSearch) -> None:
    """The document gives whatever client its app has."""
    with Blocking(opensearch_server.url) as blocking:
        async with DeadLetterQueue(opensearch_client=blocking) as dlq:
            await asyncio.gather(*(enqueued(dlq, f"t{number}") for number in range(5)))
            worker = Worker()
            await dlq.run_retry_cycle(worker)
            assert sorted(worker.seen) == [f"t{number}" for number in range(5)]
        assert blocking.ping(), "it is not ours to close"
    async with DeadLetterQueue(opensearch_client=client) as dlq:
        assert (await dlq.get_statistics())["status_breakdown"]["resolved"] == 5


async def test_a_client_that_blocks_and_finds_nobody_spools() -> None:
    with Blocking("http://127.0.0.1:9", max_retries=0) as nobody:
        async with DeadLetterQueue(opensearch_client=nobody) as dlq:
            await enqueued(dlq, "a")
            assert (await dlq.get_statistics())["persistence"]["waiting"] == 1


@pytest.mark.parametrize(
    "client", ["http://127.0.0.1:9200", object(), AsyncOpenSearch, 7], ids=["url", "object", "class", "number"]
)
def test_what_is_no_client_is_named(client: Any) -> None:
    with pytest.raises(ConfigError, match=r"is no client of OpenSearch: give an opensearchpy\.AsyncOpenSearch"):
        DeadLetterQueue(opensearch_client=client)


async def test_a_client_that_somebody_closed_spools(opensearch_server: OpenSearch) -> None:
    closed = AsyncOpenSearch(opensearch_server.url)
    async with DeadLetterQueue(opensearch_client=closed) as dlq:
        await closed.close()
        await closed.transport.close()
        await enqueued(dlq, "a")
        assert (await dlq.get_task("a")) is not None
    await closed.close()


class Broken(MemoryStore):
    """A store of somebody else, with a bug."""

    def __init__(self) -> None:
        super().__init__()
        self.mended = False
        keep = self.letters.record

        async def record(letters: Sequence[Letter]) -> None:
            if not self.mended:
                raise RuntimeError("a bug of theirs")
            await keep(letters)

        self.letters.record = record  # type: ignore[method-assign]


async def test_trouble_that_nobody_thought_of_spools(clock: ManualClock) -> None:
    facts: list[Event] = []
    broken, spool, events = Broken(), MemoryStore(), Events()
    events.subscribe(facts.append)
    store = SpooledStore(broken, spool, events, clock)
    async with DeadLetterQueue(store=store, clock=clock) as dlq:
        await enqueued(dlq, "a")
        assert store.letters.spooled == 1
        assert [fact.why for fact in facts if isinstance(fact, BackendDown)] == ["RuntimeError: a bug of theirs"]
        broken.mended = True

        async def is_handed_over() -> None:
            while store.letters.spooled:  # noqa: ASYNC110
                await asyncio.sleep(0.001)

        await clock.eventually(is_handed_over())
        assert await broken.letters.count(Query()) == 1


async def test_a_spool_on_disk_survives_the_process(
    opensearch_server: OpenSearch, client: AsyncOpenSearch, tmp_path: Path
) -> None:
    async with (
        AsyncOpenSearch("http://127.0.0.1:9", max_retries=0) as nobody,
        DeadLetterQueue(opensearch_client=nobody, spool=tmp_path / "spool.db") as away,
    ):
        await enqueued(away, "a", metadata={"n": 1})
        assert await status_of(away, "a") == "pending"
        await enqueued(away, "a", error="second", metadata={"n": 1})
        with pytest.raises(StoreUnavailable):
            await away.get_task("b")
        with pytest.raises(StoreUnavailable):
            await away.run_retry_cycle(Worker())
        with pytest.raises(StoreUnavailable):
            await away.retry_task("a")
        stats = await away.get_statistics()
        assert (stats["queue_size"], stats["retry_policies"]) == (1, {"immediate": 1})
    async with DeadLetterQueue(opensearch_client=client, spool=tmp_path / "spool.db") as back:
        worker = Worker()
        await back.run_retry_cycle(worker)
        assert worker.seen == ["a"]
        task = await back.get_task("a")
        assert task is not None
        assert (task.status, task.error, task.last_error) == (DeadLetterStatus.RESOLVED, "Connection timeout", "second")
        assert (await back.get_statistics())["persistence"] == {
            "available": True,
            "waiting": 0,
            "breakers": {"default": "closed"},
        }


@pytest.fixture
def proxy(toxiproxy_server: Toxiproxy, opensearch_server: OpenSearch) -> Proxy:
    return toxiproxy_server.proxy(opensearch_server.address)


@pytest.mark.usefixtures("client")
@pytest.mark.parametrize("answer", [True, False])
async def test_an_outcome_that_could_not_be_written_is_written_later(proxy: Proxy, answer: bool) -> None:
    async with _impatient(proxy) as cut, DeadLetterQueue(opensearch_client=cut) as dlq:

        async def callback(task: dict[str, Any], repos: list[str]) -> bool:
            proxy.cut()
            return answer

        await enqueued(dlq, "a", max_retries=1)
        cycle = await dlq.run_retry_cycle(callback)
        assert (cycle.started, cycle.succeeded, cycle.failed) == (1, 0, 0)
        proxy.mend()
        worker = Worker()
        await dlq.run_retry_cycle(worker)
        task = await dlq.get_task("a")
        assert task is not None
        assert worker.seen == []
        assert (task.status, task.retry_count) == ("resolved" if answer else "exhausted", 1)


@pytest.mark.usefixtures("client")
async def test_a_retry_by_hand_is_written_later_too(proxy: Proxy) -> None:
    async with _impatient(proxy) as cut, DeadLetterQueue(opensearch_client=cut) as dlq:

        async def callback(task: dict[str, Any], repos: list[str]) -> None:
            proxy.cut()

        dlq.retry_callback = callback
        await enqueued(dlq, "a", retry_policy=RetryPolicy.NEVER)
        assert (await dlq.retry_task("a"))["success"]
        proxy.mend()
        await dlq.run_retry_cycle()
        assert await status_of(dlq, "a") == "resolved"


async def test_what_only_memory_holds_at_the_end_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    async with AsyncOpenSearch("http://127.0.0.1:9", max_retries=0) as nobody:
        async with DeadLetterQueue(opensearch_client=nobody) as away:
            await enqueued(away, "a")
        assert "1 tasks are lost with this process: give the queue a spool on disk" in caplog.text


@pytest.mark.usefixtures("client")
async def test_an_answer_that_got_lost_doubles_nothing(proxy: Proxy) -> None:
    """The cluster takes the task, but we do not hear of it: it is spooled too, and still is one task."""
    async with _impatient(proxy, timeout=1) as deaf, DeadLetterQueue(opensearch_client=deaf) as dlq:
        await enqueued(dlq, "before")
        proxy.add("timeout", timeout=0)
        await enqueued(dlq, "lost answer")
        assert (await dlq.get_statistics())["persistence"]["waiting"] == 1
        proxy.remove("timeout")
        worker = Worker()
        await until(lambda: dlq.store.letters.is_available)  # type: ignore[attr-defined]
        await dlq.run_retry_cycle(worker)
        assert sorted(worker.seen) == ["before", "lost answer"]
        tasks = await dlq.list_tasks(DeadLetterStatus.RESOLVED)
        assert {task.task_id: task.total_attempts for task in tasks} == {"before": 2, "lost answer": 2}
