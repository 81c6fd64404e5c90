"""Splits a batch so that of two writes of one thing the second is made after the first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from operator import attrgetter
from typing import TypeVar

from redrive.model import Letter, LetterId

T = TypeVar("T")
by_id: Callable[[Letter], LetterId] = attrgetter("id")


def rounds(things: Sequence[T], name: Callable[[T], Hashable]) -> Sequence[Sequence[T]]:
    """Split into rounds: none has a name twice, and what has the same name stays in order. As a rule it is one."""
    names = list(map(name, things))
    if len(set(names)) == len(names):
        return [things] if names else []
    earlier: dict[Hashable, int] = defaultdict(int)
    made: dict[int, list[T]] = defaultdict(list)
    for named, thing in zip(names, things, strict=True):
        made[earlier[named]].append(thing)
        earlier[named] += 1
    return list(made.values())
