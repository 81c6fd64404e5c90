"""When a source is in a storm, how long it is left alone, and when it goes on."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive import Policy, Storm
from redrive.errors import ConfigError
from redrive.flow.storm import (
    LONGEST,
    SHORTEST,
    Finished,
    StormState,
    Window,
    after_probe,
    is_storm,
    may_bury,
    pause_after,
)
from redrive.testing.clock import START, ManualClock

RULE = Storm(share=0.5, over="1m", at_least=100)
STATE = StormState(
    transport="default", source="orders", by="w", at=START, finished=100, buried=60, over=timedelta(minutes=1)
)
counts = st.integers(0, 2000)


@pytest.mark.parametrize(
    ("done", "buried", "storm"),
    [(0, 99, False), (0, 100, True), (50, 50, False), (49, 51, True), (900, 100, False), (1000, 1001, True)],
)
def test_more_than_that_share_of_enough_messages_is_a_storm(done: int, buried: int, storm: bool) -> None:
    assert is_storm(RULE, Finished(done, buried)) is storm


@given(counts, counts, st.integers(0, 300))
def test_what_may_be_buried_is_no_storm_and_one_more_would_be(done: int, buried: int, wanted: int) -> None:
    before = Finished(done, buried)
    allowed = may_bury(RULE, before, wanted)
    assert 0 <= allowed <= wanted
    if allowed:
        assert not is_storm(RULE, before.and_(Finished(0, allowed)))
    if allowed < wanted:
        assert is_storm(RULE, before.and_(Finished(0, allowed + 1)))


@given(st.lists(st.tuples(st.floats(0, 30), st.integers(0, 50), st.integers(0, 50)), max_size=60))
def test_a_window_counts_what_is_not_older_than_it(steps: list[tuple[float, int, int]]) -> None:
    now = 0.0
    window = Window(timedelta(minutes=1), lambda: now)
    added: list[tuple[float, int, int]] = []
    for pause, done, buried in steps:
        now += pause
        window.add(done, buried)
        added.append((now, done, buried))
    total = window.total()
    surely = [(done, buried) for at, done, buried in added if now - at < 57]
    perhaps = [(done, buried) for at, done, buried in added if now - at <= 60]
    assert sum(d for d, _ in surely) <= total.done <= sum(d for d, _ in perhaps)
    assert sum(b for _, b in surely) <= total.buried <= sum(b for _, b in perhaps)


def test_pauses_grow_and_end() -> None:
    pauses = [pause_after(failed) for failed in range(40)]
    assert pauses[0] == SHORTEST
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST


def test_so_many_probes_in_a_row_end_it() -> None:
    state: StormState | None = STATE
    outcomes = [True, True, False, True, None, True, True]
    for outcome in outcomes:
        assert state is not None
        state = after_probe(state, outcome, 3, START)
    assert state is not None
    assert (state.succeeded, state.failed) == (2, 1), "what failed or was given back begins anew"
    assert after_probe(state, True, 3, START) is None


def test_a_probe_that_fails_lets_go_and_waits_longer() -> None:
    first = after_probe(STATE, False, 3, START)
    assert first is not None
    second = after_probe(first, False, 3, START)
    assert second is not None
    assert (second.wait, second.prober) == (4 * SHORTEST, "")
    assert second.probe_at == START + second.wait


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: Storm(share=0), "share=0"),
        (lambda: Storm(share=1.0), "share=1.0"),
        (lambda: Storm(share=True), "share=True"),
        (lambda: Storm(share="half"), "share='half'"),  # type: ignore[arg-type]
        (lambda: Storm(over="0s"), "over"),
        (lambda: Storm(at_least=0), "at_least=0"),
        (lambda: Storm(probes=0), "probes=0"),
        (lambda: Policy(storm=0.5), "Storm"),  # type: ignore[arg-type]
    ],
)
def test_what_is_wrong_in_a_rule_is_said(wrong: Callable[[], object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        wrong()


def test_a_window_begins_anew() -> None:
    clock = ManualClock()
    window = Window(timedelta(minutes=1), clock.elapsed)
    window.add(1, 2)
    assert window.total() == (1, 2)
    window.clear()
    assert window.total() == (0, 0)
