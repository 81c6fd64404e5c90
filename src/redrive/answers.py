"""Ask several backends side by side: what answers is shown, what does not is named, and waited for only so long."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Generic, TypeVar

from msgspec import Struct

from redrive.errors import RedriveError

T = TypeVar("T")
log = logging.getLogger("redrive")
PATIENCE = 5.0
"""Seconds that each backend has, while the others are asked at the same time."""


class Unanswered(Struct, frozen=True):
    """A backend that did not answer, and why."""

    backend: str  # `store`, `transports.default`, …
    why: str


class Answers(Struct, Generic[T], frozen=True):
    """What each backend answered, by its name, and those that did not, in the order they were asked."""

    found: dict[str, T]
    unanswered: list[Unanswered]


async def ask_each(
    questions: Mapping[str, Callable[[], Awaitable[T]]],
    *,
    patience: float | None = None,
    masked: Callable[[str], str] = str,
) -> Answers[T]:
    """Ask all of them at once, each for so many seconds at most.

    One that hangs, fails, or cannot even be asked (its URL is wrong, its extra is not installed) says nothing of the
    others. `masked` hides the secrets of why.
    """
    within = PATIENCE if patience is None else patience
    tasks = {name: asyncio.create_task(_asked(question)) for name, question in questions.items()}
    try:
        if tasks:
            await asyncio.wait(tasks.values(), timeout=within)
    finally:
        for task in tasks.values():
            task.cancel()  # and is not waited for: a driver that hangs may not hear of it
    said = {name: _said(task, within) for name, task in tasks.items()}
    return Answers(
        {name: answer for name, answer in said.items() if not isinstance(answer, _Silence)},
        [Unanswered(name, masked(answer.why)) for name, answer in said.items() if isinstance(answer, _Silence)],
    )


async def within(work: Coroutine[Any, Any, object], seconds: float) -> bool:
    """Wait for that work, but no longer than so; whether it came to its end. What it raises is left unsaid."""
    task = asyncio.create_task(work)
    await asyncio.wait([task], timeout=seconds)
    if not task.done():
        task.cancel()
        return False
    with suppress(asyncio.CancelledError):
        return task.exception() is None
    return False


class _Silence(Struct, frozen=True):
    why: str


async def _asked(question: Callable[[], Awaitable[T]]) -> T | _Silence:
    try:
        return await question()
    except RedriveError as error:
        return _Silence(str(error))
    except TimeoutError:
        return _Silence("it gave no answer in time")
    except Exception as error:  # of a plug-in, or ours: the others are shown all the same
        log.error("a backend failed in a way that nobody foresaw", exc_info=error)
        return _Silence(f"{type(error).__name__}: {error} (nobody foresaw this: please report it)")


def _said(task: asyncio.Task[T | _Silence], within: float) -> T | _Silence:
    if task.done() and not task.cancelled():
        return task.result()
    return _Silence(f"no answer within {within:g} s")
