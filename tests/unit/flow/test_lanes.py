"""What may go on while something of its key waits: in a consumer (Lanes) and in a transport (Backlog)."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec import Struct

from redrive.flow.lanes import Backlog, Lanes
from redrive.model import Bury, Done, Outcome, Reason, Release, Retry

RETRY = Retry(timedelta(seconds=3))
BURY = Bury(Reason.ATTEMPTS)


class Item(Struct, frozen=True):
    """`a1` is the first of lane a; `-1` has no lane."""

    name: str

    @property
    def lane(self) -> str | None:
        return None if self.name[0] == "-" else self.name[0]


def items(names: str) -> list[Item]:
    return [Item(name) for name in names.split()]


def names(found: list[Item]) -> str:
    return " ".join(item.name for item in found)


def lanes_of(text: str, *, retries_block: bool = True) -> Lanes[Item]:
    lanes: Lanes[Item] = Lanes(retries_block=retries_block)
    lanes.add(items(text))
    return lanes


def begun(lanes: Lanes[Item]) -> str:
    """All that may begin now."""
    return names(list(iter(lanes.next, None)))


class TestLanes:
    def test_of_each_lane_one_begins_and_without_a_lane_all(self) -> None:
        lanes = lanes_of("a1 a2 b1 -1 -2 a3")
        assert begun(lanes) == "a1 b1 -1 -2"
        assert lanes.busy == 2

    def test_what_is_done_is_followed_by_the_next_of_its_lane(self) -> None:
        lanes = lanes_of("a1 a2 a3")
        assert begun(lanes) == "a1"
        assert lanes.done(Item("a1")) == Item("a2")
        assert lanes.done(Item("a2")) == Item("a3")
        assert lanes.done(Item("a3")) is None
        assert lanes.busy == 0

    @pytest.mark.parametrize("outcome", [RETRY, Release()])
    def test_what_has_to_wait_takes_along_what_is_behind_it(self, outcome: Outcome) -> None:
        lanes = lanes_of("a1 b1 a2 b2")
        begun(lanes)
        lanes.block(Item("a1"), outcome)
        assert names(lanes.held_up()) == "a2"
        lanes.add(items("a3 b3"))
        assert begun(lanes) == ""
        assert names(lanes.settled()) == "a3", "it arrived while the first was being settled"
        assert lanes.done(Item("b1")) == Item("b2")

    def test_what_arrived_meanwhile_and_nobody_looked_at_goes_back_too(self) -> None:
        lanes = lanes_of("a1")
        begun(lanes)
        lanes.block(Item("a1"), RETRY)
        assert lanes.held_up() == []
        lanes.add(items("a2 b1 a3"))
        assert names(lanes.settled()) == "a2 a3"
        assert begun(lanes) == "b1"

    def test_until_what_goes_back_is_back_nothing_behind_it_begins(self) -> None:
        """The first may be of a partition that was lost and came again: then no transport holds the lane."""
        lanes = lanes_of("a1")
        begun(lanes)
        lanes.block(Item("a1"), RETRY)
        lanes.held_up()
        lanes.add(items("a1 a2"))
        assert names(lanes.settled()) == "a1 a2", "as they came again"
        lanes.add(items("a3"))
        assert begun(lanes) == "", "the first is not back yet"
        assert names(lanes.held_up()) == "a3", "it goes back with them"
        assert lanes.settled() == []
        lanes.add(items("a1"))
        assert begun(lanes) == "a1"

    @pytest.mark.parametrize("outcome", [BURY, Done()])
    def test_behind_what_was_buried_or_resolved_the_lane_goes_on_in_order(self, outcome: Outcome) -> None:
        lanes = lanes_of("a1 a2 a3")
        begun(lanes)
        lanes.block(Item("a1"), outcome)
        assert lanes.held_up() == []
        lanes.add(items("a4"))
        assert begun(lanes) == "", "its letter is not written yet"
        assert lanes.settled() == []
        assert begun(lanes) == "a2"
        assert [lanes.done(item) for item in items("a2 a3 a4")] == [Item("a3"), Item("a4"), None]

    def test_what_waited_behind_it_goes_before_what_arrived_meanwhile(self) -> None:
        lanes = lanes_of("a1 a2 a3")
        begun(lanes)
        lanes.block(Item("a1"), BURY)
        lanes.held_up()
        lanes.add(items("a4"))
        lanes.settled()
        assert begun(lanes) == "a2"
        assert [lanes.done(item) for item in items("a2 a3 a4")] == [Item("a3"), Item("a4"), None]

    def test_a_letter_that_could_not_be_written_holds_up_its_lane_and_no_other(self) -> None:
        lanes = lanes_of("a1 a2 b1 b2")
        begun(lanes)
        lanes.block(Item("a1"), BURY)
        lanes.block(Item("b1"), BURY)
        assert lanes.held_up() == []
        assert names(lanes.settled(kept_back=items("a1"))) == "a2"
        assert begun(lanes) == "b2"

    def test_a_retry_that_steps_aside_holds_up_nothing(self) -> None:
        lanes = lanes_of("a1 a2", retries_block=False)
        begun(lanes)
        lanes.block(Item("a1"), RETRY)
        assert (lanes.held_up(), lanes.settled(), begun(lanes)) == ([], [], "a2")

    def test_what_blocks_while_another_is_settled_waits_for_its_own_settlement(self) -> None:
        lanes = lanes_of("a1 a2 b1 b2")
        begun(lanes)
        lanes.block(Item("a1"), BURY)
        lanes.held_up()
        lanes.block(Item("b1"), BURY)
        lanes.settled()
        assert begun(lanes) == "a2"
        lanes.held_up()
        lanes.settled()
        assert begun(lanes) == "b2"

    def test_all_that_was_not_begun_is_given_back(self) -> None:
        lanes = lanes_of("a1 a2 b1 a3")
        assert lanes.next() == Item("a1")
        assert lanes.next() == Item("b1")
        lanes.add(items("-1 a4"))
        assert sorted(names(lanes.drain()).split()) == ["-1", "a2", "a3", "a4"]
        assert begun(lanes) == ""

    def test_one_is_next_when_nothing_of_its_lane_comes_before_it(self) -> None:
        [suspect] = items("a2")
        assert lanes_of("b1 -1").is_next(suspect, [*items("b2"), suspect])
        assert not lanes_of("").is_next(suspect, [*items("a1"), suspect])
        assert not lanes_of("a1").is_next(suspect, [suspect]), "it waits here, and nobody has begun it"
        busy = lanes_of("a1")
        begun(busy)
        assert not busy.is_next(suspect, [suspect])
        assert busy.is_next(Item("-1"), items("-0 -1"))


def backlog_of(text: str) -> Backlog[Item]:
    backlog: Backlog[Item] = Backlog(lane=lambda item: item.lane, order=lambda item: item.name)
    backlog.ready.extend(items(text))
    return backlog


class TestBacklog:
    def test_what_is_put_back_holds_up_its_lane_and_no_other(self) -> None:
        backlog = backlog_of("a1 a2 b1 a3")
        [first] = backlog.take(1, 0.0)
        backlog.put_back(first, 10.0)
        assert names(backlog.take(9, 0.0)) == "b1"
        assert backlog.next_time() == 10.0
        assert backlog.take(9, 9.9) == []
        assert backlog.take(9, 10.0) == [first]
        assert backlog.take(9, 10.0) == [], "what is behind it waits for its outcome"
        backlog.done([first])
        assert names(backlog.take(9, 10.0)) == "a2 a3"

    def test_those_that_were_out_come_back_in_their_order(self) -> None:
        backlog = backlog_of("a1 a2 a3")
        first, second, third = backlog.take(3, 0.0)
        backlog.put_back(third, 0.0)
        backlog.put_back(first, 5.0)
        assert backlog.is_blocked(second)
        backlog.put_back(second, 0.0)
        assert backlog.take(9, 4.0) == []
        assert backlog.take(9, 5.0) == [first]
        assert not backlog.is_blocked(first)
        backlog.done([first])
        assert names(backlog.take(9, 5.0)) == "a2 a3"

    def test_an_earlier_one_that_comes_back_later_is_not_forgotten(self) -> None:
        backlog = backlog_of("a1 a2")
        first, second = backlog.take(2, 0.0)
        backlog.put_back(second, 0.0)
        assert backlog.take(9, 0.0) == [second]
        backlog.put_back(first, 0.0)
        backlog.done([second])
        assert backlog.take(9, 0.0) == [first]

    def test_without_a_lane_nothing_waits_for_anything(self) -> None:
        backlog = backlog_of("-1 -2")
        [first] = backlog.take(1, 0.0)
        backlog.put_back(first, 5.0)
        assert names(backlog.take(9, 0.0)) == "-2"
        assert backlog.take(9, 5.0) == [first]

    def test_what_comes_before_its_time_waits_and_its_lane_does_not(self) -> None:
        backlog = backlog_of("a1")
        backlog.delay(Item("a2"), 50.0)
        assert names(backlog.take(9, 0.0)) == "a1"
        assert names(list(backlog.waiting(0.0))) == "a2"
        assert names(backlog.take(9, 50.0)) == "a2"

    def test_what_is_gone_is_not_handed_out_and_holds_up_nothing(self) -> None:
        backlog = backlog_of("a1 a2 b1 b2")
        for item in backlog.take(2, 0.0):
            backlog.put_back(item, 1.0)
        backlog.drop(lambda item: item.name in ("a1", "b2"))
        assert names(backlog.take(9, 1.0)) == "a2 b1"

    def test_when_the_one_that_was_out_is_gone_the_next_of_its_lane_goes(self) -> None:
        backlog = backlog_of("a1 a2")
        [first] = backlog.take(1, 0.0)
        backlog.put_back(first, 1.0)
        assert backlog.take(9, 1.0) == [first]
        backlog.drop(lambda item: item is first)
        assert names(backlog.take(9, 1.0)) == "a2"
