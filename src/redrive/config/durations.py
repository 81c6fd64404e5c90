"""Durations as people write them: `250ms`, `1s`, `5m`, `2h`, `7d`, `1m30s`."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal
from typing import TypeAlias

from redrive.errors import ConfigError

Duration: TypeAlias = timedelta | str

_MICROS = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
    "w": 604_800_000_000,
}
_PART = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s|m|h|d|w)")


def duration(value: Duration) -> timedelta:
    """That long. A bare number is refused, because nobody can say what its unit is."""
    if isinstance(value, timedelta):
        return value
    parts = _PART.findall(value) if isinstance(value, str) else []
    if not parts or "".join(number + unit for number, unit in parts) != value:
        raise ConfigError(f"{value!r} is not a duration: write it with a unit, such as '250ms', '5s' or '1m30s'")
    try:  # in decimals, because a float loses microseconds of a long span
        return timedelta(microseconds=round(sum(Decimal(number) * _MICROS[unit] for number, unit in parts)))
    except OverflowError:
        raise ConfigError(f"{value!r} is too long for a duration") from None


def spoken(span: timedelta) -> str:
    """The shortest way to write it that `duration` reads back."""
    micros = span // timedelta(microseconds=1)
    if micros % 1000:
        return f"{micros}us"
    if micros == 0:
        return "0s"
    parts = []
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, rest = divmod(micros // 1000, size)
        micros = rest * 1000
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)
