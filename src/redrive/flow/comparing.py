"""What letters that died again in a replay died of before, and of what now: the same bug, or another."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from datetime import datetime

from redrive.clock import Clock
from redrive.flow.order import AT_REST
from redrive.flow.replay_document import Compared
from redrive.forensics.fingerprint import fingerprint
from redrive.forensics.query import Query
from redrive.model import Failure, Letter, LetterId
from redrive.stores.base import EntryStatus, Store

_LOOKED_AT, _SHOWN, _LONGEST = 200, 5, 200
_TRIES, _MOMENT = 10, 0.2


async def compare(store: Store, replay: str, since: datetime, clock: Clock) -> tuple[Compared, ...]:
    """The last letters of that replay that died again since then, by what they died of; the most frequent first."""
    recent, any_time = await _failed(store, replay, since)
    ids = recent or any_time  # the clocks of who writes the ledger and of who reads it may be apart
    return compared(await _died(store, ids, clock)) if ids else ()


async def _died(store: Store, ids: Sequence[LetterId], clock: Clock) -> list[Letter]:
    """Those letters as they are now. The ledger hears of a death before the letter does: they get a moment for it."""
    for _ in range(_TRIES):
        page = await store.letters.search(Query(ids=tuple(ids)), limit=len(ids))
        died = [letter for letter in page.letters if letter.state in AT_REST]
        if len(died) == len(page.letters):
            break
        await clock.sleep(_MOMENT)
    return died


async def _failed(store: Store, replay: str, since: datetime) -> tuple[deque[LetterId], deque[LetterId]]:
    recent, any_time = deque[LetterId](maxlen=_LOOKED_AT), deque[LetterId](maxlen=_LOOKED_AT)
    after = None
    while True:
        entries, after = await store.ledger.entries(replay, status=EntryStatus.FAILED, after=after)
        any_time.extend(entry.letter for entry in entries)
        recent.extend(entry.letter for entry in entries if entry.at >= since)
        if after is None:
            return recent, any_time


def compared(letters: Iterable[Letter]) -> tuple[Compared, ...]:
    """How many died of what, before and now."""
    found: Counter[tuple[str, str]] = Counter()
    errors: dict[tuple[str, str], tuple[str, str]] = {}
    for letter in letters:
        before, now = deaths(letter)
        groups = ("" if before is None else fingerprint(before), fingerprint(now))
        found[groups] += 1
        errors.setdefault(groups, ("" if before is None else _said(before), _said(now)))
    return tuple(
        Compared(letters=count, before=errors[pair][0], before_group=pair[0], now=errors[pair][1], now_group=pair[1])
        for pair, count in found.most_common(_SHOWN)
    )


def deaths(letter: Letter) -> tuple[Failure | None, Failure]:
    """What it died of before it was sent back the last time, if that is known, and what it died of then.

    Attempts are counted anew each time that a letter is sent back.
    """
    first = len(letter.failures) - 1
    while first > 0 and letter.failures[first].attempt > 1:
        first -= 1
    return letter.failures[first - 1] if first > 0 else None, letter.failures[-1]


def verdict(found: Iterable[Compared]) -> str:
    """What it means, in a sentence."""
    same = {case.is_same for case in found}
    if same == {True}:
        return "the bug is still there"
    return "it fails elsewhere now" if same == {False} else "some die as before, and some elsewhere" if same else ""


def _said(failure: Failure) -> str:
    return f"{failure.type}: {failure.message}"[:_LONGEST]
