"""Acks: as few as possible, each tag once, and none that RabbitMQ would take for an error."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from redrive.transports.rabbitmq.tags import Tags


def test_one_ack_for_what_is_finished_without_a_gap() -> None:
    tags = Tags()
    assert tags.acks([1, 2, 3]) == [(3, True)]
    assert tags.acks([6, 5]) == [(6, False), (5, False)]
    assert tags.acks([4]) == [(4, False)], "5 and 6 are settled: an ack of them again would end the channel"
    assert tags.acks([7, 7, 1]) == [(7, False)]


def test_what_was_rejected_meanwhile_is_not_acked() -> None:
    tags = Tags()
    tags.settle(2)
    assert tags.acks([1, 2, 3]) == [(3, True)]
    assert not tags.is_open(2)
    assert tags.is_open(4)


@given(batches=st.lists(st.lists(st.integers(1, 30), max_size=10), max_size=20), rejected=st.sets(st.integers(1, 30)))
def test_every_tag_is_acked_once(batches: list[list[int]], rejected: set[int]) -> None:
    tags, unacked = Tags(), set(range(1, 31)) - rejected
    for tag in rejected:
        tags.settle(tag)
    for batch in batches:
        wanted = set(batch) & unacked
        for last, multiple in tags.acks(batch):
            assert last in unacked, "the broker takes it for an error"
            unacked -= {tag for tag in unacked if tag <= last} if multiple else {last}
        assert not wanted & unacked
    assert unacked == {tag for tag in range(1, 31) if tags.is_open(tag)}
