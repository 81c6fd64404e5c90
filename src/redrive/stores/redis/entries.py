"""Letters as entries of a plain sorted set, for people and programs that know nothing of Redrive.

A store that is given `entries="orders:dlq"` and a shape keeps the entry of each open letter, which is
`shape.encode(letter)`, as a member of the sorted set of that name. Its score is `shape.moved_at(letter)` in
milliseconds; a fraction keeps two of one millisecond apart, so that an entry is found by its score and need not be kept
twice. The entry has the fields of its contract and nothing else: what it does not say (states, failures, headers) is in
the store's own keys.

An entry is made when a letter is recorded, and made again when it dies again. It leaves the set when the letter is
resolved, archived or pruned. A letter whose entry somebody else took out of the set is gone.
"""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from redrive.model import Letter


class EntryShape(Protocol):
    """How a letter looks to others.

    A body is not kept twice if the entry holds its bytes as they are (for JSON, `msgspec.Raw(body)` does that).
    """

    def encode(self, letter: Letter) -> bytes:
        """The entry of a letter; no two letters have the same."""
        ...

    def moved_at(self, letter: Letter) -> datetime:
        """When the letter came here, which is the score of its entry."""
        ...
