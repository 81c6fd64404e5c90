"""What a store has to answer, said as simply as it can be: a dictionary and the model's own functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from redrive.forensics.query import Query, matches
from redrive.model import Category, Letter, LetterId, Owner, State, claimed, moved, rejoined
from redrive.stores.base import MAY_BECOME, Group, Tally

IN_FLIGHT = (State.RETRYING, State.REPLAYING)
Members = dict[str, tuple[dict[State, int], tuple[str, ...]]]  # group -> how many in each state, sources


class Reference:
    """Letters in the order they came."""

    def __init__(self) -> None:
        self.letters: dict[LetterId, Letter] = {}

    def record(self, letters: Iterable[Letter]) -> None:
        for letter in letters:
            old = self.letters.get(letter.id)
            self.letters[letter.id] = letter if old is None else rejoined(old, letter) or old

    def selected(self, query: Query) -> list[Letter]:
        """Oldest first."""
        found = [letter for letter in self.letters.values() if matches(query, letter)]
        return sorted(found, key=lambda letter: letter.created_at)  # stable: then in the order they came

    def claim(
        self,
        query: Query,
        *,
        to: State,
        owner: Owner,
        now: datetime,
        until: datetime,
        limit: int,
        replay: str | None = None,
    ) -> list[Letter]:
        came = {id: number for number, id in enumerate(self.letters)}
        free = [one for one in self.selected(query) if self._is_free(one, to, owner)]
        free.sort(key=lambda one: (one.message.priority, _when(one.next_retry_at), came[one.id]))
        taken = [claimed(one, to, owner, now, until, replay) for one in free[:limit]]
        self.letters.update((one.id, one) for one in taken)
        return taken

    def move(
        self,
        ids: Collection[LetterId],
        *,
        expect: Collection[State],
        to: State,
        now: datetime,
        owner: Owner | None = None,
    ) -> set[LetterId]:
        found = [self.letters[id] for id in set(ids) if id in self.letters]
        going = [one for one in found if one.state in expect and (owner is None or one.owner == owner)]
        self.letters.update((one.id, moved(one, to, now)) for one in going)
        return {one.id for one in going}

    def prune(self, query: Query, *, limit: int) -> set[LetterId]:
        gone = [one.id for one in self.selected(query) if one.state not in IN_FLIGHT][:limit]
        for id in gone:
            del self.letters[id]
        return set(gone)

    def freezable(self, query: Query) -> list[LetterId]:
        """What a replay of that query may take, in its order."""
        return [one.id for one in self.selected(query) if one.state in (State.PENDING, State.EXHAUSTED)]

    def tallies(self) -> Counter[tuple[str, State, Category]]:
        return Counter((one.message.source, one.state, one.category) for one in self.letters.values())

    def groups(self, query: Query) -> Members:
        return members(self.selected(query))

    def _is_free(self, letter: Letter, to: State, owner: Owner) -> bool:
        wanted, over = set(letter.depends_on), (State.RESOLVED, State.ARCHIVED)
        waits = any(one.message.id in wanted and one.state not in over for one in self.letters.values())
        return letter.state in MAY_BECOME[to] and (letter.state is not to or letter.owner == owner) and not waits


def members(letters: Iterable[Letter]) -> Members:
    """Those letters by group, counted."""
    found: dict[str, list[Letter]] = {}
    for letter in letters:
        found.setdefault(letter.group, []).append(letter)
    return {
        group: (dict(Counter(one.state for one in some)), tuple(sorted({one.message.source for one in some})))
        for group, some in found.items()
    }


def told(groups: Sequence[Group]) -> Members:
    """The same of what a store says of its groups."""
    return {group.id: ({**group.states}, tuple(sorted(group.sources))) for group in groups}


def counted(tallies: Iterable[Tally]) -> Counter[tuple[str, State, Category]]:
    """The same of what a store tallies; a line of nobody is no line."""
    counts: Counter[tuple[str, State, Category]] = Counter()
    for tally in tallies:
        counts[tally.source, tally.state, tally.category] += tally.count
    return +counts


def _when(at: datetime | None) -> tuple[bool, float]:
    """What has no time is most urgent: it does not wait for any."""
    return at is not None, at.timestamp() if at else 0.0
