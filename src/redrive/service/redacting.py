"""Redaction beside the event loop: what is large is masked in a thread, letter by letter."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from redrive.model import Letter

T = TypeVar("T")
V = TypeVar("V")
_SMALL = 16 << 10  # bytes that are masked in about a millisecond
_FEW = 20


async def off_loop(letters: Sequence[Letter], view: Callable[[Letter], V]) -> list[V]:
    """The view of each of the letters; the event loop has its turn while large ones are masked."""
    return await each_off_loop(letters, view, size_of)


async def each_off_loop(things: Sequence[T], view: Callable[[T], V], size: Callable[[T], int]) -> list[V]:
    """The same of anything else whose size can be told."""
    if len(things) <= _FEW and sum(map(size, things)) <= _SMALL:
        return [view(thing) for thing in things]
    return await asyncio.to_thread(lambda: [_one(thing, view) for thing in things])


def _one(thing: T, view: Callable[[T], V]) -> V:
    time.sleep(0)  # whoever waits for the interpreter has it first
    return view(thing)


def size_of(letter: Letter) -> int:
    """How many characters of it are looked at, about."""
    message = letter.message
    texts = sum(len(failure.stack) + len(failure.message) for failure in letter.failures)
    return len(message.body) + texts + sum(len(name) + len(value) for name, value in message.headers)
