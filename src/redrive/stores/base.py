"""The interface to a database: what a store promises, split by noun so that none of it is wide.

A store keeps letters (`Letters`), what their messages were before they were edited (`Versions`), the ledger of replays
(`Ledger`), small documents (`Documents`: replays, tokens, the audit trail) and what happened over time (`Series`).
Every method raises StoreUnavailable, and no error of its driver, when it cannot now.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from redrive.clock import microseconds
from redrive.errors import BadQuery
from redrive.forensics.query import Query
from redrive.forensics.searchable import Searchable
from redrive.forensics.series import Count, Point, SeriesQuery
from redrive.model import Category, Letter, LetterId, Owner, Revision, State, Version

Cursor: TypeAlias = str
"""Opaque: where a page ended. Given back to the store that made it."""
_NUMBER = re.compile(r"\d{1,18}", re.ASCII)


def number_in(cursor: Cursor | None) -> int:
    """The number that a cursor of a ledger stands for."""
    if cursor is not None and not _NUMBER.fullmatch(cursor):
        raise BadQuery(f"{cursor!r} is not a cursor of this store: use `after` as the page before gave it")
    return int(cursor or 0)


class StoreFeatures(Struct, frozen=True, kw_only=True):
    """What a store can promise. docs/guarantees.md is generated from these."""

    durable: bool  # what `record` accepted survives a crash of every process
    atomic_claims: bool  # two processors never claim one letter
    shared: bool  # several processes can work on it at once
    counted_groups: bool  # group counters are kept as letters come, not computed when asked
    counted_exactly: bool = False  # what is buried and resolved is counted in one step with being written
    indexed_texts: bool = False  # a text is found by an index; otherwise by looking at one letter after the other


class Page(Struct, frozen=True):
    """Some letters in order, and where the next page starts (None: that was all)."""

    letters: tuple[Letter, ...]
    after: Cursor | None


class Group(Struct, frozen=True):
    """Letters with one fingerprint: one root cause."""

    id: str
    count: int
    error_type: str
    message: str  # of one of them
    category: Category
    sources: tuple[str, ...]
    states: dict[State, int]  # how many in each
    first_at: datetime
    last_at: datetime
    first_version: str = ""  # of the user's code, in the first failure of its oldest letter; empty: it said none
    last_version: str = ""  # in the last failure of its newest letter


class GroupOrder(StrEnum):
    """What comes first in a list of groups; of equals, the smaller id."""

    LETTERS = "letters"  # the largest
    LAST_SEEN = "last_seen"  # what died last
    FIRST_SEEN = "first_seen"  # the newest


class Hit(Struct, frozen=True):
    """The tenants that letters of a group are of."""

    tenants: tuple[str, ...]  # in the order of their names
    is_all: bool  # whether there are no others


_ORDERS: dict[GroupOrder, Callable[[Group], float]] = {
    GroupOrder.LETTERS: lambda group: -group.count,
    GroupOrder.LAST_SEEN: lambda group: -microseconds(group.last_at),
    GroupOrder.FIRST_SEEN: lambda group: -microseconds(group.first_at),
}


def sorted_groups(groups: Iterable[Group], order: GroupOrder) -> list[Group]:
    """The groups in that order."""
    return sorted(groups, key=lambda group: (_ORDERS[order](group), group.id))


def hit_of(tenants: Iterable[str], most: int) -> Hit:
    """The first of these tenants, and whether there are no others."""
    names = sorted(tenants)
    return Hit(tuple(names[:most]), len(names) <= most)


class Tally(Struct, frozen=True):
    """How many letters share a source, a state and a category."""

    source: str
    state: State
    category: Category
    count: int


class Letters(Protocol):
    """Keeps letters."""

    async def record(self, letters: Sequence[Letter]) -> None:
        """Durable when it returns. A letter's id is `letter_id` of its source and message id. The same failure twice
        changes nothing; an unseen failure of a known letter joins it, and state, reason, group, next retry and
        counters become the newcomer's."""
        ...

    async def get(self, id: LetterId) -> Letter | None:
        """The letter of that id."""
        ...

    async def search(
        self, query: Query, *, after: Cursor | None = None, limit: int = 50, oldest_first: bool = False
    ) -> Page:
        """One page, newest first if not asked otherwise, by the time they were created; paging with the cursor neither
        repeats nor misses a letter that stays as it is. Only a page without a cursor is the last: one for a text may be
        short, or empty, since no more letters are looked at for it than a person would wait for."""
        ...

    async def count(self, query: Query) -> int:
        """How many letters the query selects."""
        ...

    async def groups(
        self, query: Query, *, limit: int = 50, skip: int = 0, order: GroupOrder = GroupOrder.LETTERS
    ) -> Sequence[Group]:
        """The groups of what the query selects, in that order, without the first `skip`."""
        ...

    async def tenants(self, groups: Sequence[str], *, most: int) -> Mapping[str, Hit]:
        """The tenants that each of these groups has letters of, at most so many of each. A store without an index of
        them looks at the newest letters, and says so (`is_all`)."""
        ...

    async def tallies(self, query: Query | None = None) -> Sequence[Tally]:
        """The number of letters by source, state and category: of all, or of what the query selects."""
        ...

    async def claim(
        self,
        query: Query,
        *,
        to: State,
        owner: Owner,
        now: datetime,
        until: datetime,
        limit: int,
        replay: str | None = None,
    ) -> Sequence[Letter]:
        """Move what the query selects to that state and lease it, the most urgent first. A claim is made to send
        the letter back, so it counts a resend, and a retry if `to` is RETRYING, and notes the replay.

        Only letters whose dependencies are resolved or archived, and only from a state that may become `to` (see
        MAY_BECOME). One letter has one owner at a time. Its owner may claim it again, which renews the lease and counts
        nothing: whoever wants only what nobody has, names the states in the query.
        """
        ...

    async def move(
        self,
        ids: Collection[LetterId],
        *,
        expect: Collection[State],
        to: State,
        now: datetime,
        owner: Owner | None = None,
    ) -> Sequence[LetterId]:
        """Move those that are in an expected state (and owned by `owner`, if given); returns those that moved.

        A letter that moves loses its lease. Moving from RETRYING or REPLAYING to the same state is how a send is
        confirmed, and to SENT where nobody will tell its outcome; to PENDING or EXHAUSTED is how a claim is undone,
        and its resend is not counted after all.
        """
        ...

    async def prune(self, query: Query, *, limit: int) -> Sequence[LetterId]:
        """Delete at most `limit` of what the query selects, the oldest first, and all their versions; returns what was
        deleted. A letter that is retrying or replaying is never deleted."""
        ...


class Versions(Protocol):
    """Keeps what the messages of letters were before they were edited.

    The newest version is in the letter itself. A version is kept before the next one takes its place, so a crash
    between the two leaves a copy too many, and never one too few.
    """

    async def edit(self, revisions: Sequence[Revision]) -> Sequence[LetterId]:
        """Give letters a new message, each only if its version is the expected one and it is EDITABLE; returns those
        that were. A letter is named once. It keeps all else that it has."""
        ...

    async def list(self, letter: LetterId) -> Sequence[Version]:
        """The versions that are kept of a letter, the oldest first, without their bodies."""
        ...

    async def get(self, letter: LetterId, number: int) -> Version | None:
        """A version that is kept, with its body, byte for byte."""
        ...

    async def keep(self, versions: Sequence[Version]) -> None:
        """Keep versions of letters that are recorded, as an import brings them. One that is kept already stays."""
        ...


MAY_BECOME: dict[State, tuple[State, ...]] = {
    State.RETRYING: (State.PENDING, State.RETRYING),
    State.REPLAYING: (State.PENDING, State.EXHAUSTED, State.SENT, State.REPLAYING),
}
"""From which states a claim may take a letter. From `to` itself only the owner may: a replay that is resumed, or a
lease that is renewed."""
REPLAYABLE = tuple(state for state in MAY_BECOME[State.REPLAYING] if state is not State.REPLAYING)
"""What `freeze` may select."""
AT_REST = tuple(state for state in State if state not in (State.RETRYING, State.REPLAYING))
"""What may be pruned: nothing of it is on its way."""


class EntryStatus(StrEnum):
    """What became of one letter in one replay."""

    SELECTED = "selected"  # frozen into the replay, not yet touched
    SENT = "sent"  # on its way; its outcome is not known yet
    RESOLVED = "resolved"
    FAILED = "failed"  # it died again and rejoined its letter
    SKIPPED = "skipped"  # it was no longer as selected when its turn came


class Entry(Struct, frozen=True):
    """One line of a replay's ledger."""

    replay: str
    letter: LetterId
    status: EntryStatus
    at: datetime
    note: str = ""


class Ledger(Protocol):
    """Keeps what each replay selected, and what became of it."""

    async def freeze(self, replay: str, query: Query, *, now: datetime) -> int:
        """Write down exactly the letters that the query selects now, in states a replay may take (REPLAYABLE);
        returns how many. Freezing a replay again adds nothing."""
        ...

    async def entries(
        self, replay: str, *, status: EntryStatus | None = None, after: Cursor | None = None, limit: int = 500
    ) -> tuple[Sequence[Entry], Cursor | None]:
        """Lines of the ledger, in the order they were selected."""
        ...

    async def mark(self, entries: Iterable[Entry]) -> None:
        """Note what became of these. A known outcome (resolved, failed) is never overwritten by `sent`."""
        ...

    async def of_letter(self, letter: LetterId, replays: Sequence[str]) -> Sequence[Entry]:
        """What became of that letter in those of these replays that selected it, in their order."""
        ...

    async def tally(self, replay: str) -> dict[EntryStatus, int]:
        """How many entries of a replay there are of each status."""
        ...


class Document(Struct, frozen=True):
    """A small JSON object under a kind and an id, with a version for compare-and-set."""

    kind: str
    id: str
    version: int
    body: dict[str, Any]


class Documents(Protocol):
    """Keeps small things that are neither letters nor ledgers."""

    async def put(self, kind: str, id: str, body: dict[str, Any], *, expect: int | None = None) -> bool:
        """Write a document. With `expect`, only if its version is that (0: it must not exist); returns whether."""
        ...

    async def get(self, kind: str, id: str) -> Document | None:
        """The document of that kind and id."""
        ...

    async def list(
        self, kind: str, *, limit: int = 1000, after: str | None = None, ascending: bool = False
    ) -> Sequence[Document]:
        """The documents of a kind, ids descending, so that time-sorted ids come newest first, or `ascending`; those
        behind the id `after` in that order."""
        ...

    async def delete(self, kind: str, id: str, *, expect: int | None = None) -> bool:
        """Delete a document, with `expect` only if its version is that; returns whether it was deleted."""
        ...


class Series(Protocol):
    """Keeps what was buried, retried and resolved over time, by minute, hour and day.

    What is buried and resolved is counted where it is written: by `Letters.record`, at the time that a letter was
    created, and by `Letters.move` to RESOLVED. In one step with it where `counted_exactly`, and otherwise after it, so
    that a crash between the two loses counts, and letters never. Recording the same failure twice counts once.
    """

    async def add(self, counts: Sequence[Count]) -> None:
        """Count these too: what no letter tells."""
        ...

    async def read(self, query: SeriesQuery) -> Sequence[Point]:
        """The numbers of what the query selects, in order of time and name; what is zero is left out. What was counted
        before the call is in it, rolled up or not."""
        ...

    async def roll_up(self) -> int:
        """Sum up some of what was counted since the last time, so that reading stays fast; returns how much of it is
        left. Any number of processes may do it, and nothing is counted twice."""
        ...

    async def prune(self, step: int, before: int) -> None:
        """Delete the buckets of that length that begin before then."""
        ...


class Store(Protocol):
    """Letters, their versions, ledger, documents and series of one database."""

    features: StoreFeatures

    @property
    def letters(self) -> Letters: ...

    @property
    def versions(self) -> Versions: ...

    @property
    def ledger(self) -> Ledger: ...

    @property
    def documents(self) -> Documents: ...

    @property
    def series(self) -> Series: ...

    async def check(self) -> None:
        """Raise StoreUnavailable, saying why, if it could not write now."""
        ...

    async def aclose(self) -> None:
        """Close what the store has opened."""
        ...


@runtime_checkable
class SearchesTexts(Protocol):
    """A store that can be told what a text is looked for in; until then it masks what Redrive masks by itself."""

    def search_as(self, searchable: Searchable) -> None:
        """Look for texts in what these rules show of a letter."""
        ...


@runtime_checkable
class HasPulse(Protocol):
    """A store that can say for next to nothing whether anything was written."""

    async def pulse(self) -> object:
        """What is another one whenever somebody, here or elsewhere, has written."""
        ...


@runtime_checkable
class IndexesTexts(Protocol):
    """A store that makes an index of texts after letters are recorded."""

    async def index_texts(self, most: int) -> int:
        """Index at most so many letters that are not in it yet; returns how many are left then."""
        ...


@runtime_checkable
class MadeLater(Protocol):
    """A store that is made with the first call that needs it."""

    async def is_made(self) -> bool:
        """Whether it has anything there: looking into one that has not would make it."""
        ...


class Doubt(Protocol):
    """What is wrong with a server."""

    @property
    def text(self) -> str:
        """What it does, as the end of a sentence: `forgets what came last when it is killed`."""
        ...

    @property
    def mend(self) -> str:
        """What to do about it."""
        ...

    @property
    def is_failure(self) -> bool:
        """Whether it loses something or does not work, and not only will one day."""
        ...


@runtime_checkable
class HasDoubts(Protocol):
    """A store or transport that can say what is wrong with its server."""

    async def doubts(self) -> Sequence[Doubt]:
        """Everything that is wrong. Makes nothing. Raises Unavailable if the server does not answer."""
        ...


class ClusterHealth(Protocol):
    """How the cluster of a store is."""

    @property
    def status(self) -> str:
        """`green`; `yellow`: a copy of letters is on no node; `red`: letters are on no node."""
        ...

    @property
    def unassigned(self) -> int:
        """How many shards are on no node."""
        ...

    @property
    def nodes(self) -> int:
        """How many nodes keep data."""
        ...

    @property
    def disk_used(self) -> float | None:
        """Of the fullest node, in percent; None: it is not known."""
        ...


@runtime_checkable
class Cluster(MadeLater, Protocol):
    """A store that is a cluster, and can say how it is."""

    async def health(self) -> ClusterHealth:
        """How the cluster is. Makes nothing. Raises StoreUnavailable if we may not ask."""
        ...
