"""One letter that a store can never hold keeps no other from being recorded."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from redrive.errors import StoreUnavailable
from redrive.forensics.query import Query
from redrive.model import Letter
from redrive.stores.memory import MemoryLetters
from redrive.stores.recording import record_each
from redrive.testing.builders import make_letter, make_message


class Picky(MemoryLetters):
    """Refuses every batch with `bad` in it, with the error that it is given."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.calls = 0
        self._error = error

    async def record(self, letters: Sequence[Letter]) -> None:
        self.calls += 1
        if any(letter.message.id == "bad" for letter in letters):
            raise self._error
        await super().record(letters)


BATCH = [make_letter(make_message(id=name)) for name in ("first", "bad", "last")]


async def test_what_is_good_is_recorded_at_once() -> None:
    letters = Picky(ValueError("no"))
    assert await record_each(letters, [BATCH[0], BATCH[2]]) == {}
    assert letters.calls == 1


async def test_what_the_store_refuses_is_named_and_the_others_are_recorded() -> None:
    error = OverflowError("a number of 20 digits")
    letters = Picky(error)
    assert await record_each(letters, BATCH) == {BATCH[1].id: error}
    assert await letters.count(Query()) == 2


async def test_a_bug_is_no_refusal_unless_it_is_said_to_be() -> None:
    letters = Picky(KeyError("a bug"))
    with pytest.raises(KeyError):
        await record_each(letters, BATCH)
    assert list(await record_each(letters, BATCH, refusals=(Exception,))) == [BATCH[1].id]


async def test_a_store_that_is_away_refuses_nothing() -> None:
    letters = Picky(StoreUnavailable("letters"))
    with pytest.raises(StoreUnavailable):
        await record_each(letters, BATCH, refusals=(Exception,))
    assert letters.calls == 1
