"""What a replay would do, before anybody says yes: counted by the store, and what speaks against it.

Counts are exact and cost no more for a million letters than for ten. What only the letters themselves say (that they
were replayed before, have a key, were collected from others) is read of a few of them, and said so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from redrive.flow.replay import selectable
from redrive.forensics.query import Query
from redrive.forensics.ways_back import not_configured
from redrive.model import Letter, State
from redrive.stores.base import REPLAYABLE, Group, Letters

_LOOKED_AT = 200
_RECENT = timedelta(minutes=5)
_GROUPS = 20


class Plan(Struct, frozen=True):
    """What a replay would do, before anybody says yes."""

    total: int  # letters it would send
    sources: dict[str, int]
    groups: list[Group]
    left_out: int  # selected, but resolved, archived, sent or on their way already
    not_configured: dict[str, int] = {}  # transports that this process does not have -> letters that would be skipped
    targets: dict[str, int] = {}  # `transport/source` -> letters; `*/source`: not all go one way
    seconds: float | None = None  # how long it takes at least, at that rate
    warnings: list[str] = []  # what speaks against it


async def plan_of(
    letters: Letters, query: Query, *, transports: Collection[str], rate: float | None, now: datetime
) -> Plan:
    """What a replay of that query would send, from a process that has these transports."""
    wanted = _narrowed(selectable(query), REPLAYABLE)
    if wanted is None:
        return Plan(0, {}, [], await letters.count(query))
    groups = list(await letters.groups(wanted, limit=10_000))
    total = await letters.count(wanted)
    sources = await _by_source(letters, wanted, groups, total)
    some = (await letters.search(wanted, limit=_LOOKED_AT)).letters
    missing = await not_configured(letters, wanted, total, transports)
    warnings = [*_still_failing(groups, now), *_seen(some, total)]
    return Plan(
        total,
        sources,
        groups[:_GROUPS],
        await letters.count(query) - total,
        missing,
        _targets(sources, some),
        None if rate is None else total / rate,
        warnings,
    )


async def _by_source(letters: Letters, query: Query, groups: Sequence[Group], total: int) -> dict[str, int]:
    names = sorted({name for group in groups for name in group.sources})
    if len(names) == 1:
        return {names[0]: total}
    counts = {name: await letters.count(replace(query, sources=(name,))) for name in names}
    return {name: count for name, count in counts.items() if count}


def _targets(sources: Mapping[str, int], some: Sequence[Letter]) -> dict[str, int]:
    """Where the letters of each source go back to, as far as the letters that were looked at say."""
    ways: dict[str, set[str]] = {}
    for letter in some:
        ways.setdefault(letter.message.source, set()).add(letter.transport)
    return {f"{_way(ways.get(source, set()))}/{source}": count for source, count in sources.items()}


def _way(transports: Collection[str]) -> str:
    return next(iter(transports)) if len(transports) == 1 else "*"


def _still_failing(groups: Sequence[Group], now: datetime) -> Iterator[str]:
    recent = [group for group in groups if now - group.last_at < _RECENT]
    for group in recent[:3]:
        seconds = max((now - group.last_at).total_seconds(), 0)
        yield f"not fixed yet? group {group.id} ({group.error_type}) was seen again {seconds:,.0f} s ago"
    if len(recent) > 3:
        yield f"not fixed yet? {len(recent) - 3} more groups were seen again within the last 5 minutes"


def _seen(some: Sequence[Letter], total: int) -> Iterator[str]:
    """What the letters that were looked at say."""
    of = "" if total <= len(some) else f" of the {len(some)} that were looked at"
    replayed = sum(letter.resends > 0 for letter in some)
    keys = [(letter.message.source, letter.message.key) for letter in some if letter.message.key is not None]
    behind = len(keys) - len(set(keys))
    edited = sum(letter.version > 0 for letter in some)
    foreign = sum(letter.foreign for letter in some)
    children = sum(bool(letter.depends_on) for letter in some)
    if replayed:
        yield f"sent back before, and died again: {_letters(replayed)}{of}"
    if edited:
        yield f"edited: {_letters(edited)}{of}; the newest version is what is sent"
    if behind:
        yield f"order at stake: {_letters(behind)}{of} have others of their key before them, and go one by one"
    if children:
        yield f"order at stake: {_letters(children)}{of} depend on others, and go after them"
    if foreign:
        yield f"nobody will tell what becomes of {_letters(foreign)}{of}: their consumer is not Redrive's"


def _narrowed(query: Query, states: tuple[State, ...]) -> Query | None:
    """The query narrowed to these states; None if that leaves nothing."""
    left = tuple(state for state in states if query.states is None or state in query.states)
    return replace(query, states=left) if left else None


def _letters(count: int) -> str:
    return f"{count:,} letter{'' if count == 1 else 's'}"
