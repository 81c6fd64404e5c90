"""Nobody is told of a muted group, and somebody of one that regressed or can go back."""

from __future__ import annotations

from datetime import timedelta

from redrive import Redrive
from redrive.alerts import Alerts
from redrive.alerts.incidents import IncidentState
from redrive.model import Letter
from redrive.service import Service
from redrive.telemetry.events import GroupDeployed, MessageBuried
from redrive.testing.builders import make_failure, make_letter
from redrive.testing.clock import ManualClock
from redrive.upkeep.fixes import Fixes
from tests.actors import acting
from tests.alerts.conftest import Remembering, an_alert, on_every_store


async def buried(app: Redrive, group: str, version: str = "") -> Letter:
    now = app.clock.now()
    letter = make_letter(None, make_failure(at=now, version=version), at=now, group=group)
    await app.store.letters.record([letter])
    app.events.emit(MessageBuried.of(letter, "orders"))
    return letter


@on_every_store
async def test_a_muted_group_sends_no_alert_and_comes_back_by_itself(
    app: Redrive, alerts: Alerts, notifier: Remembering, clock: ManualClock
) -> None:
    alerts.listen()
    service = Service(app)
    await buried(app, "loud")
    await buried(app, "quiet")
    await service.mute("quiet", timedelta(hours=2), actor=acting("me"), why="we know")
    await alerts.round()
    assert notifier.told == [("opened", "NewGroup:loud")]
    alerts.report(an_alert("own", group="quiet"))  # of a system, say
    await alerts.round()
    assert len(notifier.told) == 1
    await clock.advance(2 * 3600 + 1)
    alerts.report(an_alert("own", group="quiet", at=clock.now()))
    await alerts.round()
    assert notifier.told[-1] == ("opened", "own")


async def test_what_was_told_of_a_group_before_it_was_muted_is_resolved(
    app: Redrive, alerts: Alerts, notifier: Remembering
) -> None:
    alerts.listen()
    await buried(app, "quiet")
    await alerts.round()
    await Service(app).mute("quiet", timedelta(hours=2), actor=acting("me"), why="we know")
    await alerts.round()
    assert notifier.told == [("opened", "NewGroup:quiet"), ("resolved", "NewGroup:quiet")]


@on_every_store
async def test_a_regression_is_told_until_it_is_fixed_anew_whoever_saw_it(
    app: Redrive, alerts: Alerts, notifier: Remembering, clock: ManualClock
) -> None:
    service = Service(app)
    await buried(app, "g", "1.4.1")
    await service.fix("g", "1.4.2", actor=acting("me"))
    await clock.advance(1)
    letter = await buried(app, "g", "1.4.2")
    await Fixes(app.store, service.replays, app.events, clock).cycle()  # another process, which has died since
    await alerts.round()
    [notice] = notifier.notices
    assert notice.alert.name == "GroupRegressed"
    assert f"letter {letter.id} died on 1.4.2" in notice.alert.summary
    await service.fix("g", "1.4.3", actor=acting("me"))
    await clock.advance(200)
    await alerts.round()
    assert [kind for kind, _ in notifier.told] == ["opened", "resolved"]


async def test_a_fix_that_runs_everywhere_is_told_once_unless_it_goes_by_itself(
    app: Redrive, alerts: Alerts, notifier: Remembering
) -> None:
    alerts.listen()
    app.events.emit(GroupDeployed(group="g", version="1.4.2", auto=False, letters=3))
    app.events.emit(GroupDeployed(group="by-itself", version="1.4.2", auto=True, letters=3))
    app.events.emit(GroupDeployed(group="empty", version="1.4.2", auto=False, letters=0))
    for _ in range(2):
        await alerts.round()
    [notice] = notifier.notices
    assert notice.alert.key == "FixDeployed:g"
    assert "redrive replay --group g" in notice.alert.summary
    assert (await alerts.incidents.list())[0].state is IncidentState.OPEN
