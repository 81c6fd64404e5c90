"""A replay that pauses by itself opens an incident, which resolves when somebody goes on with it or cancels it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from redrive import Redrive
from redrive.alerts import Alerts
from redrive.flow.guard import Guard
from redrive.flow.replay import Replay, ReplayState
from redrive.forensics.query import Query
from redrive.service import Service
from redrive.testing.builders import make_letter
from redrive.testing.clock import ManualClock
from tests.actors import acting
from tests.alerts.conftest import Remembering, an_app

DEADLINE = timedelta(minutes=1)
OPENED, RESOLVED = ("opened", "ReplayPaused:r1"), ("resolved", "ReplayPaused:r1")


@pytest.fixture
async def shop(clock: ManualClock) -> AsyncIterator[Redrive]:
    """Four dead letters, a guarded replay `r1` of them, and no worker: nobody tells what becomes of the canary."""
    async with an_app(clock, new_group=False, exhausted=None) as app:
        await app.store.letters.record([make_letter(at=clock.now()) for _ in range(4)])
        await Service(app).replay(
            Query(), every=True, actor=acting("ann"), id="r1", guard=Guard(canary=1), deadline=DEADLINE
        )
        yield app


async def _run(app: Redrive, clock: ManualClock) -> Replay:
    """As upkeep does, until it is paused."""
    while True:
        task = asyncio.create_task(Service(app).run_replay("r1"))
        await clock.eventually(asyncio.wait([task]))
        if task.result().replay.state is not ReplayState.RUNNING:
            return task.result().replay
        await clock.advance(5)


async def _rounds(alerts: Alerts, clock: ManualClock, count: int = 3) -> None:
    for _ in range(count):
        await alerts.round()
        await clock.advance(11)


async def test_one_that_paused_by_itself_is_an_incident_until_it_goes_on(
    shop: Redrive, clock: ManualClock, notifier: Remembering
) -> None:
    alerts = Alerts.of(shop, notifiers=[notifier])
    alerts.listen()
    await _rounds(alerts, clock)
    assert notifier.told == [], "it runs"
    assert (await _run(shop, clock)).state is ReplayState.PAUSED
    await _rounds(alerts, clock)
    assert notifier.told == [OPENED], "it is told once"
    [notice] = notifier.notices
    assert "replay r1 of 4 letters is paused: nothing was heard for 1 min" in notice.alert.summary
    assert (notice.alert.details["replay"], notice.alert.details["by"]) == ("r1", "deadline")
    await Service(shop).resume_replay("r1", actor=acting("bob"))
    await _rounds(alerts, clock, 13)
    assert notifier.told == [OPENED, RESOLVED]


async def test_another_process_than_the_one_that_ran_it_tells_it_too(
    shop: Redrive, clock: ManualClock, notifier: Remembering
) -> None:
    await _run(shop, clock)
    alerts = Alerts.of(shop, notifiers=[notifier])  # it was not there when it paused
    alerts.listen()
    await _rounds(alerts, clock)
    assert notifier.told == [OPENED]


async def test_one_that_is_cancelled_needs_nobody_any_more(
    shop: Redrive, clock: ManualClock, notifier: Remembering
) -> None:
    await _run(shop, clock)
    alerts = Alerts.of(shop, notifiers=[notifier])
    alerts.listen()
    await _rounds(alerts, clock)
    await Service(shop).cancel_replay("r1", actor=acting("bob"))
    await _rounds(alerts, clock, 13)
    assert notifier.told == [OPENED, RESOLVED]


async def test_a_pause_by_hand_is_no_incident(shop: Redrive, clock: ManualClock, notifier: Remembering) -> None:
    alerts = Alerts.of(shop, notifiers=[notifier])
    alerts.listen()
    await Service(shop).pause_replay("r1", actor=acting("bob"), why="lunch")
    await _rounds(alerts, clock)
    assert notifier.told == []


async def test_it_can_be_switched_off(clock: ManualClock, notifier: Remembering) -> None:
    async with an_app(clock, new_group=False, exhausted=None, replay_paused=False) as app:
        await app.store.letters.record([make_letter(at=clock.now()) for _ in range(4)])
        await Service(app).replay(
            Query(), every=True, actor=acting("ann"), id="r1", guard=Guard(canary=1), deadline=DEADLINE
        )
        await _run(app, clock)
        alerts = Alerts.of(app, notifiers=[notifier])
        alerts.listen()
        await _rounds(alerts, clock)
        assert notifier.told == []
