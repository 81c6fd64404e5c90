"""The state machine of redelivered messages, without a broker: each row of its tables, and what follows from them."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from redrive.transports.rabbitmq import redelivery
from redrive.transports.rabbitmq.redelivery import (
    HARMLESS_IN_A_ROW,
    ONE_BY_ONE,
    PREFETCHING,
    Event,
    Next,
    Redelivery,
    after,
    state_of,
)
from tests.unit.transports.rabbitmq_model import Broker, Message, Plan

ROW = re.compile(r"^ {4}(FRESH|RETURNED|SUSPECT) +([A-Z_]+) +([A-Z]+) +\+(\d)$", re.MULTILINE)
ROWS = ROW.findall(redelivery.__doc__ or "")


@pytest.mark.parametrize(("state", "event", "following", "attempts"), ROWS)
def test_a_row_of_the_table(state: str, event: str, following: str, attempts: str) -> None:
    assert after(Redelivery[state], Event[event]) == Next(Redelivery[following], int(attempts))


def test_the_table_has_a_row_for_every_state_and_event() -> None:
    drawn = {(state, event) for state, event, _, _ in ROWS}
    assert drawn == {(state.name, event.name) for state in Redelivery for event in Event}
    assert len(ROWS) == len(drawn)


def test_only_what_was_returned_once_is_perhaps_untried() -> None:
    assert [state for state in Redelivery if state.perhaps_untried] == [Redelivery.RETURNED]


def test_the_state_in_a_header() -> None:
    """An older version counted on beyond two; what waits in a queue since then is read, too."""
    assert [state_of(times) for times in (0, 1, 2, 3, 1000)] == [0, 1, 2, 2, 2]


def test_the_pace_after_a_suspect_message() -> None:
    assert PREFETCHING.handed_out(Redelivery.RETURNED) is PREFETCHING
    pace = ONE_BY_ONE
    for _ in range(HARMLESS_IN_A_ROW):
        assert pace.is_one_by_one
        assert not pace.is_over
        assert pace.handed_out(Redelivery.SUSPECT) == ONE_BY_ONE
        pace = pace.handed_out(Redelivery.FRESH)
    assert pace.is_over
    assert not PREFETCHING.is_over


# -- a simulated broker ------------------------------------------------------------------------------------------------

plans = st.builds(
    Plan,
    innocents=st.integers(0, 40),
    place=st.integers(0, 40),
    attempts=st.integers(1, 4),
    workers=st.integers(1, 3),
    prefetch=st.integers(1, 20),
    batch=st.integers(1, 8),
    seed=st.integers(0, 1 << 32),
)


@given(plan=plans)
def test_a_deadly_message_is_buried_after_so_many_deaths_and_no_innocent_one_is(plan: Plan) -> None:
    broker = Broker(plan, deadly=1)
    broker.run()
    assert [message.name for message in broker.buried] == ["deadly-0"]
    assert broker.deaths == plan.attempts + 2
    assert len(broker.done) == plan.innocents


@given(plan=plans, kills=st.integers(1, 12), deadly=st.integers(0, 3))
def test_nothing_is_buried_before_enough_deaths_have_hit_it(plan: Plan, kills: int, deadly: int) -> None:
    """Also where workers and the broker are killed from outside, and several messages are deadly."""
    broker = Broker(plan, deadly=deadly, kills=kills)
    broker.run()
    assert len(broker.done) + len(broker.buried) == plan.innocents + deadly, "lost, or doubled"
    assert {message.name for message in broker.buried} >= {f"deadly-{number}" for number in range(deadly)}
    assert all(message.hit >= plan.attempts + 2 for message in broker.buried)


@given(plan=plans)
@example(plan=Plan(innocents=40, attempts=1))
def test_a_broker_that_is_killed_once_costs_nobody_an_attempt(plan: Plan) -> None:
    broker = Broker(plan, deadly=0)
    broker.kill_broker()
    broker.run()
    assert {message.attempt for message in broker.done} <= {1}
    assert not broker.buried


def test_a_message_as_the_model_has_it() -> None:
    """The model counts as the table does: two redeliveries for nothing, then each is an attempt."""
    message = Message("m")
    for attempt in (1, 1, 2, 3):
        message = message.after(Event.REDELIVERED)
        assert message.attempt == attempt
