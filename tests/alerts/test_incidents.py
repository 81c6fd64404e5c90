"""What happens to an incident, as values, and as documents that several processes change."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from redrive import Redrive
from redrive.alerts import Kind
from redrive.alerts.incidents import (
    Incident,
    Incidents,
    IncidentState,
    Timing,
    acknowledged,
    claimed,
    lapsed,
    merged,
    noted,
    notice_of,
    opened,
    reported,
    resolved,
    told,
)
from redrive.errors import UnknownIncident, UsageError
from redrive.stores.base import Document
from redrive.stores.memory import MemoryDocuments
from redrive.telemetry.events import IncidentMoved
from redrive.testing.clock import START, ManualClock
from tests.alerts.conftest import an_alert, on_every_store, seen

TIMING = Timing(repeat=timedelta(hours=4), lapse=timedelta(minutes=2))
LATER = START + timedelta(hours=4)


def owed(one: Incident) -> Kind | None:
    return None if one.owed is None else one.owed.kind


def a_told(**more: object) -> Incident:
    one = opened(None, an_alert(**more), START)
    assert one.owed is not None
    return told(one, one.owed.number, one.count, (), START)


def test_a_first_report_opens_it_and_owes_a_notice() -> None:
    one = reported(None, an_alert(), START, TIMING)
    assert (one.state, one.count, one.episode, owed(one)) == (IncidentState.OPEN, 1, 1, Kind.OPENED)


def test_more_of_the_same_is_counted_and_not_told() -> None:
    one = reported(a_told(), an_alert(count=7), START + timedelta(seconds=5), TIMING)
    assert (one.count, owed(one)) == (8, None)


def test_what_others_know_it_by_stays_for_its_whole_life() -> None:
    """To Alertmanager, an alert with another label is another one, and nobody would ever resolve the first."""
    first = a_told(labels={"task": "a"}, group="g1", source="s1")
    again = reported(first, an_alert(labels={"task": "b"}, group="g2", source="s2", summary="news"), LATER, TIMING)
    assert (again.alert.labels, again.alert.group, again.alert.source) == ({"task": "a"}, "g1", "s1")
    assert again.alert.summary == "news"
    ended = resolved(again, "me", LATER)
    anew = reported(ended, an_alert(labels={"task": "b"}), LATER + timedelta(days=1), TIMING)
    assert (anew.episode, anew.alert.labels) == (2, {"task": "b"})


def test_after_the_repeat_window_it_is_told_again_with_what_came_since() -> None:
    one = reported(a_told(), an_alert(count=7), LATER, TIMING)
    notice = notice_of(one)
    assert (notice.kind, notice.count, notice.since) == (Kind.REPEATED, 8, 7)


def test_a_fact_that_did_not_happen_again_is_not_told_again() -> None:
    assert owed(reported(a_told(), an_alert(count=0), LATER, TIMING)) is None


def test_a_condition_is_told_again_while_it_lasts() -> None:
    assert owed(reported(a_told(lasting=True), an_alert(count=0, lasting=True), LATER, TIMING)) is Kind.REPEATED


def test_a_condition_that_goes_on_is_not_written_down_each_time() -> None:
    before = a_told(lasting=True)
    soon = START + timedelta(seconds=5)
    assert reported(before, an_alert(count=0, lasting=True), soon, TIMING) is before


def test_what_is_acknowledged_is_not_told_again() -> None:
    one = acknowledged(a_told(lasting=True), "ann", START)
    assert (one.state, one.acknowledged_by, owed(one)) == (IncidentState.ACKNOWLEDGED, "ann", Kind.ACKNOWLEDGED)
    assert one.owed is not None
    after = told(one, one.owed.number, one.count, (), START)
    assert owed(reported(after, an_alert(count=5, lasting=True), LATER, TIMING)) is None
    assert acknowledged(after, "bob", LATER) is after


def test_a_condition_that_nobody_reports_any_more_is_over() -> None:
    one = a_told(lasting=True)
    assert lapsed(one, START + timedelta(minutes=2), TIMING) is one
    over = lapsed(one, START + timedelta(minutes=2, seconds=1), TIMING)
    assert (over.state, over.resolved_by, owed(over)) == (IncidentState.RESOLVED, "rule", Kind.RESOLVED)
    assert over.alert.resolved_at == over.resolved_at


def test_a_fact_never_lapses() -> None:
    one = a_told()
    assert lapsed(one, START + timedelta(days=400), TIMING) is one


def test_what_happens_again_after_its_end_is_another_episode() -> None:
    one = reported(resolved(a_told(), "rule", START), an_alert(), START + timedelta(minutes=1), TIMING)
    assert (one.state, one.episode, one.count, owed(one)) == (IncidentState.OPEN, 2, 1, Kind.OPENED)
    assert one.resolved_at is None


def test_a_condition_that_somebody_resolved_is_no_news_while_it_goes_on() -> None:
    done = resolved(a_told(lasting=True), "ann", START)
    still = reported(done, an_alert(lasting=True), START + timedelta(minutes=1), TIMING)
    assert still.state is IncidentState.RESOLVED
    back = reported(still, an_alert(lasting=True), START + timedelta(minutes=9), TIMING)
    assert (back.state, back.episode) == (IncidentState.OPEN, 2)


def test_a_notice_is_claimed_by_one_and_by_another_when_the_claim_ends() -> None:
    one, until = opened(None, an_alert(), START), START + timedelta(minutes=1)
    mine = claimed(one, "a", START, until)
    assert claimed(mine, "b", START + timedelta(seconds=59), LATER) is mine
    taken = claimed(mine, "b", until, LATER)
    assert taken.owed is not None
    assert taken.owed.owner == "b"


def test_a_notice_is_owed_until_every_notifier_took_it() -> None:
    one = claimed(opened(None, an_alert(), START), "a", START, LATER)
    half = told(one, 1, 1, {"pager"}, START)
    assert half.owed is not None
    assert (half.owed.to, half.owed.owner, half.told_at) == (("pager",), None, None)
    assert told(half, 1, 1, (), START).told_at == START


def test_what_was_told_late_does_not_hide_what_is_owed_by_now() -> None:
    one = resolved(claimed(opened(None, an_alert(), START), "a", START, LATER), "rule", START)
    assert owed(told(one, 1, 1, (), START)) is Kind.RESOLVED


def test_notes_are_kept_over_episodes_and_bounded() -> None:
    one = a_told()
    for number in range(120):
        one = noted(one, "ann", str(number), START)
    again = opened(resolved(one, "ann", START), an_alert(), LATER)
    assert [note.text for note in again.notes] == [str(number) for number in range(20, 120)]


def test_what_was_kept_apart_is_added_to_what_the_store_has() -> None:
    apart = a_told(count=3)
    assert merged(None, apart, LATER) is apart
    both = merged(a_told(count=2), apart, LATER)
    assert (both.count, both.told_count, owed(both)) == (5, 5, None)
    assert merged(resolved(a_told(), "rule", START), apart, LATER).episode == 2
    assert merged(a_told(), resolved(apart, "rule", START), LATER).state is IncidentState.RESOLVED


@pytest.fixture
def incidents(app: Redrive, clock: ManualClock) -> Incidents:
    return Incidents(app.store.documents, clock, app.events)


class Interrupted(MemoryDocuments):
    """Others have their turn between reading and writing, as in every real store."""

    async def get(self, kind: str, id: str) -> Document | None:
        found = await super().get(kind, id)
        await asyncio.sleep(0)
        return found


async def test_no_change_is_lost_that_others_make_at_the_same_time(app: Redrive, clock: ManualClock) -> None:
    documents = Interrupted()
    several = [Incidents(documents, clock, app.events) for _ in range(4)]
    await asyncio.gather(*(one.report(an_alert(), TIMING) for one in several for _ in range(5)))
    notes = (one.note("k", f"{number}", actor="ann") for number, one in enumerate(several))
    await asyncio.gather(*notes, several[0].acknowledge("k", actor="ann"))
    found = await several[0].get("k")
    assert (found.count, found.episode, found.state) == (20, 1, IncidentState.ACKNOWLEDGED)
    assert sorted(note.text for note in found.notes) == ["0", "1", "2", "3"]


@on_every_store
async def test_it_is_found_by_id_beginning_and_key(incidents: Incidents) -> None:
    one = await incidents.report(an_alert("BackendDown:store"), TIMING)
    for name in (one.id, one.id[:6], "BackendDown:store"):
        assert (await incidents.get(name)).id == one.id
    for name in ("", "zzzz"):
        with pytest.raises(UnknownIncident, match="redrive incidents"):
            await incidents.get(name)


@on_every_store
async def test_a_beginning_that_means_several_is_refused(incidents: Incidents) -> None:
    ids = [(await incidents.report(an_alert(str(number)), TIMING)).id for number in range(40)]
    first = next(id[0] for id in ids if sum(one[0] == id[0] for one in ids) > 1)
    with pytest.raises(UsageError, match="more than one"):
        await incidents.get(first)


@on_every_store
async def test_open_ones_come_first(incidents: Incidents, clock: ManualClock) -> None:
    for key in "abc":
        await incidents.report(an_alert(key), TIMING)
        await clock.advance(1)
    await incidents.resolve("c", actor="ann")
    assert [one.alert.key for one in await incidents.list()] == ["b", "a", "c"]
    assert [one.alert.key for one in await incidents.list(states=[IncidentState.RESOLVED])] == ["c"]


@on_every_store
async def test_each_move_is_an_event_and_names_who(incidents: Incidents, app: Redrive) -> None:
    events = seen(app)
    await incidents.report(an_alert(), TIMING)
    await incidents.report(an_alert(), TIMING)
    await incidents.acknowledge("k", actor="ann")
    await incidents.resolve("k", actor="bob")
    moves = [(one.state, one.actor) for one in events if isinstance(one, IncidentMoved)]
    assert moves == [("open", "rule"), ("acknowledged", "ann"), ("resolved", "bob")]


@pytest.mark.parametrize("text", ["", "   ", "x" * 2001])
async def test_a_note_has_some_length(incidents: Incidents, text: str) -> None:
    await incidents.report(an_alert(), TIMING)
    with pytest.raises(UsageError, match="1 to 2,000"):
        await incidents.note("k", text, actor="ann")


@on_every_store
async def test_those_resolved_long_ago_are_forgotten(incidents: Incidents, clock: ManualClock) -> None:
    one = await incidents.report(an_alert("old"), TIMING)
    await incidents.change(one.id, lambda old: told(old, 1, 1, (), clock.now()))
    await incidents.report(an_alert("open"), TIMING)
    done = await incidents.resolve("old", actor="ann")
    await incidents.change(done.id, lambda old: told(old, 2, 1, (), clock.now()))
    assert await incidents.forget(clock.now() + timedelta(seconds=1)) == 1
    assert [one.alert.key for one in await incidents.list()] == ["open"]
