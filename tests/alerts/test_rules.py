"""Each rule: what makes it an alert, what does not, and what resolves it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from redrive import Redrive
from redrive.alerts import Alerts
from redrive.alerts.rules import RULES, Pen
from redrive.alerts.watch import Recent, Watch
from redrive.config.settings import Alerts as Chosen
from redrive.config.settings import keys
from redrive.errors import ConfigError
from redrive.forensics.redact import Redactor
from redrive.model import Letter, Reason, State, letter_id
from redrive.telemetry.events import (
    BackendDown,
    BackendUp,
    BreakerMoved,
    GroupDeployed,
    LetterResolved,
    MessageBuried,
    QueueMeasured,
    SourceStormed,
    StormEnded,
)
from redrive.testing.builders import make_failure, make_letter, make_message
from redrive.testing.clock import ManualClock
from tests.alerts.conftest import Remembering, an_app, on_every_store


async def bury(
    app: Redrive, number: int = 0, *, group: str = "g", state: State = State.PENDING, reason: Reason = Reason.ATTEMPTS
) -> Letter:
    """As a worker does: the letter first, then the fact."""
    failure = make_failure(message="no route, password=hunter2")
    message = make_message(id=f"{group}-{number}", source="orders")
    letter = make_letter(message=message, failures=(failure,), group=group, state=state)
    letter = replace(letter, id=letter_id("orders", message.id), created_at=app.clock.now(), updated_at=app.clock.now())
    await app.store.letters.record([letter])
    app.events.emit(
        MessageBuried(
            source="orders",
            message=message.id,
            tenant=None,
            correlation_id=None,
            letter=letter.id,
            group=group,
            reason=reason,
            state=state,
            failure=failure,
        )
    )
    return letter


async def rounds(alerts: Alerts, clock: ManualClock, count: int = 1, *, every: float = 11) -> None:
    for _ in range(count):
        await alerts.round()
        await clock.advance(every)


@pytest.fixture
def watched(alerts: Alerts) -> Alerts:
    alerts.listen()
    return alerts


@on_every_store
async def test_a_new_group_is_told_once_and_resolves_when_its_letters_are_gone(
    watched: Alerts, app: Redrive, clock: ManualClock, notifier: Remembering
) -> None:
    letters = [await bury(app, number) for number in range(3)]
    await rounds(watched, clock)
    await bury(app, 3)
    await rounds(watched, clock, 3)
    assert notifier.told == [("opened", "NewGroup:g")]
    [notice] = notifier.notices
    assert (notice.alert.group, notice.alert.source, notice.count) == ("g", "orders", 3)
    ids = [one.id for one in letters] + [letter_id("orders", "g-3")]
    await app.store.letters.move(ids, expect=[State.PENDING], to=State.ARCHIVED, now=clock.now())
    await rounds(watched, clock, 2)
    assert notifier.told == [("opened", "NewGroup:g"), ("resolved", "NewGroup:g")]
    assert notifier.notices[1].by == "rule"


async def test_a_new_group_that_somebody_resolved_is_not_new_again(
    watched: Alerts, app: Redrive, clock: ManualClock, notifier: Remembering
) -> None:
    await bury(app, 0)
    await rounds(watched, clock)
    await watched.incidents.resolve("NewGroup:g", actor="ann")
    await bury(app, 1)
    await rounds(watched, clock, 2)
    assert [kind for kind, _ in notifier.told] == ["opened", "resolved"]


@on_every_store
async def test_an_old_group_is_not_new_to_a_process_that_just_started(
    alerts: Alerts, app: Redrive, clock: ManualClock, notifier: Remembering
) -> None:
    await bury(app, 0)
    await clock.advance(400)
    alerts.listen()
    await bury(app, 1)
    await rounds(alerts, clock, 2)
    assert notifier.told == []


async def test_secrets_of_an_error_are_not_told(
    watched: Alerts, app: Redrive, clock: ManualClock, notifier: Remembering
) -> None:
    await bury(app, state=State.EXHAUSTED)
    await rounds(watched, clock)
    assert "no route" in str(notifier.notices)
    assert "hunter2" not in str(notifier.notices)


@on_every_store
async def test_exhausted_letters_are_told_and_resolve_when_they_are_not_any_more(
    watched: Alerts, app: Redrive, clock: ManualClock, notifier: Remembering
) -> None:
    letter = await bury(app, state=State.EXHAUSTED)
    await rounds(watched, clock)
    assert ("opened", "LettersExhausted:g") in notifier.told
    await app.store.letters.move([letter.id], expect=[State.EXHAUSTED], to=State.ARCHIVED, now=clock.now())
    await rounds(watched, clock, 2)
    assert ("resolved", "LettersExhausted:g") in notifier.told


async def test_a_parked_retry_is_no_death(watched: Alerts, app: Redrive, clock: ManualClock) -> None:
    await bury(app, reason=Reason.PARKED)
    await rounds(watched, clock, 2)
    assert await watched.incidents.list() == []


async def test_a_threshold_of_exhausted_letters(clock: ManualClock, notifier: Remembering) -> None:
    async with an_app(clock, exhausted=3, new_group=False) as app:
        alerts = Alerts.of(app, notifiers=[notifier])
        alerts.listen()
        for number in range(2):
            await bury(app, number, state=State.EXHAUSTED)
        await rounds(alerts, clock, 2)
        assert notifier.told == []
        await bury(app, 2, state=State.EXHAUSTED)
        await rounds(alerts, clock)
        assert notifier.told == [("opened", "LettersExhausted:g")]


async def test_a_group_that_grows_fast_is_told_and_resolves_when_it_calms_down(
    clock: ManualClock, notifier: Remembering
) -> None:
    async with an_app(clock, growth=10, new_group=False) as app:
        alerts = Alerts.of(app, notifiers=[notifier])
        alerts.listen()
        for number in range(9):
            await bury(app, number)
        await rounds(alerts, clock)
        assert notifier.told == []
        await bury(app, 9)
        await rounds(alerts, clock, 10)
        assert notifier.told == [("opened", "GroupGrowing:g")]
        await rounds(alerts, clock, 40)  # the window, then the condition is gone for long enough
        assert notifier.told == [("opened", "GroupGrowing:g"), ("resolved", "GroupGrowing:g")]


async def test_hundreds_of_new_groups_are_not_hundreds_of_alerts(
    watched: Alerts, app: Redrive, clock: ManualClock, notifier: Remembering
) -> None:
    for number in range(50):
        await bury(app, group=f"g{number}")
    await rounds(watched, clock)
    keys = [key for _, key in notifier.told]
    assert len(keys) == 21
    assert "NewGroup:(many)" in keys
    assert len(notifier.batches) == 1  # and told together


async def test_retries_that_mostly_fail(watched: Alerts, app: Redrive, clock: ManualClock) -> None:
    for number in range(12):
        await bury(app, number, state=State.EXHAUSTED)
    for _ in range(7):
        app.events.emit(LetterResolved(source="orders", letter="x", replay=None))
    await rounds(watched, clock)
    assert "RetriesFailing:orders" not in [one.alert.key for one in await watched.incidents.list()]  # 19 are too few
    await bury(app, 12, state=State.EXHAUSTED)
    await rounds(watched, clock)
    one = await watched.incidents.get("RetriesFailing:orders")
    assert "only 35 % of 20 retried letters of orders succeeded" in one.alert.summary
    for _ in range(10):
        app.events.emit(LetterResolved(source="orders", letter="x", replay=None))
    await rounds(watched, clock, 13)
    assert (await watched.incidents.get("RetriesFailing:orders")).state == "resolved"


async def test_a_queue_that_fills_up(watched: Alerts, app: Redrive, clock: ManualClock, notifier: Remembering) -> None:
    app.events.emit(QueueMeasured(name="dlq", size=79, most=100))
    app.events.emit(QueueMeasured(name="unbounded", size=79, most=0))
    await rounds(watched, clock)
    assert notifier.told == []
    app.events.emit(QueueMeasured(name="dlq", size=80, most=100))
    await rounds(watched, clock)
    assert notifier.notices[0].alert.summary == "dlq is 80 % full: 80 of 100"
    app.events.emit(QueueMeasured(name="dlq", size=10, most=100))
    await rounds(watched, clock, 13)
    assert notifier.told == [("opened", "QueueFilling:dlq"), ("resolved", "QueueFilling:dlq")]


def away(app: Redrive, pause: float = 1) -> None:
    app.events.emit(BackendDown(backend="kafka", why="broker://u:hunter2@k is gone", pause=timedelta(seconds=pause)))


async def test_a_backend_that_is_away_for_long(
    watched: Alerts, app: Redrive, clock: ManualClock, notifier: Remembering
) -> None:
    for _ in range(5):
        away(app)
        await rounds(watched, clock)
    assert notifier.told == []
    for _ in range(3):
        away(app)
        await rounds(watched, clock)
    assert notifier.told == [("opened", "BackendDown:kafka")]
    assert notifier.notices[0].alert.severity == "critical"
    assert "hunter2" not in str(notifier.notices)
    app.events.emit(BackendUp(backend="kafka"))
    await rounds(watched, clock, 13)
    assert notifier.told[-1] == ("resolved", "BackendDown:kafka")


async def test_a_backend_that_complains_now_and_then_is_not_away(
    watched: Alerts, app: Redrive, clock: ManualClock, notifier: Remembering
) -> None:
    for _ in range(5):
        away(app)
        await rounds(watched, clock, 4)  # 44 s: longer than it would be silent if it were away
    assert notifier.told == []


async def test_a_breaker_that_is_open(watched: Alerts, app: Redrive, clock: ManualClock, notifier: Remembering) -> None:
    app.events.emit(BreakerMoved(target="default/orders", state="open"))
    await rounds(watched, clock, 20)
    app.events.emit(BreakerMoved(target="default/orders", state="half-open"))
    await rounds(watched, clock)
    assert notifier.told == [("opened", "BreakerOpen:default/orders")]
    app.events.emit(BreakerMoved(target="default/orders", state="closed"))
    await rounds(watched, clock, 13)
    assert notifier.told[-1] == ("resolved", "BreakerOpen:default/orders")


async def test_a_source_in_a_storm(watched: Alerts, app: Redrive, clock: ManualClock, notifier: Remembering) -> None:
    app.events.emit(SourceStormed(source="orders", transport="default", why="99 of 99 messages were buried"))
    await rounds(watched, clock, 20)
    assert notifier.told == [("opened", "SourceStorm:default/orders")]
    app.events.emit(StormEnded(source="orders", transport="default"))
    await rounds(watched, clock, 13)
    assert notifier.told[-1] == ("resolved", "SourceStorm:default/orders")


async def test_what_is_less_severe_than_asked_for_is_not_kept(clock: ManualClock, notifier: Remembering) -> None:
    async with an_app(clock, severity="error") as app:
        alerts = Alerts.of(app, notifiers=[notifier])
        alerts.listen()
        await bury(app, state=State.EXHAUSTED)
        await rounds(alerts, clock)
        assert notifier.told == [("opened", "LettersExhausted:g")]


OFF = {
    "exhausted": None,
    "new_group": False,
    "growth": None,
    "success": None,
    "utilisation": None,
    "backend_down": None,
    "breaker": False,
    "storm": False,
    "replay_paused": False,
    "regressed": False,
    "deployed": False,
}


async def test_every_rule_can_be_ended(clock: ManualClock, notifier: Remembering) -> None:
    assert {rule.setting for rule in RULES} == {f"alerts.{name}" for name in OFF}
    async with an_app(clock, **OFF) as app:
        alerts = Alerts.of(app, notifiers=[notifier])
        alerts.listen()
        for number in range(150):
            await bury(app, number, state=State.EXHAUSTED)
        app.events.emit(QueueMeasured(name="dlq", size=100, most=100))
        app.events.emit(BreakerMoved(target="t", state="open"))
        app.events.emit(SourceStormed(source="orders", transport="default", why="all are buried"))
        app.events.emit(GroupDeployed(group="g", version="2", auto=False, letters=3))
        for _ in range(10):
            away(app)
            await rounds(alerts, clock)
        assert notifier.told == []


def test_every_rule_names_its_setting() -> None:
    assert {rule.setting for rule in RULES} <= {key.path for key in keys()}


def test_what_is_recent_leaves_the_window() -> None:
    recent = Recent(100.0)
    for at in range(100):
        recent.add(float(at))
    assert recent.count(99.0) == 100
    assert recent.count(150.0) == 40  # slots 6 to 9
    assert recent.count(500.0) == 0


def test_the_path_of_a_message_keeps_a_bound_of_groups_and_sources(clock: ManualClock) -> None:
    watch = Watch(Chosen(success_of=1), clock, Pen(Redactor(), None), lambda: None)
    event = MessageBuried(
        source="orders",
        message="m",
        tenant=None,
        correlation_id=None,
        letter="l",
        group="g",
        reason=Reason.ATTEMPTS,
        state=State.EXHAUSTED,
        failure=make_failure(),
    )
    for number in range(5000):
        watch(replace(event, group=f"g{number}", source=f"s{number}"))
    assert len(watch.bursts()) == 1000
    assert {alert.name for alert in watch.conditions(clock.now())} == {"RetriesFailing"}
    assert len(watch.conditions(clock.now())) == 1000


async def test_a_queue_that_nobody_measures_any_more_is_forgotten(
    watched: Alerts, app: Redrive, clock: ManualClock, notifier: Remembering
) -> None:
    app.events.emit(QueueMeasured(name="dlq", size=100, most=100))
    await rounds(watched, clock, 20)
    assert notifier.told == [("opened", "QueueFilling:dlq")]
    await rounds(watched, clock, 20)
    assert notifier.told == [("opened", "QueueFilling:dlq"), ("resolved", "QueueFilling:dlq")]


async def test_a_link_leads_to_the_group(clock: ManualClock, notifier: Remembering) -> None:
    async with an_app(clock, console="https://redrive.example/") as app:
        alerts = Alerts.of(app, notifiers=[notifier])
        alerts.listen()
        await bury(app)
        await rounds(alerts, clock)
    assert notifier.notices[0].alert.links == {"console": "https://redrive.example/#group=g"}


async def test_a_console_that_is_no_address_is_refused() -> None:
    async with an_app(console="redrive.example") as app:
        with pytest.raises(ConfigError, match=r"alerts\.console"):
            Alerts.of(app)
