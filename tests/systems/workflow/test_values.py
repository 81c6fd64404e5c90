"""What a task is made of comes back to its callback as it was, whatever JSON thinks of it."""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any
from uuid import UUID

import msgspec
import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st
from opensearchpy import AsyncOpenSearch

from redrive.systems.workflow import DeadLetterQueue, ErrorCategory, RetryPolicy
from redrive.systems.workflow.values import read, written
from tests.servers.opensearch import OpenSearch
from tests.systems.workflow.helpers import REPOS, enqueued

VALUES: dict[str, Any] = {
    "a time": datetime(2030, 1, 1, 12, 30, 0, 7, tzinfo=UTC),
    "a time of nowhere": datetime(2030, 1, 1),
    "a time elsewhere": datetime(2030, 1, 1, tzinfo=timezone(timedelta(hours=-3, minutes=-30))),
    "a day": date(2030, 1, 1),
    "an hour": time(12, 30),
    "a span": timedelta(days=-3, microseconds=5),
    "a path": Path("/repos/ö"),
    "a path of bytes": Path("/repos/\udcff"),
    "a path of Windows": PureWindowsPath("C:\\repos"),
    "a pure path": PurePosixPath("a/b"),
    "a set": {"c", "a", "b"},
    "a set of many": {1, "1", None, (2, 3), frozenset({4})},
    "a frozen set": frozenset({1, 2}),
    "an empty set": set(),
    "bytes": b"\x00\xff",
    "more bytes": bytearray(b"abc"),
    "a tuple": (1, [2, (3,)]),
    "a decimal": Decimal("1.10"),
    "an id": UUID(int=7),
    "much": 2**70,
    "infinitely much": -math.inf,
    "half a character": "\ud800",
    "other keys": {1: "a", (2, 3): {"b"}, None: "c"},
    "all of it": {"a/b~c": [{"when": datetime(2030, 1, 1), "": {b"x"}}]},
    "a word": ErrorCategory.NETWORK,
    "JSON": {"a": [1, 2.5, "x", None, True, {"b": []}]},
}


@pytest.mark.parametrize("name", VALUES)
async def test_a_callback_gets_what_the_task_was_given(name: str, dlq: DeadLetterQueue) -> None:
    seen: list[Any] = []

    async def callback(task: dict[str, Any], repos: list[str]) -> bool:
        seen.append(task["value"])
        return len(seen) > 1

    value = VALUES[name]
    await dlq.enqueue("a", {"value": value}, REPOS, "x", metadata={"value": value}, retry_policy="immediate")
    kept = await dlq.get_task("a")
    assert kept is not None
    assert (kept.task, kept.metadata) == ({"value": value}, {"value": value})
    msgspec.json.encode(kept.to_dict())
    await dlq.run_retry_cycle(callback)
    await dlq.run_retry_cycle(callback)
    assert seen == [value, value]
    assert [type(one) for one in seen] == [str if name == "a word" else type(value)] * 2


async def test_the_same_set_is_the_same_task(dlq: DeadLetterQueue) -> None:
    words = [f"w{number}" for number in range(50)]
    await dlq.enqueue("a", {"words": set(words)}, REPOS, "x")
    words.sort(key=hash)
    again = await dlq.enqueue("a", {"words": set(words)}, REPOS, "y")
    assert again.last_error == "y"


async def test_repositories_may_be_paths(dlq: DeadLetterQueue) -> None:
    """Also where only some of them are left to do."""
    seen: list[Any] = []

    async def callback(task: dict[str, Any], repos: list[Any]) -> Any:
        seen.append((task["at"], repos))
        return {"status": "partial", "failed_repos": [Path("/c")]} if len(seen) == 1 else True

    repos: list[str | Path] = [Path("/a"), "/b", Path("/c")]
    await dlq.enqueue("a", {"at": date(2030, 1, 1)}, repos, "x", retry_policy="immediate")
    await dlq.run_retry_cycle(callback)
    await dlq.run_retry_cycle(callback)
    assert seen == [(date(2030, 1, 1), repos), (date(2030, 1, 1), [Path("/c")])]


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(), max_size=5)
    | st.binary(max_size=5)
    | st.datetimes()
    | st.timedeltas()
    | st.uuids()
    | st.builds(Path, st.sampled_from(["/a", "b/c", "."]))
)
keys = st.none() | st.integers() | st.text(max_size=3) | st.binary(max_size=3)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(keys, inner, max_size=3)
        | st.frozensets(scalars, max_size=3)
    ),
    max_leaves=12,
)


@given(values)
def test_whatever_is_written_is_read_again(value: Any) -> None:
    kinds: dict[str, str] = {}
    plain = msgspec.json.encode(written("task", value, kinds))
    again = read(msgspec.json.decode(plain), msgspec.json.decode(msgspec.json.encode(kinds)))
    assert (again, type(again)) == (value, type(value))


@given(values, st.dictionaries(st.sampled_from(["", "/a", "/0", "/a/0", "/x/y", "//"]), st.sampled_from(
    ["datetime", "set", "dict", "path", "int", "text", "bytes", "nonsense", "text+path", "tuple"]
)))  # fmt: skip
def test_kinds_that_fit_nothing_change_nothing_but_what_they_can(value: Any, kinds: dict[str, str]) -> None:
    """A person may have edited the body meanwhile."""
    read(msgspec.json.decode(msgspec.json.encode(written("task", value, {}))), kinds)


@pytest.mark.parametrize("given_", ["hgih", "urgent", 7, None, ["high"], {"level": 1}], ids=str)
async def test_an_odd_priority_is_taken_with_a_warning(
    given_: Any, dlq: DeadLetterQueue, caplog: pytest.LogCaptureFixture
) -> None:
    task = await enqueued(dlq, "a", metadata={"priority": given_})
    assert (task.metadata, task.letter.message.priority) == ({"priority": given_}, 0)
    [line] = [record for record in caplog.records if "priority" in record.getMessage()]
    assert line.levelno == logging.WARNING
    assert f"task 'a' has the priority {given_!r}: it is kept, and retried as medium" in line.getMessage()


async def test_a_priority_in_capitals_is_no_odd_one(dlq: DeadLetterQueue, caplog: pytest.LogCaptureFixture) -> None:
    task = await enqueued(dlq, "a", metadata={"priority": " High"})
    assert task.letter.message.priority == -1
    assert "has the priority" not in caplog.text


# -- in OpenSearch -----------------------------------------------------------------------------------------------------


@pytest_asyncio.fixture
async def client(opensearch_server: OpenSearch) -> AsyncIterator[AsyncOpenSearch]:
    async with AsyncOpenSearch(opensearch_server.url, timeout=60) as client:
        yield client
        await client.indices.delete(index="workflow_values*", ignore_unavailable=True)


async def test_all_of_them_are_kept_in_opensearch(client: AsyncOpenSearch) -> None:
    async with DeadLetterQueue(opensearch_client=client, index="workflow_values") as dlq:
        for name, value in VALUES.items():
            await dlq.enqueue(name, {"v": {name: value}}, REPOS, "x", metadata={name: value}, retry_policy="never")
        tasks = {task.task_id: task for task in await dlq.list_tasks()}
        assert {name: tasks[name].task["v"][name] for name in VALUES} == VALUES
        assert {name: tasks[name].metadata[name] for name in VALUES} == VALUES
        assert (await dlq.get_statistics())["persistence"]["waiting"] == 0


def test_words_print_as_the_document_shows_them() -> None:
    shown = {RetryPolicy.NEVER: [ErrorCategory.NETWORK]}
    assert f"{shown} {RetryPolicy.LINEAR}" == "{'never': ['network']} linear"
