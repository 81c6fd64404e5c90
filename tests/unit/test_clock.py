"""Time, chance and ids."""

from __future__ import annotations

import asyncio
import os
import warnings
from datetime import UTC, datetime, timedelta

from redrive.clock import Pause, Steady, SystemClock, microseconds, moment, sortable_id
from redrive.testing.clock import ManualClock


def test_ids_made_one_after_the_other_sort_in_that_order() -> None:
    clock = SystemClock()
    ids = [clock.new_id() for _ in range(2000)]
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)


def test_an_id_has_26_characters_without_look_alikes() -> None:
    made = SystemClock().new_id()
    assert len(made) == 26
    assert set(made).isdisjoint("ilou")


def test_a_later_time_sorts_after_whatever_chance_says() -> None:
    assert sortable_id(1, b"\xff" * 10) < sortable_id(2, b"\x00" * 10)


def test_the_time_of_day_is_in_utc() -> None:
    assert SystemClock().now().tzinfo is UTC


def test_a_time_survives_as_an_integer() -> None:
    for at in (datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), datetime(2030, 1, 1, 0, 0, 0, 1, UTC)):
        assert moment(microseconds(at)) == at


async def test_waiting_ends_with_the_event() -> None:
    event = asyncio.Event()
    waiter = asyncio.create_task(SystemClock().wait(event, 30))
    await asyncio.sleep(0)
    event.set()
    assert await asyncio.wait_for(waiter, 5) is True


async def test_waiting_ends_without_the_event_when_time_is_up() -> None:
    assert await SystemClock().wait(asyncio.Event(), 0.001) is False
    assert await SystemClock().wait(asyncio.Event(), -1) is False


async def test_an_event_that_is_set_is_seen_even_without_time_to_wait() -> None:
    event = asyncio.Event()
    event.set()
    assert await SystemClock().wait(event, 0) is True


async def test_steady_time_goes_on_when_the_clock_is_set_back() -> None:
    clock = ManualClock()
    steady = Steady(clock)
    before = steady.micros()
    assert moment(before) == clock.now()
    clock.set_back(3600)
    await clock.advance(1)
    assert steady.micros() - before == 1_000_000
    assert clock.now() < moment(before) - timedelta(minutes=30)


def test_a_forked_child_makes_other_ids_than_its_parent() -> None:
    """Both go on from the same state of chance: only a new seed tells them apart."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads and fork: the child does nothing but this
        child = os.fork()
    if child == 0:
        os.write(write, SystemClock().new_id()[-10:].encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 10).decode() != SystemClock().new_id()[-10:]
    os.close(read)
    os.close(write)


def test_a_pause_doubles_up_to_the_longest_and_is_short_again_after_a_success() -> None:
    pause = Pause(0.5, 3)
    assert [pause.next() for _ in range(5)] == [0.5, 1, 2, 3, 3]
    pause.reset()
    assert pause.seconds == 0.5
    assert pause.next() == 0.5
