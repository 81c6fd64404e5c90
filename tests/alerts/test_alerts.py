"""Telling: once for all processes, all of it, and what a person does too."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest

from redrive import Redrive
from redrive.alerts import Alerts, Notice, Notifier
from redrive.service import Service
from redrive.telemetry.events import (
    AlertsDropped,
    Event,
    IncidentMoved,
)
from redrive.testing.clock import ManualClock
from tests.actors import acting
from tests.alerts.conftest import Remembering, an_alert, on_every_store, seen
from tests.alerts.test_rules import rounds


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
    await alerts.round()
    assert len(await alerts.incidents.list()) == 1000


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
    await Service(app).resolve("k", actor=acting("ann"))
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
    await service.acknowledge(incident.id, actor=acting("ann"))
    await rounds(alerts, clock)
    await service.annotate(incident.id, "the provider is down", actor=acting("ann"))
    await service.resolve(incident.id, actor=acting("bob"))
    await rounds(alerts, clock)
    assert [kind for kind, _ in notifier.told] == ["opened", "acknowledged", "resolved"]
    assert [one.by for one in notifier.notices] == ["", "ann", "bob"]
    assert [(one["actor"], one["action"]) for one in await service.audit()] == [
        ("bob", "resolve"),
        ("ann", "note"),
        ("ann", "acknowledge"),
    ]
    assert [one.text for one in (await service.incidents.get("k")).notes] == ["the provider is down"]


async def test_more_than_is_told_at_once_follows_at_once(
    alerts: Alerts, clock: ManualClock, notifier: Remembering
) -> None:
    for number in range(250):
        alerts.report(an_alert(str(number)))
    await rounds(alerts, clock, 3)
    assert [len(batch) for batch in notifier.batches] == [100, 100, 50]
    assert len({one.alert.key for one in notifier.notices}) == 250
