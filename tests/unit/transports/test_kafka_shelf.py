"""The shelf of a Kafka reader, without a broker: what may be committed, what may be handed out, and in which order."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st

from redrive.model import Failure, Holds
from redrive.testing.builders import make_failure, make_message
from redrive.transports.base import Depth
from redrive.transports.kafka.finished import finished_in, metadata_of
from redrive.transports.kafka.shelf import Partition, Record, Shelf
from redrive.transports.kafka.transport import remembered

LEASE = 60.0


def shelf_of(*keys: bytes | None, holds: Holds = Holds.KEY) -> tuple[Shelf, Partition]:
    shelf, partition = Shelf(lease=LEASE, holds=holds), Partition(("orders", 0), 100)
    shelf.assign(partition)
    shelf.add([record(partition, 100 + number, key) for number, key in enumerate(keys)], 0.0)
    return shelf, partition


def record(partition: Partition, offset: int, key: bytes | None, due: float = 0.0, done: bool = False) -> Record:
    return Record(partition, offset, make_message(key=key, body=b"%d" % offset), due=due, done=done)


def offsets(records: list[Record]) -> list[int]:
    return [one.offset for one in records]


def finish(shelf: Shelf, *records: Record) -> None:
    for one in records:
        shelf.finish([one])


def test_only_what_is_finished_without_a_gap_may_be_committed() -> None:
    shelf, partition = shelf_of(b"a", b"b", b"c", b"d")
    a, b, c, d = shelf.take(10, 0)
    finish(shelf, b, d)
    assert partition.base == 100
    finish(shelf, a)
    assert partition.base == 102
    finish(shelf, c)
    assert (partition.base, len(partition.open)) == (104, 0)


def test_what_another_has_finished_above_the_committed_offset_is_not_handed_out_again() -> None:
    shelf, partition = shelf_of(b"a", b"b", b"c", b"d", b"e")
    _, second, _, fourth, _ = shelf.take(10, 0)
    finish(shelf, second, fourth)
    text = metadata_of(partition.base, partition.finished_runs())
    following = Shelf(lease=LEASE)
    heir = Partition(("orders", 0), 100, done_before=finished_in(text, 100))
    following.assign(heir)
    assert list(heir.finished_runs()) == [(101, 102), (103, 104)], "known before anything has come"
    for offset in range(100, 105):
        following.add([record(heir, offset, b"k%d" % offset, done=offset in heir.done_before)], 0.0)
        assert list(heir.finished_runs()) == [(101, 102), (103, 104)]
    taken = following.take(10, 0)
    assert offsets(taken) == [100, 102, 104]
    finish(following, *taken)
    assert (heir.base, len(heir.open)) == (105, 0)


def test_what_is_finished_and_not_committed_is_counted() -> None:
    shelf, partition = shelf_of(b"a", b"b", b"c")
    a, b, c = shelf.take(10, 0)
    finish(shelf, c, a)
    assert (shelf.uncommitted, partition.is_changed) == (2, True)
    partition.committed = partition.standing
    assert (shelf.uncommitted, partition.is_changed) == (0, False)
    finish(shelf, b)
    assert shelf.uncommitted == 1
    shelf.revoke([partition.place])
    assert shelf.uncommitted == 0


def test_what_is_given_back_holds_up_its_key_and_no_other() -> None:
    shelf, _ = shelf_of(b"a", b"a", b"b", b"a")
    [first] = shelf.take(1, 0)
    shelf.give_back(first, 10.0)
    assert offsets(shelf.take(10, 0)) == [102]
    assert shelf.take(10, 9.9) == []
    [again] = shelf.take(10, 10.0)
    assert again is first
    assert shelf.take(10, 10.0) == [], "what is behind it waits for its outcome"
    finish(shelf, again)
    assert offsets(shelf.take(10, 10.0)) == [101, 103]


def test_those_behind_that_were_handed_out_already_come_back_in_their_order() -> None:
    shelf, _ = shelf_of(b"a", b"a", b"a", b"a")
    first, second, third = shelf.take(3, 0)
    shelf.give_back(first, 5.0)
    shelf.give_back(third, 0.0)
    shelf.give_back(second, 0.0)
    assert shelf.take(10, 4.0) == []
    [again] = shelf.take(10, 5.0)
    finish(shelf, again)
    assert offsets(shelf.take(10, 5.0)) == [101, 102, 103]


def test_holding_the_partition_holds_up_everything() -> None:
    shelf, _ = shelf_of(b"a", b"b", None, holds=Holds.PARTITION)
    [first] = shelf.take(1, 0)
    shelf.give_back(first, 5.0)
    assert shelf.take(10, 0) == []
    assert offsets(shelf.take(10, 5.0)) == [100]
    finish(shelf, first)
    assert offsets(shelf.take(10, 5.0)) == [101, 102]


def test_without_a_key_nothing_waits_for_anything() -> None:
    shelf, _ = shelf_of(None, None, None)
    [first] = shelf.take(1, 0)
    shelf.give_back(first, 5.0)
    assert offsets(shelf.take(10, 0)) == [101, 102]
    assert offsets(shelf.take(10, 5.0)) == [100]


def test_what_is_not_due_waits_and_its_key_does_not() -> None:
    shelf, partition = shelf_of(b"a")
    shelf.add([record(partition, 101, b"a", due=50.0)], 0.0)
    assert offsets(shelf.take(10, 0)) == [100]
    assert shelf.next_time() == 50.0
    [late] = shelf.take(10, 50.0)
    shelf.give_back(late, 55.0)
    assert shelf.take(10, 54.0) == []
    assert offsets(shelf.take(10, 55.0)) == [101]


def test_a_lease_that_ends_gives_the_message_back_and_counts() -> None:
    shelf, _ = shelf_of(b"a", b"b")
    first, second = shelf.take(2, 0)
    shelf.extend(second, 30.0)
    [again] = shelf.take(10, LEASE)
    assert (again is first, again.lapsed, again.tried) == (True, True, 1)
    assert shelf.deliveries([again])[0].message.attempt == 2
    assert not second.lapsed


def test_a_partition_that_moved_takes_what_is_held_with_it_and_nothing_else() -> None:
    shelf, gone = shelf_of(b"a", b"a", b"b")
    kept = Partition(("orders", 1), 0)
    shelf.assign(kept)
    shelf.add([record(kept, 0, b"z"), record(kept, 1, b"z")], 0.0)
    [held] = shelf.take(1, 0)
    shelf.give_back(held, 100.0)
    shelf.revoke([gone.place])
    assert not held.partition.alive
    assert [one.partition for one in shelf.take(10, 200.0)] == [kept, kept]


def test_a_partition_is_clean_when_nothing_behind_its_offset_was_begun() -> None:
    shelf, partition = shelf_of(b"a", b"b")
    assert partition.is_clean
    first, second = shelf.take(2, 0)
    assert not partition.is_clean
    finish(shelf, second)
    shelf.give_back(first, 0.0)
    assert not partition.is_clean, "the second is done, and will come again"
    finish(shelf, *shelf.take(1, 0))
    assert partition.is_clean


def test_depth() -> None:
    shelf, _ = shelf_of(b"a", b"a", b"b", b"c")
    first, second, third = shelf.take(3, 0)
    assert shelf.depth(("orders", 0), 110, 0) == Depth(7, 0, 3)
    shelf.give_back(first, 50.0)
    finish(shelf, third)
    assert shelf.depth(("orders", 0), 110, 0) == Depth(7, 1, 1)
    assert second.turn


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_whatever_happens_each_lane_is_finished_in_order_and_nothing_is_lost(data: st.DataObject) -> None:
    """A worker that keeps lanes, as flow/receive.py does, with retries and releases by chance."""
    keys = data.draw(st.lists(st.sampled_from([b"a", b"b", b"c"]), min_size=1, max_size=12))
    shelf, partition = shelf_of(*keys)
    now, hands = 0.0, defaultdict[bytes | None, list[Record]](list)
    done: list[Record] = []
    names = {one.offset: one.message.key for one in partition.open}
    for _ in range(400):
        for one in shelf.take(data.draw(st.integers(1, 4)), now):
            hands[one.message.key].append(one)
        busy = [key for key, held in hands.items() if held]
        if not busy:
            now += 1.0
        else:
            held = hands[data.draw(st.sampled_from(sorted(busy, key=str)))]
            _act(data.draw(st.sampled_from(["done", "done", "retry", "release"])), held, shelf, done, now)
        if len(done) == len(keys):
            break
    else:
        while len(done) < len(keys):  # from now on everything works
            now += 5.0
            for one in shelf.take(10, now):
                hands[one.message.key].append(one)
            for held in hands.values():
                while held:
                    _act("done", held, shelf, done, now)
    assert sorted(offsets(done)) == [100 + number for number in range(len(keys))]
    for key in set(keys):
        mine = [offset for offset in offsets(done) if names[offset] == key]
        assert mine == sorted(mine)
    assert partition.base == 100 + len(keys)


def _act(what: str, held: list[Record], shelf: Shelf, done: list[Record], now: float) -> None:
    first = held.pop(0)
    if what == "done":
        done.append(first)
        finish(shelf, first)
        return
    shelf.give_back(first, now + (3.0 if what == "retry" else 0.0))
    for one in held:
        shelf.give_back(one, now)
    held.clear()


def test_a_partition_that_was_left_open_is_clean_when_everything_suspect_is_done() -> None:
    shelf, partition = Shelf(lease=LEASE), Partition(("orders", 0), 100, 101)
    shelf.assign(partition)
    assert not partition.is_clean
    shelf.add([record(partition, 100, b"a"), record(partition, 101, b"b")], 0.0)
    finish(shelf, *shelf.take(1, 0.0))
    assert partition.is_clean


def test_what_fails_for_hours_keeps_its_first_and_its_last_failures() -> None:
    failures: tuple[Failure, ...] = ()
    for number in range(1, 3601):
        failures = remembered(failures, make_failure(attempt=number))
    assert [one.attempt for one in failures] == [*range(1, 51), *range(3551, 3601)]
