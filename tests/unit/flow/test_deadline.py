"""One timer for many attempts, with what asyncio.timeout promises."""

from __future__ import annotations

import asyncio
import socket
import time
from datetime import timedelta

import pytest

from redrive.flow.deadline import Deadline, Deadlines

SOON, NEVER = timedelta(milliseconds=20), timedelta(hours=1)


async def held(deadlines: Deadlines, work: asyncio.Future[None]) -> Deadline:
    deadline = Deadline(deadlines)
    with deadline:
        await work
    return deadline


async def test_what_takes_too_long_is_ended_with_a_timeout() -> None:
    with pytest.raises(TimeoutError):
        await held(Deadlines(SOON), asyncio.Future())


async def test_each_task_is_ended_by_its_own_deadline_and_by_no_other() -> None:
    deadlines, quick = Deadlines(SOON), asyncio.Future[None]()
    slow = asyncio.create_task(held(deadlines, asyncio.Future()))
    done = asyncio.create_task(held(deadlines, quick))
    await asyncio.sleep(0)
    quick.set_result(None)
    assert (await done).expired is False
    with pytest.raises(TimeoutError):
        await slow


async def test_those_that_begin_later_are_ended_too() -> None:
    deadlines = Deadlines(SOON)
    for _ in range(3):
        with pytest.raises(TimeoutError):
            await held(deadlines, asyncio.Future())


async def test_a_deadline_can_be_used_again_after_it_expired() -> None:
    deadline = Deadline(Deadlines(SOON))
    with pytest.raises(TimeoutError), deadline:
        await asyncio.Future()
    assert deadline.expired
    with deadline:
        await asyncio.sleep(0)
    assert not deadline.expired
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_what_came_while_the_loop_was_held_up_is_heard_before_its_time_is_over() -> None:
    answer = asyncio.Future[None]()

    def heard() -> None:
        if not answer.done():
            answer.set_result(None)

    ours, theirs = socket.socketpair()
    with ours, theirs:
        asyncio.get_running_loop().add_reader(ours, heard)
        waiting = asyncio.create_task(held(Deadlines(SOON), answer))
        await asyncio.sleep(0)
        theirs.send(b"x")
        time.sleep(0.3)  # noqa: ASYNC251 - a handler that blocks the loop, a laptop that is closed
        assert (await waiting).expired is False
        asyncio.get_running_loop().remove_reader(ours)


async def test_a_cancellation_from_outside_stays_one() -> None:
    task = asyncio.create_task(held(Deadlines(NEVER), asyncio.Future()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_error_that_follows_the_timeout_is_not_hidden_by_it() -> None:
    deadline = Deadline(Deadlines(SOON))

    async def clean_up_badly() -> None:
        try:
            await asyncio.Future()
        except asyncio.CancelledError:
            raise KeyError from None

    with pytest.raises(KeyError), deadline:
        await clean_up_badly()
    assert deadline.expired
