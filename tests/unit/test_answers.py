"""What answers is there, what does not is named, and nobody is waited for longer than agreed."""

from __future__ import annotations

import asyncio
import logging

import pytest

from redrive.answers import Answers, Unanswered, ask_each, within
from redrive.errors import ConfigError, StoreUnavailable


async def answer() -> int:
    return 7


async def away() -> int:
    raise StoreUnavailable("redrive.db", "the disk is full")


async def hang() -> int:
    await asyncio.Event().wait()
    return 0


async def test_what_answers_is_there_beside_what_does_not() -> None:
    answers = await ask_each({"a": answer, "b": away, "c": hang, "d": answer}, patience=0.05)
    assert answers.found == {"a": 7, "d": 7}
    assert answers.unanswered == [
        Unanswered("b", "redrive.db is unavailable: the disk is full"),
        Unanswered("c", "no answer within 0.05 s"),
    ]


async def test_one_that_is_deaf_to_the_end_is_not_waited_for() -> None:
    heard, end = asyncio.Event(), asyncio.Event()

    async def deaf() -> int:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            heard.set()
            await end.wait()
        return 0

    answers = await ask_each({"a": answer, "b": deaf}, patience=0.05)
    assert [each.backend for each in answers.unanswered] == ["b"]
    assert not heard.is_set(), "it was not even waited for to hear of it"
    end.set()


async def test_all_are_asked_at_the_same_time() -> None:
    first, second = asyncio.Event(), asyncio.Event()

    async def one_of_two(mine: asyncio.Event, other: asyncio.Event) -> int:
        mine.set()
        await other.wait()
        return 7

    questions = {"a": lambda: one_of_two(first, second), "b": lambda: one_of_two(second, first)}
    assert await ask_each(questions, patience=60) == Answers({"a": 7, "b": 7}, [])


async def test_what_cannot_even_be_asked_is_named() -> None:
    def unopened() -> asyncio.Future[int]:
        raise ConfigError("no transport speaks 'kafak'")

    answers = await ask_each({"a": unopened, "b": answer})
    assert answers == Answers({"b": 7}, [Unanswered("a", "no transport speaks 'kafak'")])


async def test_a_bug_of_one_is_named_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def broken() -> int:
        raise KeyError("partition")

    with caplog.at_level(logging.ERROR, "redrive"):
        answers = await ask_each({"a": broken, "b": answer})
    assert answers.found == {"b": 7}
    assert "KeyError: 'partition'" in answers.unanswered[0].why
    assert "nobody foresaw" in caplog.text


async def test_secrets_of_the_reason_are_masked() -> None:
    answers = await ask_each({"a": away}, masked=lambda text: text.replace("disk", "****"))
    assert answers.unanswered[0].why == "redrive.db is unavailable: the **** is full"


async def test_nothing_asked_is_nothing_answered() -> None:
    assert await ask_each({}) == Answers({}, [])


async def test_an_end_that_does_not_come_is_not_waited_for() -> None:
    assert await within(answer(), 5)
    assert not await within(hang(), 0.01)
    assert not await within(away(), 5)
