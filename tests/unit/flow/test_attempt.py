"""One attempt: whatever a handler does, it is None or a Failure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from redrive import Category, Message, Permanent, Redrive, Transient
from redrive.flow.attempt import attempt
from redrive.flow.context import Context
from redrive.flow.deadline import Deadline, Deadlines
from redrive.model import Failure, Stage
from redrive.testing.builders import make_message
from tests.unit.support import SOON, World

MESSAGE = make_message(body=b'{"id":7}', attempt=3)


@dataclass
class Order:
    id: int


async def _attempt(function: Callable[..., Any], message: Message = MESSAGE, **options: Any) -> Failure | None:
    return await _on(World().context(function, **options), message)


async def _on(context: Context, message: Message = MESSAGE) -> Failure | None:
    return await attempt(context, message, Deadline(Deadlines(context.handler.timeout)))


def _raising(error: BaseException) -> Callable[..., Any]:
    async def handler(body: Any) -> None:
        raise error

    return handler


@pytest.fixture
async def app() -> AsyncIterator[Redrive]:
    async with Redrive(transport="memory://", store="memory://") as app:
        yield app


def _registered(app: Redrive, function: Callable[..., Any]) -> Context:
    app.handler("orders")(function)
    return app.context(app.handlers["orders"])


async def test_an_async_handler_gets_the_body_decoded() -> None:
    seen: list[Order] = []

    async def handler(order: Order) -> None:
        seen.append(order)

    assert await _attempt(handler) is None
    assert seen == [Order(7)]


async def test_a_second_parameter_gets_the_message() -> None:
    seen: list[Message] = []

    async def handler(order: Order, message: Message) -> None:
        seen.append(message)

    assert await _attempt(handler) is None
    assert seen == [MESSAGE]


async def test_a_failure_is_plain_data() -> None:
    world = World()
    failure = await _on(world.context(_raising(ConnectionResetError("peer went away"))))
    assert failure is not None
    assert (failure.type, failure.message) == ("ConnectionResetError", "peer went away")
    assert (failure.category, failure.retryable, failure.stage) == (Category.NETWORK, True, Stage.HANDLE)
    assert (failure.at, failure.attempt) == (world.clock.now(), 3)
    assert (failure.worker, failure.version) == ("worker-1", "1.2.3")
    assert "in handler" in failure.stack
    assert failure.frames == (f"{__name__}:_raising.handler",)


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b'{"id":"seven"}', b"[]", b"[" * 100_000])
async def test_a_body_that_does_not_decode_is_a_validation_failure_and_the_handler_is_not_called(body: bytes) -> None:
    async def handler(order: Order) -> None:
        raise AssertionError("called")

    failure = await _attempt(handler, make_message(body=body))
    assert failure is not None
    assert (failure.stage, failure.category, failure.retryable) == (Stage.DECODE, Category.VALIDATION, False)


@pytest.mark.parametrize(
    "error",
    [
        SystemExit(3),
        asyncio.CancelledError(),
        TimeoutError("of the handler's own"),
        BaseExceptionGroup("both", [SystemExit(1), ValueError("x")]),
        BaseExceptionGroup("cancelled", [asyncio.CancelledError()]),
        ExceptionGroup("many", [ValueError("x"), KeyError("y")]),
        type("Odd", (BaseException,), {})("neither an Exception nor known"),
        StopAsyncIteration(),
        MemoryError(),
        RecursionError(),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_whatever_a_handler_raises_is_a_failure(error: BaseException) -> None:
    failure = await _attempt(_raising(error))
    assert failure is not None
    assert failure.type.endswith(type(error).__qualname__)


async def test_what_a_handler_says_on_purpose_is_believed() -> None:
    permanent = await _attempt(_raising(Permanent("no such card", code="card_declined")))
    assert permanent is not None
    assert (permanent.retryable, permanent.code, permanent.category) == (False, "card_declined", Category.PERMANENT)
    transient = await _attempt(_raising(Transient("try later", category=Category.RESOURCE)))
    assert transient is not None
    assert (transient.retryable, transient.category) == (True, Category.RESOURCE)


async def test_a_handler_that_hangs_is_stopped_after_its_time() -> None:
    async def hangs(body: Any) -> None:
        await asyncio.Event().wait()

    failure = await _attempt(hangs, timeout=timedelta(milliseconds=5))
    assert failure is not None
    assert failure.type.endswith("AttemptTimeout")
    assert "0:00:00.005" in failure.message
    assert "hangs" in failure.stack
    assert failure.retryable


async def test_of_many_attempts_at_once_each_is_stopped_in_its_time_and_the_others_go_on() -> None:
    async def handler(body: dict[str, int]) -> None:
        if body["id"] % 2:
            await asyncio.Event().wait()

    context = World().context(handler, timeout=timedelta(milliseconds=5))
    deadlines = Deadlines(context.handler.timeout)

    async def one(number: int) -> list[Failure | None]:
        deadline = Deadline(deadlines)  # one for a worker, used for one attempt after the other
        message = make_message(body=b'{"id":%d}' % number)
        return [await attempt(context, message, deadline) for _ in range(3)]

    async with asyncio.timeout(SOON):
        failures = await asyncio.gather(*map(one, range(20)))
    for number, three in enumerate(failures):
        assert [failure is not None for failure in three] == [bool(number % 2)] * 3


async def test_a_handler_that_swallows_its_end_and_finishes_was_successful() -> None:
    async def stubborn(body: Any) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return

    context = World().context(stubborn, timeout=timedelta(milliseconds=5))
    deadline = Deadline(Deadlines(context.handler.timeout))
    assert await attempt(context, MESSAGE, deadline) is None
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_timeout_of_the_handlers_own_is_told_from_ours() -> None:
    failure = await _attempt(_raising(TimeoutError("of the database")))
    assert failure is not None
    assert (failure.type, failure.message) == ("TimeoutError", "of the database")


async def test_our_own_cancellation_goes_through_and_is_no_failure() -> None:
    began = asyncio.Event()

    async def handler(body: Any) -> None:
        began.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(_attempt(handler))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_task_of_the_handlers_that_is_cancelled_is_the_handlers_failure() -> None:
    async def handler(body: Any) -> None:
        task = asyncio.create_task(asyncio.Event().wait())
        await asyncio.sleep(0)
        task.cancel()
        await task

    failure = await _attempt(handler)
    assert failure is not None
    assert failure.retryable


class Silent(Exception):
    def __str__(self) -> str:
        raise ZeroDivisionError


class Lying(Exception):
    def __str__(self) -> str:
        return 5  # type: ignore[return-value]


async def test_an_error_that_cannot_say_what_it_is_is_still_a_failure() -> None:
    silent, lying = await _attempt(_raising(Silent())), await _attempt(_raising(Lying()))
    assert silent is not None
    assert "ZeroDivisionError" in silent.message
    assert lying is not None
    assert "TypeError" in lying.message


async def test_an_error_message_is_bounded_and_can_be_stored() -> None:
    failure = await _attempt(_raising(ValueError("\ud800" + "x" * 100_000)))
    assert failure is not None
    assert len(failure.message) < 5_000
    assert failure.message.startswith("\\ud800xxx")
    failure.message.encode()
    failure.stack.encode()


async def test_each_attempt_runs_inside_its_span() -> None:
    seen: list[str] = []

    @contextmanager
    def span(message: Message) -> Iterator[None]:
        seen.append(f"begin {message.id}")
        yield
        seen.append("end")

    async def handler(body: Any) -> None:
        seen.append("handled")

    assert await _attempt(handler, make_message(id="m"), span=span) is None
    assert seen == ["begin m", "handled", "end"]


async def test_a_sync_handler_runs_in_a_thread_and_does_not_stop_the_loop(app: Redrive) -> None:
    loop, woken = asyncio.get_running_loop(), asyncio.Event()

    def handler(order: dict[str, int], message: Message) -> None:
        asyncio.run_coroutine_threadsafe(_set(woken), loop).result(SOON)  # only a loop that goes on answers

    assert await _on(_registered(app, handler)) is None
    assert woken.is_set()


async def _set(event: asyncio.Event) -> None:
    event.set()


@pytest.mark.parametrize(
    "error",
    [ValueError("x"), SystemExit(1), asyncio.CancelledError(), TimeoutError()],
    ids=lambda error: type(error).__name__,
)
async def test_whatever_a_sync_handler_raises_is_a_failure(app: Redrive, error: BaseException) -> None:
    def handler(body: Any) -> None:
        raise error

    async with asyncio.timeout(SOON):
        failure = await _on(_registered(app, handler))
    assert failure is not None
    assert failure.type.endswith(type(error).__qualname__)


async def test_a_sync_handler_that_raises_stop_iteration_does_not_hang(app: Redrive) -> None:
    def handler(body: Any) -> None:
        next(iter(()))

    async with asyncio.timeout(SOON):
        failure = await _on(_registered(app, handler))
    assert failure is not None
    assert "StopIteration" in failure.message


async def test_a_sync_function_that_hands_out_a_coroutine_is_awaited_and_not_taken_for_done(app: Redrive) -> None:
    """As a decorator does that wraps an async handler without being async itself."""
    handled: list[Any] = []

    async def inner(body: Any) -> None:
        handled.append(body)
        raise ValueError("seen")

    def handler(body: Any) -> Any:
        return inner(body)

    failure = await _on(_registered(app, handler))
    assert handled == [{"id": 7}]
    assert failure is not None
    assert failure.message == "seen"


async def test_a_sync_handler_of_an_app_that_was_closed_and_used_again_still_runs(app: Redrive) -> None:
    handled: list[Any] = []

    def handler(body: Any) -> None:
        handled.append(body)

    context = _registered(app, handler)
    assert await _on(context) is None
    await app.aclose()
    assert await _on(context) is None
    assert len(handled) == 2
