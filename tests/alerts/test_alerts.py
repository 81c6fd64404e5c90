"""Telling: once for all processes, with patience, and never in the way of a message."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any

import pytest

from redrive import Policy, Redrive
from redrive.admin.server import Server
from redrive.alerts import Alerts, Kind, Notice, Notifier, Undelivered, alerting
from redrive.alerts.incidents import IncidentState
from redrive.config import Settings
from redrive.errors import StoreUnavailable
from redrive.service import Service
from redrive.settings import Alerts as Chosen
from redrive.stores.memory import MemoryStore
from redrive.telemetry.events import (
    AlertsDropped,
    AlertsSent,
    BackendDown,
    BackendUp,
    BreakerMoved,
    Event,
    IncidentMoved,
    MessageBuried,
    NotifierDown,
)
from redrive.testing.clock import ManualClock
from redrive.testing.waiting import until
from redrive.worker import Worker
from tests.alerts.conftest import Remembering, an_alert, an_app, on_every_store, seen
from tests.alerts.test_rules import away, rounds


@on_every_store
async def test_one_key_is_told_once_in_a_repeat_window_with_the_count_since(
    alerts: Alerts, clock: ManualClock, notifier: Remembering
) -> None:
    for _ in range(5):
        alerts.report(an_alert())
        await rounds(alerts, clock)
    assert notifier.told == [("opened", "k")]
    await clock.advance(4 * 3600)
    alerts.report(an_alert())
    await rounds(alerts, clock)
    assert notifier.told == [("opened", "k"), ("repeated", "k")]
    assert (notifier.notices[1].count, notifier.notices[1].since) == (6, 5)


@on_every_store
async def test_what_comes_together_is_told_together(alerts: Alerts, clock: ManualClock, notifier: Remembering) -> None:
    for number in range(30):
        alerts.report(an_alert(str(number)))
    await rounds(alerts, clock)
    assert [len(batch) for batch in notifier.batches] == [30]


@on_every_store
async def test_what_is_cleared_resolves(alerts: Alerts, clock: ManualClock, notifier: Remembering) -> None:
    alerts.report(an_alert())
    await rounds(alerts, clock)
    alerts.clear("k")
    alerts.clear("never seen")
    await rounds(alerts, clock, 2)
    assert notifier.told == [("opened", "k"), ("resolved", "k")]


@on_every_store
async def test_several_processes_tell_it_once(app: Redrive, clock: ManualClock) -> None:
    notifiers = [Remembering("pager") for _ in range(4)]
    processes = [Alerts.of(app, notifiers=[one]) for one in notifiers]
    for _ in range(3):
        for one in processes:
            one.report(an_alert(lasting=True))
        await asyncio.gather(*(one.round() for one in processes))
        await clock.advance(11)
    assert [key for one in notifiers for key in one.told] == [("opened", "k")]
    [incident] = await processes[0].incidents.list()
    assert incident.count == 12
    await clock.advance(4 * 3600)
    for one in processes:
        one.report(an_alert(lasting=True))
    await asyncio.gather(*(one.round() for one in processes))
    assert [kind for one in notifiers for kind, _ in one.told] in (["opened", "repeated"], ["repeated", "opened"])


@on_every_store
async def test_a_claim_of_a_process_that_died_is_taken_over(app: Redrive, clock: ManualClock) -> None:
    class Dies(Notifier):
        name = "pager"

        async def notify(self, notices: Sequence[Notice]) -> None:
            raise asyncio.CancelledError  # the process is gone in the middle of it

    dying = Alerts.of(app, notifiers=[Dies()])
    dying.report(an_alert())
    with pytest.raises(asyncio.CancelledError):
        await dying.round()
    heir = Remembering("pager")
    other = Alerts.of(app, notifiers=[heir])
    await rounds(other, clock, 5)
    assert heir.told == []
    await rounds(other, clock, 2)  # a minute later the claim has ended
    assert heir.told == [("opened", "k")]


async def test_a_notifier_that_is_down_is_tried_again_with_backoff_and_is_no_alert(
    alerts: Alerts, app: Redrive, clock: ManualClock, notifier: Remembering
) -> None:
    events = seen(app)
    notifier.fails = [Undelivered("down"), ConnectionError("own bug"), Undelivered("down")]
    alerts.report(an_alert())
    await rounds(alerts, clock, 8)
    assert notifier.told == [("opened", "k")]
    pauses = [one.pause.total_seconds() for one in events if isinstance(one, NotifierDown)]
    assert len(pauses) == 3
    assert all(0.75 * base <= pause <= 1.25 * base for base, pause in zip((1, 2, 4), pauses, strict=True))
    assert [one.alert.key for one in await alerts.incidents.list()] == ["k"]
    assert [one.count for one in events if isinstance(one, AlertsSent)] == [1]


async def test_a_notifier_that_asks_for_time_gets_it(alerts: Alerts, clock: ManualClock, notifier: Remembering) -> None:
    notifier.fails = [Undelivered("429", after=timedelta(seconds=100))]
    alerts.report(an_alert())
    await rounds(alerts, clock, 9)
    assert notifier.told == []
    await rounds(alerts, clock, 2)
    assert notifier.told == [("opened", "k")]


async def test_one_notifier_that_is_down_does_not_keep_the_others_from_being_told(
    app: Redrive, clock: ManualClock
) -> None:
    down, fine = Remembering("down"), Remembering("fine")
    down.fails = [Undelivered("down") for _ in range(3)]
    alerts = Alerts.of(app, notifiers=[down, fine])
    alerts.report(an_alert())
    await rounds(alerts, clock, 1)
    assert (down.told, fine.told) == ([], [("opened", "k")])
    await rounds(alerts, clock, 6)
    assert (down.told, fine.told) == ([("opened", "k")], [("opened", "k")])


async def test_a_notifier_that_rests_is_not_asked_for_the_sake_of_news(app: Redrive, clock: ManualClock) -> None:
    down, fine = Remembering("down"), Remembering("fine")
    down.fails = [Undelivered("429", after=timedelta(minutes=5))]
    alerts = Alerts.of(app, notifiers=[down, fine])
    for key in ("a", "b", "c"):
        alerts.report(an_alert(key))
        await rounds(alerts, clock)
    assert (down.told, len(fine.told)) == ([], 3)
    await clock.advance(300)
    await rounds(alerts, clock)
    assert sorted(key for _, key in down.told) == ["a", "b", "c"]


async def test_one_that_is_refused_does_not_take_the_others_with_it(
    alerts: Alerts, app: Redrive, clock: ManualClock, notifier: Remembering
) -> None:
    events = seen(app)
    notifier.fails = [Undelivered("400", retryable=False), Undelivered("400: too long", retryable=False)]
    alerts.report(an_alert("bad"))
    alerts.report(an_alert("good"))
    await rounds(alerts, clock, 3)
    assert len(notifier.told) == 1
    assert [(one.count, one.why) for one in events if isinstance(one, AlertsDropped)] == [(1, "400: too long")]


async def test_what_nobody_takes_for_an_hour_is_dropped_and_counted(
    alerts: Alerts, app: Redrive, clock: ManualClock, notifier: Remembering
) -> None:
    events = seen(app)
    notifier.fails = [Undelivered("down") for _ in range(1000)]
    alerts.report(an_alert())
    await rounds(alerts, clock, 8, every=600)
    assert [one.notifier for one in events if isinstance(one, AlertsDropped)] == ["remembering"]
    [incident] = await alerts.incidents.list()
    assert (incident.state, incident.owed) == (IncidentState.OPEN, None)


async def test_reports_that_never_end_do_not_keep_each_other_from_being_told(
    alerts: Alerts, app: Redrive, clock: ManualClock, notifier: Remembering
) -> None:
    more = iter(range(500))  # without end, as far as one round goes

    def another(event: Event) -> None:
        if isinstance(event, IncidentMoved) and (number := next(more, None)) is not None:
            alerts.report(an_alert(f"another {number}"))

    app.events.subscribe(another)
    alerts.report(an_alert("first"))
    await rounds(alerts, clock)
    assert notifier.told == [("opened", "first")]


async def test_reports_of_one_key_are_written_down_at_once_and_all_counted(
    alerts: Alerts, app: Redrive, clock: ManualClock, notifier: Remembering
) -> None:
    for _ in range(300):
        alerts.report(an_alert("a"))
        alerts.report(an_alert("b", count=2))
    alerts.clear("b")
    alerts.report(an_alert("b"))
    await rounds(alerts, clock)
    assert {one.alert.key: (one.count, one.episode) for one in await alerts.incidents.list()} == {
        "a": (300, 1),
        "b": (1, 2),
    }
    [kept] = [one for one in await app.store.documents.list("incident") if one.body["alert"]["key"] == "a"]
    assert kept.version <= 3  # opened, claimed and told


async def test_reports_past_the_bound_are_dropped_and_counted(alerts: Alerts, app: Redrive) -> None:
    events = seen(app)
    for number in range(1003):
        alerts.report(an_alert(str(number)))
    assert sum(one.count for one in events if isinstance(one, AlertsDropped)) == 3
    assert len(alerts._inbox) == 1000


async def test_an_open_alert_is_sent_again_to_who_takes_silence_for_its_end(app: Redrive, clock: ManualClock) -> None:
    notifiers = [Remembering("am", keepalive=timedelta(minutes=1)) for _ in range(2)]
    processes = [Alerts.of(app, notifiers=[one]) for one in notifiers]
    processes[0].report(an_alert())
    for _ in range(17):  # 187 s
        for one in processes:
            await one.round()
        await clock.advance(11)
    kinds = [kind for one in notifiers for kind, _ in one.told]
    assert kinds.count("opened") == 1
    assert kinds.count("repeated") == 2  # once a minute, by one of them
    await Service(app).resolve("k", actor="ann")
    for _ in range(12):
        for one in processes:
            await one.round()
        await clock.advance(11)
    kinds = [kind for one in notifiers for kind, _ in one.told]
    assert (kinds.count("repeated"), kinds.count("resolved")) == (2, 1)


async def test_what_a_person_does_is_told_too_and_stands_in_the_audit_trail(
    alerts: Alerts, app: Redrive, clock: ManualClock, notifier: Remembering
) -> None:
    service = Service(app)
    alerts.report(an_alert())
    await rounds(alerts, clock)
    [incident] = await service.incidents.list()
    await service.acknowledge(incident.id, actor="ann")
    await rounds(alerts, clock)
    await service.annotate(incident.id, "the provider is down", actor="ann")
    await service.resolve(incident.id, actor="bob")
    await rounds(alerts, clock)
    assert [kind for kind, _ in notifier.told] == ["opened", "acknowledged", "resolved"]
    assert [one.by for one in notifier.notices] == ["", "ann", "bob"]
    assert [(one["actor"], one["action"]) for one in await service.audit()] == [
        ("bob", "resolve"),
        ("ann", "note"),
        ("ann", "acknowledge"),
    ]
    assert [one.text for one in (await service.incidents.get("k")).notes] == ["the provider is down"]


class Moody(MemoryStore):
    """A store that is away while it is told to be."""

    def __init__(self) -> None:
        super().__init__()
        self.away = False
        for part in (self.documents, self.letters):
            for name in ("get", "list", "put", "delete", "count", "groups"):
                if hasattr(part, name):
                    setattr(part, name, self._guarded(getattr(part, name)))

    def _guarded(self, call: Any) -> Any:
        async def guarded(*arguments: Any, **options: Any) -> Any:
            if self.away:
                raise StoreUnavailable("store", "gone")
            return await call(*arguments, **options)

        return guarded


@pytest.fixture
async def moody(clock: ManualClock) -> AsyncIterator[tuple[Moody, Redrive]]:
    store = Moody()
    settings = Settings(transports={"default": "memory://"}, worker="w", alerts=Chosen())
    async with Redrive(store=store, settings=settings, clock=clock) as app:
        yield store, app


async def test_while_the_store_is_away_it_is_told_all_the_same_and_written_down_later(
    moody: tuple[Moody, Redrive], clock: ManualClock, notifier: Remembering
) -> None:
    store, app = moody
    events = seen(app)
    alerts = Alerts.of(app, notifiers=[notifier])
    app.events.subscribe(alerts._watch)
    alerts.report(an_alert("before"))
    await rounds(alerts, clock)
    store.away = True
    alerts.clear("before")  # only the store knows it
    alerts.report(an_alert("during"))
    await rounds(alerts, clock, 12)
    assert notifier.told == [("opened", "before"), ("opened", "during"), ("opened", "BackendDown:store")]
    assert any(isinstance(one, BackendDown) for one in events)
    store.away = False
    await rounds(alerts, clock, 2)
    assert [one.backend for one in events if isinstance(one, BackendUp)] == ["store"]
    assert notifier.told[3:] == [("resolved", "before")]
    states = {one.alert.key: str(one.state) for one in await alerts.incidents.list()}
    assert states == {"before": "resolved", "during": "open", "BackendDown:store": "open"}
    await rounds(alerts, clock, 20)
    assert notifier.told[4:] == [("resolved", "BackendDown:store")]


async def test_what_was_not_told_when_the_process_ended_without_a_store_is_counted(
    moody: tuple[Moody, Redrive], notifier: Remembering
) -> None:
    store, app = moody
    events = seen(app)
    store.away = True
    notifier.fails = [Undelivered("down") for _ in range(10)]
    async with Alerts.of(app, notifiers=[notifier]) as alerts:
        alerts.report(an_alert())
    assert [one.count for one in events if isinstance(one, AlertsDropped)] == [1]


# -- with a clock that runs --------------------------------------------------------------------------------------------


async def test_a_clean_stop_tells_what_is_known() -> None:
    notifier = Remembering()
    async with an_app() as app, Alerts.of(app, notifiers=[notifier]) as alerts:
        alerts.report(an_alert())
    assert notifier.told == [("opened", "k")]


class Hanging(Notifier):
    name = "pager"

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def notify(self, notices: Sequence[Notice]) -> None:
        self.asked.set()
        await asyncio.Event().wait()


async def test_a_stop_during_a_delivery_is_bounded_and_loses_nothing() -> None:
    hanging = Hanging()
    async with an_app(grace=timedelta(milliseconds=50), interval=timedelta(milliseconds=5)) as app:
        async with Alerts.of(app, notifiers=[hanging]) as alerts:
            alerts.report(an_alert())
            await hanging.asked.wait()
        [incident] = await Service(app).incidents.list()
        assert incident.owed is not None
        assert incident.owed.kind is Kind.OPENED


async def test_a_hanging_notifier_does_not_hold_up_messages() -> None:
    hanging, handled = Hanging(), []
    quick = {"grace": timedelta(milliseconds=10), "interval": timedelta(milliseconds=5)}
    async with an_app(**quick) as app:
        app.notifiers.append(hanging)

        @app.handler("orders", policy=Policy(attempts=1))
        async def handle(order: dict[str, int]) -> None:
            handled.append(order["n"])
            if order["n"] == 0:
                raise LookupError("a new cause")

        worker = Worker(app)
        task = asyncio.create_task(worker.run())
        await app.send("orders", {"n": 0})
        await hanging.asked.wait()
        for number in range(1, 50):
            await app.send("orders", {"n": number})
        await until(lambda: set(handled) == set(range(50)))
        worker.stop()
        await task


async def test_a_worker_watches_where_somebody_is_to_be_told() -> None:
    notifier, buried = Remembering(), asyncio.Event()
    async with an_app(interval=timedelta(milliseconds=5)) as app:
        app.notifiers.append(notifier)
        app.events.subscribe(lambda event: buried.set() if isinstance(event, MessageBuried) else None)

        @app.handler("orders", policy=Policy(attempts=1))
        async def handle(order: dict[str, int]) -> None:
            raise LookupError("no such order")

        worker = Worker(app)
        task = asyncio.create_task(worker.run())
        await app.send("orders", {"n": 0})
        await buried.wait()
        worker.stop()
        await task
    assert [kind for kind, key in notifier.told if key.startswith("NewGroup:")] == ["opened"]
    assert "no such order" in notifier.notices[0].alert.summary


async def test_where_nobody_is_to_be_told_nothing_runs() -> None:
    async with an_app() as app, alerting(app) as alerts:
        assert alerts is None


async def test_an_error_in_a_round_does_not_end_the_others(
    app: Redrive, notifier: Remembering, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    alerts = Alerts.of(app, notifiers=[notifier])
    monkeypatch.setattr(alerts._watch, "conditions", lambda now: 1 / 0)
    await alerts._guarded()
    assert "a round of alerts failed" in caplog.text
    monkeypatch.undo()
    away(app)
    alerts.report(an_alert())
    await alerts._guarded()
    assert notifier.told == [("opened", "k")]


async def test_more_than_is_told_at_once_follows_at_once(
    alerts: Alerts, clock: ManualClock, notifier: Remembering
) -> None:
    for number in range(250):
        alerts.report(an_alert(str(number)))
    await rounds(alerts, clock, 3)
    assert [len(batch) for batch in notifier.batches] == [100, 100, 50]
    assert len({one.alert.key for one in notifier.notices}) == 250


async def test_a_server_without_a_worker_watches_too() -> None:
    notifier, listening = Remembering(), asyncio.Event()
    async with an_app(interval=timedelta(milliseconds=5)) as app:
        app.notifiers.append(notifier)
        server = Server(app, "127.0.0.1", 0)
        task = asyncio.create_task(server.run(lambda _: listening.set()))
        await listening.wait()
        watched = asyncio.create_task(until(lambda: notifier.told == [("opened", "BreakerOpen:t")]))
        while not watched.done():  # the watch begins a moment after the server listens
            app.events.emit(BreakerMoved(target="t", state="open"))
            await asyncio.wait([watched], timeout=0.01)
        await watched
        server.stop()
        await task
