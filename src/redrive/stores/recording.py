"""Records a batch in which the store may never hold some letter."""

from __future__ import annotations

from collections.abc import Sequence

from redrive.errors import Unavailable
from redrive.model import Letter, LetterId
from redrive.stores.base import Letters
from redrive.untrusted import UNREADABLE

BAD_VALUE: tuple[type[Exception], ...] = (*UNREADABLE, TypeError)
"""What a store raises for a value that a broker carries, and a database cannot hold: too deep, too large."""


async def record_each(
    letters: Letters, batch: Sequence[Letter], *, refusals: tuple[type[Exception], ...] = BAD_VALUE
) -> dict[LetterId, Exception]:
    """Record the batch at once; if the store refuses it, record each letter by itself, so that one holds up no other.

    Returns the letters that the store will not have, and why: as a rule none. Raises Unavailable if it is away.
    """
    try:
        await letters.record(batch)
    except Unavailable:
        raise
    except refusals:
        errors = [await _refusal(letters, letter, refusals) for letter in batch]
        return {letter.id: error for letter, error in zip(batch, errors, strict=True) if error is not None}
    return {}


async def _refusal(letters: Letters, letter: Letter, refusals: tuple[type[Exception], ...]) -> Exception | None:
    try:
        await letters.record([letter])
    except Unavailable:
        raise
    except refusals as error:
        return error
    return None
