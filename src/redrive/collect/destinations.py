"""Where a letter may go back to: what a dead record says of that was written by whoever may write to its topic.

    --source                        every letter goes there, whatever its record says, but for what a list allows
    --allow-source, collect.sources a record may name these
    no --source                     a record may name, beside these, what is declared: the sources of `--app` and of the
                                    workers of this store, what the topic or queue is named after, and what its broker
                                    itself says (Amazon SQS knows whose dead-letter queue it is)

A letter whose record names any other place is kept, and nothing sends it: its transport is `not-allowed:` and the one
that it would go through. Once its place is allowed, the same collection gives it that one (`allow_kept`).

Until then its message has an id of its own (`ID#not-allowed`). A stranger who names the source and the id of a letter
that is there already would otherwise take away that one's way back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from hashlib import blake2b

from msgspec import Struct
from msgspec.structs import replace

from redrive.collect.collector import Reader
from redrive.collect.foreign import SUFFIXES
from redrive.collect.joining import join
from redrive.errors import NOT_ALLOWED
from redrive.flow.signing import load_keys
from redrive.forensics.query import Query
from redrive.forensics.ways_back import OTHERS
from redrive.model import Failure, Letter, State, letter_id
from redrive.stores.base import Store
from redrive.stores.paging import every_page
from redrive.transports.base import Delivery

_PREFIX, _MORE_SUFFIXES = "dlq.", ("_error", ".XQ")  # of a pipeline; of MassTransit and Dramatiq
_KEPT = "#not-allowed"  # ends the id of a message that is kept so
_LONGEST, _LONGEST_NAME, _CUT_NAME = 4_000, 500, 200
_MOST_NAMES = 100
_AT_REST = (State.PENDING, State.EXHAUSTED)


class Destinations(Struct, frozen=True):
    """The places that letters may go back to.

    source    where each of them goes, if somebody says so
    listed    patterns of what a record may name
    declared  what a record may name where nobody gives `source`
    vouched   the same, as the broker or the reader itself says, and no message; while it reads, more may come
    """

    source: str | None = None
    listed: Collection[str] = ()
    declared: Collection[str] = ()
    vouched: Collection[str] = ()

    def take(self, name: str) -> bool:
        """Whether a letter may go there."""
        if any(fnmatchcase(name, pattern) for pattern in self.listed):
            return True
        return name in (*self.declared, *self.vouched) if self.source is None else name == self.source


def named_after(place: str) -> set[str]:
    """What a dead-letter topic or queue of that name may belong to. Whoever collects has named it, and no record."""
    bare = (place.removesuffix(suffix) for suffix in (*SUFFIXES, *_MORE_SUFFIXES))
    return {place, place.removeprefix(_PREFIX), *bare}


def confined(read: Reader, destinations: Destinations) -> Reader:
    """That reader, whose letters go only where they may, with texts of a length that can be shown."""

    def reading(delivery: Delivery, now: datetime) -> Letter | None:
        letter = read(delivery, now)
        if letter is None or not letter.foreign:  # ours are proven by their signature, or named by their queue
            return letter
        return _placed(_bounded(letter), destinations)

    return reading


def _placed(letter: Letter, destinations: Destinations) -> Letter:
    said, source = letter.message.source, destinations.source
    if destinations.take(said):
        return letter
    if source is None:
        message = replace(letter.message, id=f"{letter.message.id}{_KEPT}")
        transport = f"{NOT_ALLOWED}{letter.transport}"
        return replace(letter, id=letter_id(said, message.id), message=message, transport=transport)
    message = replace(letter.message, source=source)  # its origin still says what the record said, for people
    return replace(letter, id=letter_id(source, message.id), message=message)


class LettersNotAllowed:
    """Counts the letters that were kept without a way back, by the source that their records name."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    async def note(self, kept: Sequence[Letter]) -> None:
        """Letters that are durable."""
        for letter in kept:
            if letter.transport.startswith(NOT_ALLOWED):
                name = letter.message.source
                self._counts[name if name in self._counts or len(self._counts) < _MOST_NAMES else OTHERS] += 1

    @property
    def counts(self) -> Mapping[str, int]:
        """The sources, most letters first. Past a bound they are others: strangers make up as many as they like."""
        return dict(self._counts.most_common())


async def allow_kept(store: Store, destinations: Destinations, transports: Collection[str], now: datetime) -> int:
    """Give the letters that were kept without a way back theirs, if it is one of these transports and their place is
    allowed by now; returns how many. One that somebody has archived stays as it is."""
    held = Query(transports=tuple(f"{NOT_ALLOWED}{name}" for name in transports), states=_AT_REST)
    sources = {tally.source for tally in await store.letters.tallies(held)}
    allowed = tuple(sorted(name for name in sources if destinations.take(name)))
    if not allowed:
        return 0
    await load_keys(store, now)
    count = 0
    async for page in every_page(store.letters, replace(held, sources=allowed), oldest_first=True):
        count += await _allow(store, page, now)
    return count


async def _allow(store: Store, kept: Sequence[Letter], now: datetime) -> int:
    """Record them as they would have been, and only then delete what stood for them: a crash between the two leaves
    both, and the next time the second one goes."""
    joined = await join(store.letters, [_with_way_back(letter) for letter in kept], now)
    if joined.entries:
        await store.ledger.mark(joined.entries)
    await store.letters.record(joined.in_order)
    for old, new in zip(kept, joined.letters, strict=True):
        if old.version:
            await _keep_versions(store, old, new)
    return len(await store.letters.prune(Query(ids=tuple(letter.id for letter in kept)), limit=len(kept)))


async def _keep_versions(store: Store, old: Letter, new: Letter) -> None:
    """Keep what an edited letter was before, unless it has joined another one, which has a history of its own."""
    here = await store.letters.get(new.id)
    if here is not None and (here.version, here.edit) == (old.version, old.edit):
        versions = [await store.versions.get(old.id, number) for number in range(old.version)]
        await store.versions.keep([replace(version, letter=new.id) for version in versions if version is not None])


def _with_way_back(letter: Letter) -> Letter:
    message = replace(letter.message, id=letter.message.id.removesuffix(_KEPT))
    transport = letter.transport.removeprefix(NOT_ALLOWED)
    return replace(letter, id=letter_id(message.source, message.id), message=message, transport=transport)


def _bounded(letter: Letter) -> Letter:
    message = letter.message
    source, id, origin = (_cut(name) for name in (message.source, message.id, message.origin))
    if (source, id, origin) != (message.source, message.id, message.origin):
        message = replace(message, source=source, id=id, origin=origin)
    return replace(letter, id=letter_id(source, id), message=message, failures=tuple(map(_shortened, letter.failures)))


def _cut(name: str) -> str:
    """The name, no longer than any broker takes one; two that are too long stay two."""
    if len(name) <= _LONGEST_NAME:
        return name
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=10).hexdigest()
    return f"{name[:_CUT_NAME]}…{digest}"


def _shortened(failure: Failure) -> Failure:
    if len(failure.message) <= _LONGEST and max(len(failure.type), len(failure.worker)) <= _LONGEST_NAME:
        return failure
    return replace(
        failure,
        type=failure.type[:_LONGEST_NAME],
        message=failure.message[:_LONGEST],
        worker=failure.worker[:_LONGEST_NAME],
    )
