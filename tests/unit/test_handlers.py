"""A handler of one's own shape: `decode` before it, `around` it."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import json
import re
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from redrive import Message, Policy, Redrive
from redrive.errors import ConfigError, HandlerRefused
from redrive.flow.around import Call
from redrive.forensics.query import Query
from redrive.model import Letter, Reason
from redrive.telemetry.events import BatchSettled, Event
from redrive.worker import Worker
from tests.unit.support import until

ONCE = Policy(attempts=1)


def make_app() -> Redrive:
    return Redrive(transport="memory://", store="memory://")


async def handled(app: Redrive, *bodies: Any, **how: Any) -> list[Letter]:
    """Send them, and work until all of them are settled; the letters that came of it."""
    settled = 0

    def count(event: Event) -> None:
        nonlocal settled
        if isinstance(event, BatchSettled):
            settled += event.done + event.buried

    app.events.subscribe(count)
    async with app:
        for body in bodies:
            await app.send("orders", body, **how)
        worker = Worker(app, upkeep=False)
        task = asyncio.create_task(worker.run())
        await until(lambda: settled >= len(bodies) or task.done())
        worker.stop()
        await task
        return list((await app.store.letters.search(Query())).letters)


# -- decode ----------------------------------------------------------------------------------------------------------


async def test_a_decoder_replaces_that_of_the_annotation() -> None:
    app, seen = make_app(), list[Any]()

    @app.handler("orders", decode=lambda body: body.decode("utf-16"))
    async def handle(order: int) -> None:
        seen.append(order)

    assert await handled(app, "Grüße".encode("utf-16")) == []
    assert seen == ["Grüße"]


async def test_a_decoder_with_two_parameters_gets_the_message() -> None:
    app, seen = make_app(), list[Any]()

    def decode(body: bytes, message: Message) -> Any:
        return json.loads(body) if message.header("content-type") == b"application/json" else body

    @app.handler("orders", decode=decode)
    def handle(order: Any, message: Message) -> None:
        seen.append((order, message.source))

    assert await handled(app, b"[1]", headers={"content-type": "application/json"}) == []
    assert seen == [([1], "orders")]


async def test_what_a_decoder_raises_makes_the_message_undecodable() -> None:
    app = make_app()

    @app.handler("orders", decode=json.loads, policy=Policy(attempts=5))
    async def handle(order: dict[str, Any]) -> None:
        raise AssertionError("never called")

    [letter] = await handled(app, b"\xff no JSON")
    assert (letter.reason, letter.message.body, len(letter.failures)) == (Reason.UNDECODABLE, b"\xff no JSON", 1)


async def asynchronous(body: bytes) -> None: ...
def three(body: bytes, message: Message, more: int) -> None: ...
def no_parameter() -> None: ...


@pytest.mark.parametrize(
    ("decode", "why"),
    [
        (asynchronous, "is async: decode without waiting"),
        (three, "is called with the bytes of a body"),
        (no_parameter, "is called with the bytes of a body"),
        ("json", "it takes a function"),
    ],
)
def test_what_cannot_decode_is_refused_when_the_handler_is_registered(decode: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        make_app().handler("orders", decode=decode)(lambda body: None)


@pytest.mark.parametrize("decode", [json.loads, bytes.decode, int.from_bytes, memoryview, lambda *all: all])
def test_functions_of_the_library_decode(decode: Callable[..., Any]) -> None:
    app = make_app()
    app.handler("orders", decode=decode)(lambda body: None)
    assert not app.handlers["orders"].decode_wants_message


# -- around ----------------------------------------------------------------------------------------------------------

STEP: contextvars.ContextVar[str] = contextvars.ContextVar("step", default="none")


@pytest.mark.parametrize("is_async", [True, False])
async def test_what_is_around_a_handler_runs_before_and_after_it_the_first_outermost(is_async: bool) -> None:
    app, seen = make_app(), list[str]()

    def around(name: str) -> Callable[[Message, Call], Any]:
        async def called(message: Message, call: Call) -> Any:
            seen.append(f"{name} before {message.key!r}")
            STEP.set(name)
            result = await call()
            seen.append(f"{name} after {result}")
            return result

        return called

    async def handle(order: dict[str, int]) -> str:
        seen.append(f"handler within {STEP.get()}")
        return "answer"

    def handle_in_thread(order: dict[str, int]) -> str:
        assert threading.current_thread() is not threading.main_thread()
        seen.append(f"handler within {STEP.get()}")
        return "answer"

    app.handler("orders", around=[around("a"), around("b")])(handle if is_async else handle_in_thread)
    assert await handled(app, {"n": 1}, key="k") == []
    assert seen == ["a before b'k'", "b before b'k'", "handler within b", "b after answer", "a after answer"]


async def test_what_the_handler_raises_goes_through_what_is_around_it_and_is_the_failure() -> None:
    app, seen = make_app(), list[str]()

    @asynccontextmanager
    async def transaction() -> AsyncIterator[None]:
        try:
            yield
        except KeyError:
            seen.append("rolled back")
            raise

    async def around(message: Message, call: Call) -> None:
        async with transaction():
            await call()

    @app.handler("orders", around=around, policy=ONCE)
    async def handle(order: dict[str, int]) -> None:
        raise KeyError("no such order")

    [letter] = await handled(app, {"n": 1})
    assert (letter.last.type, seen) == ("KeyError", ["rolled back"])


async def test_what_is_around_may_fail_itself_answer_for_the_handler_or_call_it_again() -> None:
    app, seen = make_app(), list[str]()

    async def around(message: Message, call: Call) -> None:
        if message.body == b'"fail"':
            raise ValueError("refused")
        if message.body == b'"twice"':
            await call()
        if message.body != b'"skip"':
            await call()

    @app.handler("orders", around=around, policy=ONCE)
    async def handle(order: str) -> None:
        seen.append(order)

    [letter] = await handled(app, b'"fail"', b'"skip"', b'"twice"')
    assert (letter.last.type, letter.message.body, seen) == ("ValueError", b'"fail"', ['"twice"', '"twice"'])


async def test_its_time_counts_as_that_of_the_attempt() -> None:
    app, forever = make_app(), asyncio.Event()

    async def around(message: Message, call: Call) -> None:
        await call()
        await forever.wait()

    @app.handler("orders", around=around, policy=Policy(attempts=1, timeout="20ms"))
    async def handle(order: bytes) -> None: ...

    [letter] = await handled(app, b"1")
    assert letter.last.type.endswith("AttemptTimeout")


@asynccontextmanager
async def manager(message: Message) -> AsyncIterator[None]:
    yield


async def one_parameter(message: Message) -> None: ...


@pytest.mark.parametrize(
    ("around", "why"),
    [
        (manager, r"is not async; write `async def around\(message, call\)"),
        (time.sleep, "is not async"),
        (one_parameter, "does not take two arguments"),
        ("log", "is no function"),
        (7, "is no function"),
        ([one_parameter], "does not take two arguments"),
    ],
)
def test_what_cannot_be_around_is_refused_when_the_handler_is_registered(around: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        make_app().handler("orders", around=around)(lambda body: None)


def test_an_object_with_an_async_call_can_be_around() -> None:
    class Timing:
        async def __call__(self, message: Message, call: Call) -> Any:
            return await call()

    app = make_app()
    app.handler("orders", around=Timing())(lambda body: None)
    assert app.handlers["orders"].wants_message


# -- what may be a handler -------------------------------------------------------------------------------------------


class Charger:
    """An object that is called, and has methods."""

    def __init__(self, seen: list[Any]) -> None:
        self.seen = seen

    def __call__(self, order: Order) -> None:
        self.seen.append(order)

    async def later(self, order: Order, message: Message) -> None:
        self.seen.append(order)

    @classmethod
    def of_class(cls, order: Order) -> None:
        SEEN.append(order)

    @staticmethod
    async def of_nobody(order: Order) -> None:
        SEEN.append(order)


class AsyncCharger(Charger):
    async def __call__(self, order: Order) -> None:  # type: ignore[override]
        await asyncio.sleep(0)
        self.seen.append(order)


@dataclass
class Order:
    id: int


SEEN: list[Any] = []


def charge(seen: list[Any], order: Order, *, note: str = "") -> None:
    seen.append(order)


async def charge_later(seen: list[Any], order: Order, message: Message) -> None:
    seen.append(order)


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def around(*arguments: Any) -> Any:
        return await function(*arguments)

    return around


@logged
async def decorated(order: Order, message: Message) -> None:
    SEEN.append(order)


HANDLERS: dict[str, Callable[[list[Any]], Callable[..., Any]]] = {
    "an object": Charger,
    "an object whose call is async": AsyncCharger,
    "a bound method": lambda seen: Charger(seen).later,
    "a classmethod": lambda seen: Charger.of_class,
    "a staticmethod": lambda seen: Charger.of_nobody,
    "a partial": lambda seen: functools.partial(charge, seen, note="x"),
    "a partial of an async function": lambda seen: functools.partial(charge_later, seen),
    "a partial of a partial": lambda seen: functools.partial(functools.partial(charge), seen),
    "a partial of an object": lambda seen: functools.partial(AsyncCharger(seen)),
    "a decorated function": lambda seen: decorated,
}


@pytest.mark.parametrize("kind", HANDLERS)
async def test_whatever_can_be_called_is_a_handler_and_its_annotation_counts(kind: str) -> None:
    app, seen = make_app(), list[Any]()
    SEEN.clear()
    app.handler("orders", policy=ONCE)(HANDLERS[kind](seen))
    assert await handled(app, {"id": 7}, {"id": 8}) == []
    assert [*seen, *SEEN] in ([Order(7), Order(8)], [Order(8), Order(7)])


async def test_a_lambda_and_a_parameter_with_a_default_are_handlers() -> None:
    app, seen = make_app(), list[Any]()
    app.handler("orders", policy=ONCE)(lambda order: seen.append(order))

    @app.handler("mails", policy=ONCE)
    async def mail(mail: dict[str, int] | None = None) -> None: ...

    assert await handled(app, {"id": 7}) == []
    assert seen == [{"id": 7}]


def takes_nothing() -> None: ...


def takes_three(order: Order, message: Message, more: int) -> None: ...


def yields(order: Order) -> Any:
    yield order


async def yields_later(order: Order) -> Any:
    yield order


def hidden(*arguments: Any) -> None: ...


def wants_a_keyword(order: Order, *, tenant: str) -> None: ...


def message_first(message: Message) -> None: ...


def of_no_json(order: threading.Lock) -> None: ...


class Shop:
    def charge(self, order: Order) -> None: ...

    @classmethod
    def of_class(cls, order: Order) -> None: ...


REFUSED: dict[str, tuple[Any, str]] = {
    "no parameter": (takes_nothing, "takes 0 parameters"),
    "three parameters": (takes_three, "takes 3 parameters"),
    "a generator": (yields, "yields"),
    "an async generator": (yields_later, "yields"),
    "an object that yields": (type("Yields", (), {"__call__": lambda self, order: (yield order)})(), "yields"),
    "hidden parameters": (hidden, r"functools\.wraps"),
    "a keyword": (wants_a_keyword, "not called with 'tenant'"),
    "the message first": (message_first, "the Message is the second"),
    "a type that JSON does not become": (of_no_json, "cannot be decoded"),
    "a class": (Shop, "is a class"),
    "a method without its object": (Shop.charge, "is a method without its object"),
    "a classmethod in its class": (vars(Shop)["of_class"], "register it below the class"),
    "no function": ("shop:charge", "is no function"),
    "a function of C that does not say what it takes": (dict, "is a class"),
    "a bad concurrency": (lambda order: None, "at least one message"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_refused_handler_names_the_line_of_the_user(kind: str) -> None:
    handler, why = REFUSED[kind]
    register = make_app().handler("orders", concurrency=0 if "concurrency" in kind else 1)
    with pytest.raises(ConfigError, match=why) as refused:
        register(handler)
    assert re.search(r"\(\S*tests/unit/test_handlers\.py, line \d+\)$", str(refused.value))


def test_the_line_is_that_of_the_function_or_else_that_of_the_call() -> None:
    with pytest.raises(HandlerRefused, match=f"line {takes_nothing.__code__.co_firstlineno}\\)"):
        make_app().handler("orders")(takes_nothing)
    with pytest.raises(HandlerRefused) as refused:
        make_app().handler("orders")(Shop)
    assert f"line {refused.traceback[0].lineno + 1})" in str(refused.value)
    with pytest.raises(HandlerRefused, match=f"@app.handler.*line {takes_nothing.__code__.co_firstlineno}\\)"):
        make_app().handler(takes_nothing)  # type: ignore[arg-type]


async def test_a_coroutine_is_refused_and_not_left_unawaited() -> None:
    begun = charge_later([], Order(1), None)  # type: ignore[arg-type]
    with pytest.raises(HandlerRefused, match="without the parentheses"):
        _ = make_app().handler("orders")(begun)  # type: ignore[type-var]
