"""Where a letter may go back to: what a dead record says of that was written by whoever may write to its topic.

    --source                        every letter goes there, whatever its record says, but for what a list allows
    --allow-source, collect.sources a record may name these
    neither                         a record is believed, as there is nothing else to go by

What names another place is kept all the same: with `--source` it goes there, otherwise it is kept as a letter whose
transport is `not-allowed`, which nothing is sent to until somebody sets it.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from fnmatch import fnmatchcase

from msgspec.structs import replace

from redrive.collect.collector import Reader
from redrive.model import Failure, Letter, letter_id
from redrive.transports.base import Delivery

NOT_ALLOWED = "not-allowed"
"""The transport of letters whose record names a place that it may not."""
_LONGEST, _LONGEST_NAME = 4_000, 500


def confined(read: Reader, source: str | None, allowed: Collection[str]) -> Reader:
    """That reader, whose letters go only where they may, with texts of a length that can be shown."""

    def reading(delivery: Delivery, now: datetime) -> Letter | None:
        letter = read(delivery, now)
        if letter is None or not letter.foreign:  # ours are proven by their signature, or named by their queue
            return letter
        return _placed(_bounded(letter), source, allowed)

    return reading


def _placed(letter: Letter, source: str | None, allowed: Collection[str]) -> Letter:
    said = letter.message.source
    if said == source or (source is None and not allowed) or any(fnmatchcase(said, name) for name in allowed):
        return letter
    if source is None:
        return replace(letter, transport=NOT_ALLOWED)
    message = replace(letter.message, source=source)  # its origin still says what the record said, for people
    return replace(letter, id=letter_id(source, message.id), message=message)


def _bounded(letter: Letter) -> Letter:
    return replace(letter, failures=tuple(map(_shortened, letter.failures)))


def _shortened(failure: Failure) -> Failure:
    if len(failure.message) <= _LONGEST and max(len(failure.type), len(failure.worker)) <= _LONGEST_NAME:
        return failure
    return replace(
        failure,
        type=failure.type[:_LONGEST_NAME],
        message=failure.message[:_LONGEST],
        worker=failure.worker[:_LONGEST_NAME],
    )
