"""What happens to tasks is logged, counted, and told to the observability object that an app has."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from opensearchpy import AsyncOpenSearch

from redrive.systems.workflow import DeadLetterQueue, DependencyCycle, RetryPolicy, metrics_of
from redrive.telemetry.events import Event, Events
from redrive.testing.clock import ManualClock
from redrive.testing.waiting import until
from tests.servers.opensearch import OpenSearch
from tests.servers.toxiproxy import Toxiproxy
from tests.systems.workflow.helpers import Worker, enqueued, failing

HAPPENED = [
    ("INFO", "Task enqueued in dead letter queue"),
    ("WARNING", "Task retry failed"),
    ("WARNING", "Task retry failed"),
    ("ERROR", "Task retries exhausted"),
    ("INFO", "Task retry succeeded"),
]


async def _lived(dlq: DeadLetterQueue) -> None:
    """Enqueued, exhausted by two retries, and mended by hand."""
    await enqueued(dlq, "a", max_retries=2, error="password=hunter2 was refused, connection reset")
    await dlq.run_retry_cycle(failing())
    await dlq.run_retry_cycle(failing())
    dlq.retry_callback = Worker()
    await dlq.retry_task("a")


async def test_a_line_is_logged_for_each(dlq: DeadLetterQueue, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    await _lived(dlq)
    lines = [record for record in caplog.records if record.name == "redrive.workflow"]
    assert sorted((line.levelname, line.getMessage().partition(" (")[0]) for line in lines) == sorted(HAPPENED)
    assert {line.__dict__["task_id"] for line in lines} == {"a"}
    assert "hunter2" not in caplog.text
    assert "retry_policy=immediate, max_retries=2, error_category=network" in lines[0].getMessage()


async def test_a_flood_is_some_lines_and_a_count(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with DeadLetterQueue(clock=clock) as dlq:
        for number in range(100):
            await enqueued(dlq, f"t{number}")
        await clock.advance(2)
        await enqueued(dlq, "later")
    texts = [record.getMessage() for record in caplog.records if "enqueued" in record.getMessage()]
    assert len(texts) == 22
    assert texts[-2] == "Task enqueued in dead letter queue: 80 more lines like this were left out"


class Counter:
    def __init__(self) -> None:
        self.total = 0

    def add(self, amount: int, attributes: dict[str, Any]) -> None:
        self.total += amount


class Meter:
    def __init__(self) -> None:
        self.counters: dict[str, Counter] = {}

    def create_counter(self, name: str) -> Counter:
        return self.counters.setdefault(name, Counter())


class Manager:
    """As the document's app has one."""

    def __init__(self) -> None:
        self.meter = Meter()
        self.lines: list[tuple[str, str, dict[str, Any]]] = []

    def log_info(self, message: str, attributes: dict[str, Any] | None = None) -> None:
        self.lines.append(("INFO", message, attributes or {}))

    def log_warning(self, message: str, attributes: dict[str, Any] | None = None) -> None:
        self.lines.append(("WARNING", message, attributes or {}))

    def log_error(self, message: str, attributes: dict[str, Any] | None = None) -> None:
        self.lines.append(("ERROR", message, attributes or {}))


async def test_an_observability_manager_is_told(clock: ManualClock) -> None:
    manager = Manager()
    async with DeadLetterQueue(clock=clock, observability_manager=manager) as dlq:
        await _lived(dlq)
    assert sorted((level, text) for level, text, _ in manager.lines) == sorted(HAPPENED)
    assert {fields["task_id"] for _, _, fields in manager.lines} == {"a"}
    assert {name: counter.total for name, counter in manager.meter.counters.items()} == {
        "mahavishnu.dlq.enqueued": 1,
        "mahavishnu.dlq.retried": 3,
        "mahavishnu.dlq.exhausted": 1,
        "mahavishnu.dlq.backend_down": 0,
    }


class Simple:
    """One method, and no attributes."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def log_info(self, message: str) -> None:
        self.lines.append(message)


class Failing:
    def log_info(self, message: str, **attributes: Any) -> None:
        raise RuntimeError("their bug")


async def test_a_simple_one_is_told_in_words_and_a_failing_one_harms_nobody(clock: ManualClock) -> None:
    simple = Simple()
    async with DeadLetterQueue(clock=clock, observability_manager=simple) as dlq:
        await _lived(dlq)
    assert len(simple.lines) == len(HAPPENED)
    assert "task_id=a" in simple.lines[0]
    async with DeadLetterQueue(clock=clock, observability_manager=Failing()) as dlq:
        await _lived(dlq)


async def test_a_logger_is_told(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with DeadLetterQueue(clock=clock, observability_manager=logging.getLogger("theirs")) as dlq:
        await _lived(dlq)
    theirs = [record for record in caplog.records if record.name == "theirs"]
    assert sorted((line.levelname, line.getMessage().partition(" (")[0]) for line in theirs) == sorted(HAPPENED)


async def test_an_object_with_events_of_its_own_is_told_there(clock: ManualClock) -> None:
    class Theirs:
        events = Events()

    seen: list[Event] = []
    Theirs.events.subscribe(seen.append)
    async with DeadLetterQueue(clock=clock, observability_manager=Theirs()) as dlq:
        await enqueued(dlq, "a")
    assert "TaskEnqueued" in [type(event).__name__ for event in seen]


async def test_metrics_count_what_happens(clock: ManualClock) -> None:
    async with DeadLetterQueue(clock=clock) as dlq:
        metrics = metrics_of(dlq)
        await _lived(dlq)
        await enqueued(dlq, "b", error="malformed", retry_policy=RetryPolicy.NEVER)
        text = metrics.render(None).decode()
        metrics.close()
        await enqueued(dlq, "c")
        assert metrics.render(None).decode() == text
    for line in (
        'redrive_workflow_enqueued_total{category="network",policy="immediate"} 1.0',
        'redrive_workflow_enqueued_total{category="validation",policy="never"} 1.0',
        'redrive_workflow_retries_total{outcome="failed"} 2.0',
        'redrive_workflow_retries_total{outcome="success"} 1.0',
        "redrive_workflow_exhausted_total 1.0",
        "redrive_workflow_store_up 1.0",
        'redrive_queue_utilisation{queue="workflow"}',
    ):
        assert line in text


async def test_opensearch_away_and_back_is_told(
    opensearch_server: OpenSearch, toxiproxy_server: Toxiproxy, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    proxy, manager = toxiproxy_server.proxy(opensearch_server.address), Manager()
    async with (
        AsyncOpenSearch(f"http://{proxy.address}", timeout=30, max_retries=0) as client,
        DeadLetterQueue(opensearch_client=client, index="workflow_told", observability_manager=manager) as dlq,
    ):
        metrics = metrics_of(dlq)
        await enqueued(dlq, "a")
        proxy.cut()
        await enqueued(dlq, "b")
        assert "redrive_workflow_store_up 0.0" in metrics.render(None).decode()
        assert "opensearch is away: what is enqueued meanwhile is spooled" in caplog.text
        assert "Task enqueued in dead letter queue, and waits for its store" in caplog.text
        proxy.mend()
        await until(lambda: "opensearch is back" in caplog.text)
        assert "redrive_workflow_store_up 1.0" in metrics.render(None).decode()
        texts = [text for _, text, _ in manager.lines]
        assert "opensearch is back" in texts
        await client.indices.delete(index="workflow_told*")


# -- dependencies ------------------------------------------------------------------------------------------------------


async def test_a_circle_is_found_when_it_is_closed(dlq: DeadLetterQueue) -> None:
    await enqueued(dlq, "a", after="c")
    await enqueued(dlq, "b", after=["x", "a"])
    with pytest.raises(
        DependencyCycle, match="task 'c' was not enqueued: 'c' waits for 'b' waits for 'a' waits for 'c'"
    ):
        await enqueued(dlq, "c", after="b")
    assert await dlq.get_task("c") is None
    with pytest.raises(DependencyCycle, match="'d' waits for 'd'"):
        await enqueued(dlq, "d", after="d")


async def test_what_is_over_closes_no_circle(dlq: DeadLetterQueue) -> None:
    await enqueued(dlq, "a", after="b")
    await dlq.archive_task("a")
    await enqueued(dlq, "b", after="a")


async def test_an_id_that_nobody_knows_is_said(dlq: DeadLetterQueue, caplog: pytest.LogCaptureFixture) -> None:
    await enqueued(dlq, "a")
    await enqueued(dlq, "b", after=["a", "nobody", "noone"])
    assert "task 'b' is to wait for 'nobody', 'noone', which the queue does not know" in caplog.text
    caplog.clear()
    await enqueued(dlq, "c", after=["a", "b"])
    assert "does not know" not in caplog.text


async def test_a_long_chain_is_no_circle(dlq: DeadLetterQueue) -> None:
    for number in range(60):
        await enqueued(dlq, f"t{number}", after=[f"t{other}" for other in range(max(0, number - 3), number)])
    with pytest.raises(DependencyCycle):
        await enqueued(dlq, "t0", after="t59")
