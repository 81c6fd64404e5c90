"""The object a developer holds: what can be registered on it, what can be sent through it, and how it refuses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from redrive import Message, Policy, Redrive, exponential
from redrive.clock import SystemClock
from redrive.config.settings import Settings
from redrive.errors import ConfigError, MessageTooLarge, NotSent, TransportUnavailable, UnknownSource, UsageError
from redrive.flow.lineage import AFTER
from redrive.model import Category
from redrive.stores.memory import MemoryStore
from redrive.stores.sqlite import SqliteStore
from redrive.testing.clock import START, ManualClock
from redrive.transports.base import SendResult, SendStatus
from redrive.transports.memory import MemoryTransport
from redrive.transports.sqlite import SqliteTransport
from tests.unit.support import nothing

MEMORY = {"default": "memory://", "fast": "memory://"}


@dataclass
class Order:
    id: int


@pytest.fixture
async def app() -> AsyncIterator[Redrive]:
    settings = Settings(store="memory://", transports=MEMORY, body_limit=1000)
    async with Redrive(settings=settings, clock=ManualClock()) as app:
        app.handler("orders")(nothing)
        yield app


async def _received(app: Redrive, source: str = "orders", transport: str = "default") -> Message:
    (delivery,) = await app.transport(transport).receive(source, 1)
    return delivery.message


async def test_what_is_sent_arrives_with_everything_it_was_given(app: Redrive) -> None:
    id = await app.send(
        "orders",
        Order(7),
        key="customer-7",
        tenant="acme",
        correlation_id="c-1",
        headers={"a": "ü", "b": b"\xff"},
        priority=-3,
        ttl="1h",
        after=["x", "y"],
    )
    message = await _received(app)
    assert message == Message(
        id=id,
        source="orders",
        body=b'{"id":7}',
        enqueued_at=START,
        headers=(("a", "ü".encode()), ("b", b"\xff"), (AFTER, b"x\ny")),
        key=b"customer-7",
        tenant="acme",
        correlation_id="c-1",
        priority=-3,
        expires_at=START + timedelta(hours=1),
    )


async def test_the_same_id_again_while_it_is_queued_changes_nothing(app: Redrive) -> None:
    assert [await app.send("orders", body, id="order-7") for body in (b"first", b"second")] == ["order-7"] * 2
    assert (await app.transport().depths())["orders"].total == 1
    assert (await _received(app)).body == b"first"


async def test_one_that_comes_after_a_single_other_may_say_so_plainly(app: Redrive) -> None:
    await app.send("orders", b"", after="first-order")
    assert (await _received(app)).header(AFTER) == b"first-order"


async def test_a_misspelt_source_is_refused_with_the_nearest_name(app: Redrive) -> None:
    with pytest.raises(UnknownSource, match=r"unknown source 'oders': did you mean 'orders'\?.*app.declare\('oders'\)"):
        await app.send("oders", b"")


async def test_a_source_that_others_handle_is_declared(app: Redrive) -> None:
    app.declare("emails", "audit")
    app.declare("events", transport="fast")
    await app.send("emails", b"1")
    await app.send("events", b"2")
    assert (await _received(app, "emails")).body == b"1"
    assert (await _received(app, "events", "fast")).body == b"2"
    with pytest.raises(UnknownSource, match="did you mean 'emails'"):
        await app.send("emials", b"")


class Choosy:
    """A transport that answers for a message what its body says."""

    def __init__(self, queue: MemoryTransport) -> None:
        self.features = queue.features
        self._queue = queue

    async def send(self, messages: Sequence[Message]) -> list[SendResult]:
        if any(message.body == b"away" for message in messages):
            raise TransportUnavailable("queue", "it does not answer")
        await self._queue.send([message for message in messages if message.body == b"accepted"])
        return [SendResult(SendStatus(message.body.decode()), "it is full") for message in messages]

    async def aclose(self) -> None: ...


class Silent:
    """A transport as they were before each message had an answer."""

    async def send(self, messages: Sequence[Message]) -> None: ...

    async def aclose(self) -> None: ...


def _choosy() -> Redrive:
    clock = SystemClock()
    app = Redrive(transport="memory://", store="memory://", clock=clock)
    app.use("other", Choosy(MemoryTransport(clock=clock, lease=timedelta(minutes=1))))  # type: ignore[arg-type]
    app.declare("choosy", transport="other")
    app.declare("orders")
    return app


@pytest.mark.parametrize(
    ("answer", "kind"),
    [("refused", UsageError), ("busy", TransportUnavailable), ("unknown", TransportUnavailable)],
)
async def test_a_message_that_is_not_accepted_is_an_error_that_says_why(answer: str, kind: type[Exception]) -> None:
    async with _choosy() as app:
        with pytest.raises(
            NotSent, match=rf"message 'm-1' to 'choosy' was not sent \({answer}\): it is full"
        ) as raised:
            await app.send("choosy", answer.encode(), id="m-1")
        assert isinstance(raised.value, kind)
        await app.send("choosy", b"accepted")


async def test_a_plug_in_that_is_older_than_answers_is_named_as_what_has_to_be_renewed() -> None:
    """Nobody knows what became of the message: it may have been sent."""
    async with _choosy() as app:
        app.use("other", Silent())  # type: ignore[arg-type]
        with pytest.raises(NotSent, match="newer version of its plug-in") as raised:
            await app.send("choosy", b"1")
        assert isinstance(raised.value, TransportUnavailable)


async def test_of_many_that_are_sent_at_once_the_error_says_which_were_accepted() -> None:
    async with _choosy() as app:
        sources = [("choosy", b"accepted"), ("orders", b"1"), ("choosy", b"busy"), ("choosy", b"refused")]
        messages = [app.message(source, body, id=f"m-{n}") for n, (source, body) in enumerate(sources)]
        with pytest.raises(NotSent, match="2 of 4 messages were not accepted") as raised:
            await app.send_messages(messages)
        error = raised.value
        assert [message for message, _ in error.results] == messages
        statuses = [result.status.value for _, result in error.results]
        assert statuses == ["accepted", "accepted", "busy", "refused"]
        assert (error.accepted, error.not_accepted) == (messages[:2], messages[2:])
        assert isinstance(error, UsageError), "one of them is refused for good"


async def test_a_transport_that_is_away_does_not_keep_another_from_its_messages() -> None:
    async with _choosy() as app:
        messages = [app.message("choosy", b"away"), app.message("orders", b"1")]
        with pytest.raises(TransportUnavailable, match="it does not answer") as raised:
            await app.send_messages(messages)
        assert isinstance(raised.value, NotSent)
        assert raised.value.accepted == messages[1:]
        assert (await app.transport().depths())["orders"].ready == 1


async def test_an_app_that_only_sends_needs_no_handler() -> None:
    async with Redrive(transport="memory://", store="memory://") as app:
        await app.send("anything", b"")
        app.declare("emails")
        with pytest.raises(UnknownSource):
            await app.send("anything", b"")


async def test_a_body_over_the_limit_is_refused(app: Redrive) -> None:
    await app.send("orders", b"x" * 1000)
    with pytest.raises(MessageTooLarge, match=r"1,001 bytes, over the limit of 1,000.*REDRIVE_BODY_LIMIT"):
        await app.send("orders", b"x" * 1001)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"id": ""}, "id='': it has to be text, and not empty"),
        ({"id": 7}, "id=7"),
        ({"id": "\ud800"}, "UTF-8"),
        ({"tenant": ""}, "tenant=''"),
        ({"tenant": b"acme"}, "tenant=b'acme'"),
        ({"correlation_id": "\ud800"}, "correlation_id="),
        ({"key": 7}, "key=7"),
        ({"key": "\ud800"}, "key="),
        ({"headers": {"a": 5}}, "header 'a'"),
        ({"headers": {"a": None}}, "header 'a'"),
        ({"headers": {"a": "\ud800"}}, "header 'a'"),
        ({"headers": {5: "a"}}, "header=5"),
        ({"headers": {"\ud800": "a"}}, "header"),
        ({"priority": "high"}, "priority='high'"),
        ({"priority": 1.5}, "priority=1.5"),
        ({"priority": 2**63}, "priority="),
        ({"after": ["a\nb"]}, "after="),
        ({"after": [7]}, "after="),
        ({"ttl": "0s"}, "ttl="),
        ({"ttl": 5}, "ttl"),
        ({"ttl": timedelta.max}, "ttl"),
    ],
)
async def test_an_option_that_cannot_be_carried_is_refused_by_its_name(
    app: Redrive, options: dict[str, Any], says: str
) -> None:
    with pytest.raises((UsageError, ConfigError), match=says):
        await app.send("orders", b"", **options)
    assert await app.transport().depths() == {}


@pytest.mark.parametrize("source", ["", "\ud800", 7, None])
async def test_a_source_has_a_name(app: Redrive, source: Any) -> None:
    with pytest.raises(UsageError, match="source="):
        await app.send(source, b"")


async def test_many_messages_are_one_write_for_each_transport(app: Redrive) -> None:
    app.handler("events", transport="fast")(nothing)
    await app.send_messages([app.message(source, b"") for source in ("orders", "events", "orders")])
    assert (await app.transport("default").depths())["orders"].total == 2
    assert (await app.transport("fast").depths())["events"].total == 1


def test_a_handler_is_what_was_registered(app: Redrive) -> None:
    policy = Policy(attempts=5, backoff=exponential("1s", cap="60s", jitter=0.25), timeout="9s")

    @app.handler("emails", policy=policy, concurrency=3, transport="fast")
    async def send(order: Order, message: Message) -> None: ...

    handler = app.handlers["emails"]
    assert (handler.policy, handler.concurrency, handler.transport) == (policy, 3, "fast")
    assert (handler.timeout, handler.wants_message) == (timedelta(seconds=9), True)
    assert handler.name.endswith("send")
    assert handler.call is send
    assert app.handlers["orders"].timeout == app.settings.timeout


def test_registering_gives_the_function_back_so_that_it_can_still_be_called(app: Redrive) -> None:
    @app.handler("sync")
    def handler(order: dict[str, Any]) -> int:
        return len(order)

    assert handler({"a": 1}) == 1


def _two(a: Any, b: Any, c: Any) -> None: ...


@pytest.mark.parametrize(
    ("source", "options", "says"),
    [
        ("orders", {}, "'orders' has a handler already: tests.unit.support:nothing"),
        ("", {}, "'' is no name for a source"),
        (7, {}, "7 is no name for a source"),
        ("\ud800", {}, "no name for a source"),
        ("x", {"transport": "kafka"}, "transport 'kafka' is not configured: there is default, fast"),
        ("x", {"concurrency": 0}, "concurrency=0"),
        ("x", {"concurrency": "4"}, "concurrency='4'"),
        ("x", {"policy": {"attempts": 3}}, "policy="),
        ("x", {"policy": Policy}, "policy="),
    ],
)
def test_a_registration_that_cannot_work_is_refused(
    app: Redrive, source: Any, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        app.handler(source, **options)(nothing)
    assert list(app.handlers) == ["orders"]


def test_a_function_that_is_no_handler_is_refused(app: Redrive) -> None:
    with pytest.raises(ConfigError, match="takes 3 parameters"):
        app.handler("x")(_two)


def test_a_decorator_without_its_source_is_refused_at_once(app: Redrive) -> None:
    with pytest.raises(ConfigError, match=r"write @app.handler\('orders'\)"):
        app.handler(nothing)  # type: ignore[arg-type]


def _files(directory: Path) -> list[str]:
    return [file.name for file in directory.iterdir() if not file.name.endswith(("-wal", "-shm"))]


async def test_without_arguments_it_is_one_sqlite_file_in_this_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with Redrive() as app:
        assert isinstance(app.store, SqliteStore)
        assert isinstance(app.transport(), SqliteTransport)
        await app.send("orders", b"1")
        assert _files(tmp_path) == ["redrive.db"]
    async with Redrive() as again:
        assert (await again.transport().depths())["orders"].ready == 1


async def test_nothing_is_opened_before_it_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Redrive().handler("orders")(nothing)
    assert _files(tmp_path) == []


async def test_embedded_means_one_file_for_queue_and_letters(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shop.db"
    async with Redrive(transport=url) as app:
        assert app.urls == {"store": url, "transports.default": url}


async def test_what_is_given_wins_over_the_settings(tmp_path: Path) -> None:
    clock, store = ManualClock(), MemoryStore()
    transport = MemoryTransport(clock=clock, lease=timedelta(seconds=1))
    async with Redrive(transport=transport, store=store, clock=clock) as app:
        assert app.transport() is transport
        assert app.store is store
        assert app.clock is clock


async def test_several_transports_have_names(app: Redrive) -> None:
    assert set(app.transports) == {"default", "fast"}
    assert app.transport("fast") is app.transport("fast")
    assert app.transport("fast") is not app.transport("default")
    with pytest.raises(ConfigError, match="'kafka' is not configured: there is default, fast"):
        app.transport("kafka")


async def test_two_apps_may_share_one_file(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/redrive.db"
    first, second = Redrive(transport=url), Redrive(transport=url)
    await first.send("orders", b"1")
    await second.send("orders", b"2")
    await first.aclose()
    assert (await second.transport().depths())["orders"].ready == 2
    (delivery, *_) = await second.transport().receive("orders", 2)
    assert delivery.message.body == b"1"
    await second.aclose()


async def test_closing_twice_closes_nothing_of_another(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/redrive.db"
    first, second = Redrive(transport=url), Redrive(transport=url)
    await first.send("orders", b"1")
    await second.send("orders", b"2")
    await first.aclose()
    await first.aclose()
    await second.send("orders", b"3")
    assert (await second.transport().depths())["orders"].ready == 3
    await second.aclose()


async def test_an_app_that_was_closed_may_be_used_again(tmp_path: Path) -> None:
    app = Redrive(transport=f"sqlite:///{tmp_path}/redrive.db")
    await app.send("orders", b"1")
    await app.aclose()
    await app.send("orders", b"2")
    assert (await app.transport().depths())["orders"].ready == 2
    await app.aclose()


async def test_a_line_has_what_its_handler_needs(app: Redrive) -> None:
    context = app.context(app.handlers["orders"])
    assert (context.source, context.transport, context.store) == ("orders", app.transport(), app.store)
    assert (context.body_limit, context.batch, context.lease) == (1000, app.settings.batch, app.settings.lease)
    assert context.policy is app.handlers["orders"].policy


async def test_rules_of_ones_own_classify(app: Redrive) -> None:
    app.classify.on(ZeroDivisionError, category=Category.RESOURCE)
    verdict = app.context(app.handlers["orders"]).classifier(ZeroDivisionError())
    assert (verdict.category, verdict.retryable) == (Category.RESOURCE, True)


async def test_a_hundred_senders_at_once_lose_nothing(tmp_path: Path) -> None:
    async with Redrive(transport=f"sqlite:///{tmp_path}/redrive.db") as app:
        ids = await asyncio.gather(*(app.send("orders", b"x") for _ in range(100)))
        assert len(set(ids)) == 100
        assert (await app.transport().depths())["orders"].ready == 100
