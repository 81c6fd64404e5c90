"""With a clock that runs: alerts beside a worker or a server, never in the way of a message."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest

from redrive import Policy, Redrive
from redrive.admin.server import Server
from redrive.alerts import Alerts, Kind, Notice, Notifier, alerting
from redrive.alerts.watch import Watch
from redrive.service import Service
from redrive.telemetry.events import (
    BreakerMoved,
    MessageBuried,
)
from redrive.testing.waiting import until
from redrive.worker import Worker
from tests.alerts.conftest import Remembering, an_alert, an_app
from tests.alerts.test_rules import away


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
    monkeypatch.setattr(Watch, "conditions", lambda watch, now: 1 / 0)
    async with Alerts.of(app, notifiers=[notifier]) as alerts:
        await until(lambda: "a round of alerts failed" in caplog.text)
        monkeypatch.undo()
        away(app)
        alerts.report(an_alert())
    assert notifier.told == [("opened", "k")]


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
