"""What a message may carry. What no backend could carry is refused by its name, before anything is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, TypeAlias

from redrive.config.durations import Duration
from redrive.errors import UsageError
from redrive.flow.lineage import AFTER
from redrive.model import Headers, MessageId
from redrive.policy import positive

GivenHeaders: TypeAlias = Mapping[str, str | bytes]
_MOST = 2**31


def text_of(name: str, value: Any) -> str:
    """A name or an id: text that is not empty, and that UTF-8 can write."""
    if not isinstance(value, str) or not value:
        raise UsageError(f"{name}={value!r}: it has to be text, and not empty")
    bytes_of(name, value)
    return value


def bytes_of(name: str, value: Any) -> bytes:
    """Bytes as they are, text as UTF-8."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if not isinstance(value, str):
        raise UsageError(f"{name}={value!r}: it has to be text or bytes")
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{name}={value!r}: it has to be text that UTF-8 can write") from None


def priority_of(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not -_MOST <= value < _MOST:
        raise UsageError(f"priority={value!r}: it is a whole number, lower is more urgent")
    return value


def moment_of(name: str, span: Duration | None, now: datetime) -> datetime | None:
    """The time that is so long from now."""
    try:
        return None if span is None else now + positive(name, span)
    except OverflowError:
        raise UsageError(f"{name}={span!r}: that is longer than the calendar") from None


def headers_of(headers: GivenHeaders | None, after: Iterable[MessageId]) -> Headers:
    """The given headers, and one that names the messages this one comes after."""
    given = headers or {}
    pairs = [(text_of("the name of a header", name), bytes_of(f"header {name!r}", given[name])) for name in given]
    names = [text_of("after", name) for name in ([after] if isinstance(after, str) else after)]
    if any("\n" in name for name in names):
        raise UsageError(f"after={names!r}: an id with a line break cannot be waited for")
    if names:
        pairs.append((AFTER, "\n".join(names).encode()))
    return tuple(pairs)
