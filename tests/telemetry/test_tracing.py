"""One trace from the send over every retry and replay to the success, on a real SQLite app."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from opentelemetry import trace as otel
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, format_trace_id

from redrive import Policy, Redrive, immediate
from redrive.model import letter_id
from redrive.service import Service
from redrive.telemetry.events import BatchSettled, Event, LetterResolved, MessageBuried
from redrive.telemetry.tracing import trace
from redrive.worker import Worker
from tests.actors import acting


class Traced:
    """An app whose spans are kept."""

    def __init__(self, file: Path) -> None:
        self.app = Redrive(transport=f"sqlite:///{file}")
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        trace(self.app, self.provider)

    async def send(self, source: str, body: object, **options: object) -> int:
        """Within a span of the sender; its trace."""
        with self.provider.get_tracer("shop").start_as_current_span("checkout") as span:
            await self.app.send(source, body, **options)  # type: ignore[arg-type]
            return span.get_span_context().trace_id

    async def until(self, kind: type[Event]) -> None:
        worker = Worker(self.app, upkeep=False)
        end = self.app.events.subscribe(lambda event: worker.stop() if isinstance(event, kind) else None)
        async with asyncio.timeout(20):
            await worker.run()
        end()

    def attempts(self) -> list[ReadableSpan]:
        return [one for one in self.exporter.get_finished_spans() if one.kind is SpanKind.CONSUMER]


@pytest.fixture
async def traced(tmp_path: Path) -> AsyncIterator[Traced]:
    made = Traced(tmp_path / "redrive.db")
    async with made.app:
        yield made
    made.provider.shutdown()


async def test_the_trace_survives_retries_burial_and_replay(traced: Traced) -> None:
    broken = True

    @traced.app.handler("orders", policy=Policy(attempts=2, backoff=immediate()))
    async def charge(order: dict[str, int]) -> None:
        if broken:
            raise TimeoutError("password=hunter2")

    sent = await traced.send("orders", {"id": 7}, id="m1", tenant="acme", correlation_id="visit-7")
    await traced.until(MessageBuried)
    broken = False
    await Service(traced.app).retry(["m1"], actor=acting("me"))
    await traced.until(LetterResolved)

    first, second, third = traced.attempts()
    assert {one.context.trace_id for one in (first, second, third) if one.context} == {sent}
    assert all(one.parent is not None and one.name == "process orders" for one in (first, second, third))
    seen = [dict(one.attributes or {}) for one in (first, second, third)]
    assert [one["redrive.attempt"] for one in seen] == [1, 2, 1]
    assert seen[0]["messaging.destination.name"] == "orders"
    assert seen[0]["messaging.message.id"] == "m1"
    assert seen[0]["messaging.message.conversation_id"] == "visit-7"
    assert (seen[0]["messaging.operation.type"], seen[0]["messaging.message.body.size"]) == ("process", 8)
    assert seen[2]["redrive.letter"] == letter_id("orders", "m1")
    assert "redrive.letter" not in seen[0]
    assert [one.status.status_code for one in (first, second, third)] == [
        StatusCode.ERROR,
        StatusCode.ERROR,
        StatusCode.UNSET,
    ]
    (event,) = first.events
    assert (event.attributes or {})["exception.type"] == "TimeoutError"
    assert "hunter2" not in first.to_json()


async def test_a_handler_that_sends_on_stays_in_the_trace(traced: Traced) -> None:
    done = asyncio.Event()

    @traced.app.handler("orders")
    def charge(order: dict[str, int]) -> None:  # a thread sees the span of its attempt too
        asyncio.run_coroutine_threadsafe(traced.app.send("emails", order), loop).result(10)

    @traced.app.handler("emails")
    async def deliver(order: dict[str, int]) -> None:
        done.set()

    loop = asyncio.get_running_loop()
    sent = await traced.send("orders", {"id": 7})
    worker = Worker(traced.app, upkeep=False)
    running = asyncio.create_task(worker.run())
    async with asyncio.timeout(20):
        await done.wait()
        worker.stop()
        await running
    assert [one.context.trace_id for one in traced.attempts() if one.context] == [sent, sent]


async def test_an_attempt_that_times_out_is_a_failed_span(traced: Traced) -> None:
    @traced.app.handler("orders", policy=Policy(attempts=1, timeout=timedelta(milliseconds=20)))
    async def hang(order: dict[str, int]) -> None:
        await asyncio.Event().wait()

    await traced.send("orders", {"id": 7})
    await traced.until(MessageBuried)
    (span,) = traced.attempts()
    assert span.status.status_code is StatusCode.ERROR


async def test_a_sender_who_sets_a_trace_is_left_alone(traced: Traced) -> None:
    own = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with traced.provider.get_tracer("shop").start_as_current_span("checkout"):
        message = traced.app.message("orders", {}, headers={"Traceparent": own})
    assert message.headers == (("Traceparent", own.encode()),)


async def test_without_a_trace_nothing_is_added(traced: Traced) -> None:
    assert otel.get_current_span().get_span_context().is_valid is False
    assert traced.app.message("orders", {}).headers == ()


async def test_a_broken_trace_header_is_just_a_header(traced: Traced) -> None:
    done = asyncio.Event()

    @traced.app.handler("orders", policy=Policy(attempts=1))
    async def charge(order: dict[str, int]) -> None:
        done.set()
        raise ValueError("x")

    await traced.app.send("orders", {}, headers={"traceparent": b"\xff\x00", "tracestate": b"\xfe"})
    await traced.until(MessageBuried)
    (span,) = traced.attempts()
    assert span.parent is None
    assert span.context is not None
    assert len(format_trace_id(span.context.trace_id)) == 32


async def test_a_call_of_a_batch_handler_is_one_span_that_links_to_the_trace_of_each_message(traced: Traced) -> None:
    seen: list[int] = []

    @traced.app.handler("orders", batch=3, within="1s")
    async def store(orders: list[dict[str, int]]) -> None:
        seen.append(otel.get_current_span().get_span_context().span_id)

    sent = {await traced.send("orders", {"id": n}) for n in range(3)}
    await traced.until(BatchSettled)
    [span] = traced.attempts()
    assert span.attributes is not None
    assert span.context is not None
    assert (span.name, span.attributes["messaging.batch.message_count"]) == ("process orders", 3)
    assert {link.context.trace_id for link in span.links} == sent
    assert seen == [span.context.span_id]
    assert span.parent is None
