"""Redaction beside the event loop: what is large is masked in a thread, letter by letter."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from redrive.model import Letter

T = TypeVar("T")
V = TypeVar("V")
_SMALL = 16 << 10  # bytes that are masked in about a millisecond
_EACH = 200  # bytes that would take as long as what each thing costs however small it is


async def off_loop(letters: Sequence[Letter], view: Callable[[Letter], V]) -> list[V]:
    """The view of each of the letters; the event loop has its turn while large ones are masked."""
    return await each_off_loop(letters, view, size_of)


async def each_off_loop(things: Sequence[T], view: Callable[[T], V], size: Callable[[T], int]) -> list[V]:
    """The same of anything else whose size can be told."""
    sizes = [_EACH + size(thing) for thing in things]
    if sum(sizes) <= _SMALL:
        return [view(thing) for thing in things]
    return await asyncio.to_thread(lambda: list(_politely(things, sizes, view)))


def _politely(things: Sequence[T], sizes: Sequence[int], view: Callable[[T], V]) -> Iterator[V]:
    """The views, with a pause before each millisecond of work: whoever waits for the interpreter has it first. Not
    before each thing, since on a busy machine the processor goes to somebody else, too."""
    done = _SMALL
    for thing, size in zip(things, sizes, strict=True):
        if done + size > _SMALL:
            time.sleep(0)
            done = 0
        done += size
        yield view(thing)


def size_on_line(letter: Letter) -> int:
    """How many characters of it are looked at for its line in a list."""
    return len(letter.last.message) + len(letter.message.id) + len(letter.message.tenant or "")


def size_of(letter: Letter) -> int:
    """How many characters of it are looked at, about."""
    texts = sum(len(failure.stack) + len(failure.message) for failure in letter.failures)
    return size_of_message(letter) + texts


def size_of_message(letter: Letter) -> int:
    """The same of its message."""
    message = letter.message
    return len(message.body) + sum(len(name) + len(value) for name, value in message.headers)
