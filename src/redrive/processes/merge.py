"""The metrics of several processes as those of one.

counter, histogram, summary   added up; a process that died keeps what it had counted
everything else               the highest: a breaker that is open in one process is open
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct

_ADDED = ("counter", "histogram", "gaugehistogram", "summary")
Labels = tuple[tuple[str, str], ...]


class Family(Struct, frozen=True):
    """A metric with its samples: name of the sample, labels in the order they were given, value."""

    name: str
    kind: str
    about: str
    samples: Sequence[tuple[str, Labels, float]]

    @property
    def is_added(self) -> bool:
        return self.kind in _ADDED


_decoder = msgspec.msgpack.Decoder(list[Family])


def packed(families: Iterable[Family]) -> bytes:
    return msgspec.msgpack.encode(list(families))


def unpacked(data: bytes) -> list[Family]:
    return _decoder.decode(data) if data else []


def lasting(families: Iterable[Family]) -> list[Family]:
    """What stays true of a process that is gone: what it counted, not how it was."""
    return [family for family in families if family.is_added]


def merged(processes: Iterable[Iterable[Family]]) -> list[Family]:
    """One family for each name, in the order in which they were first seen."""
    found: dict[str, Family] = {}
    values: dict[str, dict[tuple[str, Labels], float]] = {}
    for families in processes:
        for family in families:
            known = found.setdefault(family.name, family)
            samples = values.setdefault(family.name, {})
            for name, labels, value in family.samples:
                key = (name, labels)
                samples[key] = value if key not in samples else _joined(known, name, samples[key], value)
    return [
        Family(family.name, family.kind, family.about, [(*key, value) for key, value in values[name].items()])
        for name, family in found.items()
    ]


def _joined(family: Family, sample: str, before: float, value: float) -> float:
    if sample.endswith("_created"):  # since when it counts
        return min(before, value)
    return before + value if family.is_added else max(before, value)
