"""Pure: what fits into one request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from redrive.transports.sqs.wire import Packed

T = TypeVar("T")
AT_ONCE = 10
"""Messages in one request, at most."""


def tens(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """All of them, ten at a time."""
    return (items[start : start + AT_ONCE] for start in range(0, len(items), AT_ONCE))


def fitting(items: Iterable[tuple[T, Packed]], largest: int) -> Iterator[list[tuple[T, Packed]]]:
    """All of them in order, in requests of ten messages and so many bytes at most."""
    batch: list[tuple[T, Packed]] = []
    size = 0
    for item in items:
        if batch and (len(batch) == AT_ONCE or size + item[1].size > largest):
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += item[1].size
    if batch:
        yield batch
