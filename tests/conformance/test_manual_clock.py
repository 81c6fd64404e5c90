"""The clock that tests own keeps the promises of redrive.clock.Clock."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from redrive.clock import Clock
from redrive.testing.clock import START, ManualClock


async def test_sleepers_are_woken_in_order_each_at_its_own_time() -> None:
    clock = ManualClock()
    woken: list[tuple[str, float]] = []

    async def sleeper(name: str, *spans: float) -> None:
        for span in spans:
            await clock.sleep(span)
            woken.append((name, clock.elapsed()))

    tasks = [asyncio.ensure_future(sleeper("late", 3)), asyncio.ensure_future(sleeper("often", 1, 1, 1, 1))]
    await clock.advance(3.5)
    assert woken == [("often", 1), ("often", 2), ("late", 3), ("often", 3)]
    assert clock.waiting == 1
    await clock.advance(0.5)
    await asyncio.gather(*tasks)
    assert (clock.elapsed(), clock.now()) == (4, START + timedelta(seconds=4))


async def test_waiting_ends_with_the_event_or_with_the_time() -> None:
    clock, event = ManualClock(), asyncio.Event()
    in_vain = asyncio.ensure_future(clock.wait(event, 1))
    await clock.advance(1)
    assert await in_vain is False
    in_time = asyncio.ensure_future(clock.wait(event, 1))
    await asyncio.sleep(0)
    event.set()
    assert await in_time is True
    assert await clock.wait(event, 0) is True


async def test_a_cancelled_sleeper_is_gone() -> None:
    clock = ManualClock()
    task = asyncio.ensure_future(clock.sleep(5))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert clock.waiting == 0


async def test_setting_the_clock_back_moves_the_time_of_day_only() -> None:
    clock: Clock = ManualClock()
    assert isinstance(clock, ManualClock)
    await clock.advance(10)
    first = clock.new_id()
    clock.set_back(3600)
    assert clock.now() == START + timedelta(seconds=10) - timedelta(hours=1)
    assert clock.elapsed() == 10
    assert clock.new_id() > first


async def test_two_clocks_make_the_same_chance_and_ids() -> None:
    one, two = ManualClock(), ManualClock()
    assert [one.rng.random() for _ in range(3)] == [two.rng.random() for _ in range(3)]
    assert [one.new_id() for _ in range(3)] == [two.new_id() for _ in range(3)]
    ids = [one.new_id() for _ in range(100)]
    assert ids == sorted(set(ids))
