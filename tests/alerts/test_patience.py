"""A notifier that is down, slow or refuses: it is given time, and nobody else waits for it."""

from __future__ import annotations

from datetime import timedelta

from redrive import Redrive
from redrive.alerts import Alerts, Undelivered
from redrive.alerts.incidents import IncidentState
from redrive.telemetry.events import (
    AlertsDropped,
    AlertsSent,
    NotifierDown,
)
from redrive.testing.clock import ManualClock
from tests.alerts.conftest import Remembering, an_alert, seen
from tests.alerts.test_rules import rounds


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
