"""What is finished above a committed offset, as the text that Kafka keeps beside it (`metadata`). Pure.

    offset   1001   1002   1003   1004   1005   1006
             held   done   done   held   done   ready
             ▲ committed           [1002, 1004) [1005, 1006): finished, and not to be done again

The runs of finished offsets are written as distances, packed and compressed: 5,000 offsets of which every second one is
finished take less than 100 characters, 5,000 by chance about 1,500. A broker takes 4,096 (`offset.metadata.max.bytes`):
where it would be more, the runs that lie farthest ahead are left out, and are done again after a crash.
"""

from __future__ import annotations

import base64
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator

OPEN = "redrive: open"
"""Beside a committed offset: who committed it has begun something behind it. Gone when a worker ends cleanly."""
LONGEST = 4_000
"""Characters beside an offset; brokers refuse more than 4,096."""
_FINISHED = f"{OPEN}; finished="
_MOST_BYTES = 1 << 20  # of what a text may unpack to
Run = tuple[int, int]
"""From the first offset on, up to but not including the second."""


class Finished:
    """Offsets that are finished, as runs in ascending order that do not touch."""

    __slots__ = ("_ends", "_starts")

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        pairs = list(runs)
        self._starts = [start for start, _ in pairs]
        self._ends = [end for _, end in pairs]

    def __contains__(self, offset: int) -> bool:
        run = bisect_right(self._starts, offset) - 1
        return run >= 0 and offset < self._ends[run]

    def __bool__(self) -> bool:
        return bool(self._starts)

    @property
    def runs(self) -> list[Run]:
        return list(zip(self._starts, self._ends, strict=True))

    def runs_from(self, offset: int) -> list[Run]:
        """The runs from that offset on."""
        return [(max(start, offset), end) for start, end in self.runs if end > offset]

    @property
    def end(self) -> int:
        """The offset behind the last one; 0 if there is none."""
        return self._ends[-1] if self._ends else 0


NOTHING = Finished()


def runs_of(offsets: Iterable[int]) -> Iterator[Run]:
    """The runs of offsets that come in ascending order."""
    return joined((offset, offset + 1) for offset in offsets)


def joined(runs: Iterable[Run]) -> Iterator[Run]:
    """The runs in ascending order, as one where they touch."""
    start = end = -1
    for first, following in runs:
        if first > end:
            if end >= 0:
                yield start, end
            start = first
        end = max(end, following)
    if end >= 0:
        yield start, end


def metadata_of(committed: int, runs: Iterable[Run], longest: int = LONGEST) -> str:
    """The text beside a committed offset behind which something is begun: that, and what is finished above it."""
    wanted = list(runs)
    while wanted:
        text = _FINISHED + _packed(committed, wanted)
        if len(text) <= longest:
            return text
        wanted = wanted[: min(len(wanted) - 1, len(wanted) * longest // len(text))]
    return OPEN if len(OPEN) <= longest else ""


def is_open(metadata: str | None) -> bool:
    """Whether who committed that had begun something behind it."""
    return metadata is not None and metadata.startswith(OPEN)


def finished_in(metadata: str | None, committed: int) -> Finished:
    """What that text says is finished. Nothing if it is not ours, was damaged, or stood beside another offset: then all
    of it is done again."""
    if metadata is None or not metadata.startswith(_FINISHED):
        return NOTHING
    try:
        numbers = list(_numbers(_unpacked(metadata.removeprefix(_FINISHED))))
    except (ValueError, zlib.error):
        return NOTHING
    if not numbers or numbers[0] != committed or len(numbers) % 2 == 0 or 0 in numbers[1:]:
        return NOTHING
    return Finished(_runs(numbers))


def _runs(numbers: list[int]) -> Iterator[Run]:
    position = numbers[0]
    for skipped, length in zip(numbers[1::2], numbers[2::2], strict=True):
        start = position + skipped
        position = start + length
        yield start, position


def _packed(committed: int, runs: list[Run]) -> str:
    found, position = bytearray(_varint(committed)), committed
    for start, end in runs:
        found += _varint(start - position) + _varint(end - start)
        position = end
    return base64.b85encode(zlib.compress(bytes(found), 6)).decode()


def _unpacked(text: str) -> bytes:
    unpacking = zlib.decompressobj()
    found = unpacking.decompress(base64.b85decode(text), _MOST_BYTES)
    if not unpacking.eof:  # cut off, or more than we ever write
        raise ValueError("incomplete")
    return found


def _varint(number: int) -> bytes:
    """Seven bits to the byte, the lowest first; the highest bit says that more follow."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def _numbers(packed: bytes) -> Iterator[int]:
    number = shift = 0
    for byte in packed:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield number
            number = shift = 0
        elif shift > 63:
            raise ValueError("no offset is that large")
    if shift:
        raise ValueError("incomplete")
