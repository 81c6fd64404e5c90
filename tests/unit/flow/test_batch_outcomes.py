"""What a batch handler may say of its messages, and what is said of one that says something else."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from redrive import Failed, Message, Permanent, Policy, Rate, Redrive
from redrive.errors import ConfigError, NotNow, WrongOutcomes
from redrive.flow.batches import BatchConsumer
from redrive.forensics.query import Query
from redrive.model import BatchFailure, Category, Done, Letter
from redrive.telemetry.events import BatchSettled
from redrive.testing.builders import make_message
from redrive.testing.waiting import until as until_so
from redrive.worker import Worker
from tests.unit.support import World, running, until


class Order(msgspec.Struct):
    n: int


async def _after(handler: Any, number: int = 4, policy: Policy | None = None) -> tuple[World, list[Letter]]:
    """The world after so many messages were settled, in one batch or in pieces of it; and the letters."""
    world = World()
    await world.queue.send([make_message(id=f"{n}", body=b"%d" % n) for n in range(number)])
    async with running(
        BatchConsumer(world.context(handler, policy or Policy(attempts=1), size=number, within=timedelta()))
    ):
        await until(lambda: sum(event.done + event.buried for event in world.seen(BatchSettled)) == number)
    return world, sorted(
        (await world.letters.letters.search(Query(), limit=100)).letters, key=lambda one: one.message.id
    )


async def test_an_outcome_for_each() -> None:
    async def store(bodies: list[int]) -> list[Any]:
        return [None, ValueError("no such customer"), Done(), Permanent("gone", code="410")]

    _, letters = await _after(store)
    assert [(letter.message.id, letter.last.type, letter.last.category) for letter in letters] == [
        ("1", "ValueError", Category.VALIDATION),
        ("3", "redrive.errors.Permanent", Category.PERMANENT),
    ]
    assert letters[1].last.code == "410"


async def test_an_error_keeps_the_place_where_it_was_raised() -> None:
    async def store(bodies: list[int]) -> tuple[BaseException | None, ...]:
        try:
            raise KeyError("customer 7")
        except KeyError as error:
            return None, error

    _, [letter] = await _after(store, 2)
    assert 'raise KeyError("customer 7")' in letter.last.stack


async def test_one_that_cannot_begin_now_is_given_back_alone() -> None:
    calls: list[list[int]] = []

    async def store(bodies: list[int]) -> list[BaseException | None]:
        calls.append(bodies)
        return [NotNow() if body == 1 and len(calls) == 1 else None for body in bodies]

    world, letters = await _after(store, 2)
    assert (calls, letters) == ([[0, 1], [1]], [])
    assert sum(event.released for event in world.seen(BatchSettled)) == 1


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (lambda number: [None] * (number - 1), "batch handler shop:store returned 0 outcomes for 1 messages"),
        (lambda number: [None] * (number + 1), "batch handler shop:store returned 2 outcomes for 1 messages"),
        (lambda number: "fine", "batch handler shop:store returned a str: return None when all are done"),
        (lambda number: number, "batch handler shop:store returned a int"),
        (lambda number: {0: None}, "batch handler shop:store returned a dict"),
        (lambda number: [True] * number, "batch handler shop:store returned a bool as the outcome of message 0"),
        (lambda number: [ValueError] * number, "returned a type as the outcome of message 0"),
    ],
)
async def test_an_answer_that_nobody_can_read_names_the_handler(answer: Any, text: str) -> None:
    calls: list[int] = []

    async def store(bodies: list[int]) -> Any:
        calls.append(len(bodies))
        return answer(len(bodies))

    _, letters = await _after(store)
    assert calls == [4, 2, 1, 1, 2, 1, 1], "they were not tried in smaller pieces"
    assert len(letters) == 4
    assert {letter.last.type for letter in letters} == {"redrive.errors.WrongOutcomes"}
    assert text in letters[0].last.message


@pytest.mark.parametrize("place", [-1, 4, 400])
async def test_a_place_that_is_none_fails_no_good_message(place: int) -> None:
    async def store(bodies: list[int]) -> None:
        if 2 in bodies:
            raise Failed({place: ValueError("which?")})

    _, [letter] = await _after(store)
    assert letter.message.id == "2"
    assert f"batch handler shop:store raised Failed with place {place}, and its list has 1 messages" in (
        letter.last.message
    )
    assert "ValueError: which?" in letter.last.stack


@pytest.mark.parametrize("given", [[1], {"2": ValueError()}, {True: ValueError()}, {1: "text"}, {1: ValueError}, None])
def test_failed_says_what_it_takes(given: Any) -> None:
    with pytest.raises(WrongOutcomes, match=r"Failed\(\{2: error\}\)"):
        Failed(given)


async def test_failed_of_nobody_means_that_all_are_done() -> None:
    async def store(bodies: list[int]) -> None:
        raise Failed({})

    _, letters = await _after(store)
    assert letters == []


async def test_bodies_that_say_that_they_are_equal_to_everything_are_just_bodies() -> None:
    class Same(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            raise RuntimeError("do not compare me")

    async def store(bodies: list[Any]) -> list[Any]:
        return [None for _ in bodies]

    world = World()
    context = world.context(store, size=2)
    context = msgspec.structs.replace(
        context, handler=msgspec.structs.replace(context.handler, decode=lambda _: Same())
    )
    await world.queue.send([make_message(), make_message()])
    async with running(BatchConsumer(context)):
        await until(lambda: sum(event.done for event in world.seen(BatchSettled)) == 2)


# -- how it is registered --------------------------------------------------------------------------------------------


def _app() -> Redrive:
    return Redrive(transport="memory://", store="memory://")


async def _handled(app: Redrive, *bodies: Any) -> Sequence[Letter]:
    """All of these, sent and settled; the letters."""
    settled: list[BatchSettled] = []
    app.events.subscribe(lambda event: settled.append(event) if isinstance(event, BatchSettled) else None)
    async with app:
        await app.send_messages([app.message("orders", body) for body in bodies])
        worker = Worker(app, upkeep=False)
        running = asyncio.create_task(worker.run())
        await until_so(lambda: sum(event.done + event.buried for event in settled) == len(bodies), what="all settled")
        worker.stop()
        await running
        return (await app.store.letters.search(Query(), limit=100)).letters


async def test_a_sync_handler_gets_structs_and_messages() -> None:
    app, got = _app(), list[Any]()

    @app.handler("orders", batch=3, within="1ms")
    def store(orders: Sequence[Order], messages: list[Message]) -> None:
        got.append((orders, [message.source for message in messages]))

    await _handled(app, {"n": 1}, {"n": 2}, {"n": 3})
    assert got == [([Order(1), Order(2), Order(3)], ["orders"] * 3)]


async def test_decode_is_asked_for_each_and_around_is_around_each_call() -> None:
    app, seen = _app(), list[Any]()

    async def outer(messages: list[Message], call: Any) -> None:
        seen.append(("outer", len(messages)))
        await call()

    async def inner(messages: list[Message], call: Any) -> None:
        seen.append("inner")
        await call()

    def decode(body: bytes, message: Message) -> str:
        return f"{message.source}:{body.decode()}"

    @app.handler("orders", batch=2, within="1ms", decode=decode, around=[outer, inner], policy=Policy(attempts=1))
    async def store(orders: list[str]) -> list[BaseException | None]:
        seen.append(orders)
        return [None, ValueError("the second")]

    letters = await _handled(app, b"a", b"b")
    assert seen == [("outer", 2), "inner", ["orders:a", "orders:b"]]
    [letter] = letters
    assert letter.last.message == "the second", "what the handler said was lost in what is around it"


def test_what_a_batch_handler_is_asked_for() -> None:
    app = _app()

    @app.handler("orders", batch=500, within="200ms")
    async def store(orders: list[Order]) -> None: ...

    handler = app.handlers["orders"]
    assert (handler.batch, handler.within, handler.concurrency) == (500, timedelta(milliseconds=200), 1)
    assert app.context(handler).batch == 500

    @app.handler("others", batch=5, concurrency=3)
    async def unannotated(orders, messages):  # type: ignore[no-untyped-def]
        ...

    assert (app.handlers["others"].within, app.handlers["others"].concurrency) == (timedelta(milliseconds=200), 3)
    assert app.handlers["others"].wants_message


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"batch": 0}, "batch=0: it is the most messages of a batch, 1 to 10,000"),
        ({"batch": True}, "batch=True"),
        ({"batch": "500"}, "batch='500'"),
        ({"batch": 10_001}, "batch=10001"),
        ({"batch": 5, "within": 200}, "within: 200 is not a duration"),
        ({"within": "200ms"}, "within='200ms' is for batch handlers: say how large a batch may be, as batch=500"),
    ],
)
def test_a_wrong_batch_is_refused(options: dict[str, Any], text: str) -> None:
    app = _app()
    with pytest.raises(ConfigError, match=text.replace("(", r"\(")):

        @app.handler("orders", **options)
        async def store(orders: list[Order]) -> None: ...


@pytest.mark.parametrize("annotation", [Order, dict, "list[Message]", "int", "set[int]"])
def test_a_batch_handler_takes_a_list(annotation: Any) -> None:
    async def store(orders: Any) -> None: ...

    store.__annotations__["orders"] = annotation
    with pytest.raises(ConfigError, match="list"):
        _app().handler("orders", batch=5)(store)


def test_how_a_batch_is_split_is_one_of_two() -> None:
    assert Policy().batch_failure is BatchFailure.HALVES
    assert Policy(batch_failure="each").batch_failure is BatchFailure.EACH
    with pytest.raises(ConfigError, match=r"batch_failure='halfs': it is halves, each: did you mean 'halves'?"):
        Policy(batch_failure="halfs")


def test_under_a_rate_no_more_is_taken_than_runs() -> None:
    app = Redrive(transport="redis://localhost:1/0", store="memory://")

    @app.handler("orders", batch=5, concurrency=2, rate=Rate(100, "1s"))
    async def store(orders: list[Order]) -> None: ...

    assert app.context(app.handlers["orders"]).batch == 10
