"""What a store has to answer, said as simply as it can be: a dictionary and the model's own functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from redrive.forensics.query import Query, matches
from redrive.model import Category, Letter, LetterId, Owner, State, claimed, is_anothers, moved, rejoined, set_apart
from redrive.stores.base import MAY_BECOME, REPLAYABLE, Group, Tally

IN_FLIGHT = (State.RETRYING, State.REPLAYING)
Members = dict[str, tuple[dict[State, int], tuple[str, ...]]]  # group -> how many in each state, sources


class Reference:
    """Letters in the order they came."""

    def __init__(self) -> None:
        self.letters: dict[LetterId, Letter] = {}

    def record(self, letters: Iterable[Letter]) -> None:
        apart: list[Letter] = []  # they come behind the others of their batch
        for letter in letters:
            old = self.letters.get(letter.id)
            if old is not None and is_anothers(old, letter):
                apart.append(set_apart(letter))
            else:
                self.letters[letter.id] = letter if old is None else rejoined(old, letter) or old
        if apart:
            self.record(apart)

    def selected(self, query: Query) -> list[Letter]:
        """The letters that the query selects, the oldest first."""
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
        free = [letter for letter in self.selected(query) if self._is_free(letter, to, owner)]
        free.sort(key=lambda letter: (letter.message.priority, _when(letter.next_retry_at), came[letter.id]))
        taken = [claimed(letter, to, owner, now, until, replay) for letter in free[:limit]]
        self.letters.update((letter.id, letter) for letter in taken)
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
        going = [letter for letter in found if letter.state in expect and (owner is None or letter.owner == owner)]
        self.letters.update((letter.id, moved(letter, to, now)) for letter in going)
        return {letter.id for letter in going}

    def prune(self, query: Query, *, limit: int) -> set[LetterId]:
        gone = [letter.id for letter in self.selected(query) if letter.state not in IN_FLIGHT][:limit]
        for id in gone:
            del self.letters[id]
        return set(gone)

    def freezable(self, query: Query) -> list[LetterId]:
        """What a replay of that query may take, in its order."""
        return [letter.id for letter in self.selected(query) if letter.state in REPLAYABLE]

    def tallies(self, query: Query | None = None) -> Counter[tuple[str, State, Category]]:
        letters = self.letters.values() if query is None else self.selected(query)
        return Counter((letter.message.source, letter.state, letter.category) for letter in letters)

    def groups(self, query: Query) -> Members:
        return members(self.selected(query))

    def _is_free(self, letter: Letter, to: State, owner: Owner) -> bool:
        wanted, over = set(letter.depends_on), (State.RESOLVED, State.ARCHIVED)
        waits = any(letter.message.id in wanted and letter.state not in over for letter in self.letters.values())
        return letter.state in MAY_BECOME[to] and (letter.state is not to or letter.owner == owner) and not waits


def members(letters: Iterable[Letter]) -> Members:
    """How many letters each group has in each state, and its sources."""
    found: dict[str, list[Letter]] = {}
    for letter in letters:
        found.setdefault(letter.group, []).append(letter)
    return {
        group: (
            dict(Counter(letter.state for letter in some)),
            tuple(sorted({letter.message.source for letter in some})),
        )
        for group, some in found.items()
    }


def members_of(groups: Sequence[Group]) -> Members:
    """The same, of the groups that a store answers."""
    return {group.id: ({**group.states}, tuple(sorted(group.sources))) for group in groups}


def counted(tallies: Iterable[Tally]) -> Counter[tuple[str, State, Category]]:
    """The tallies of a store, counted; one with a count of 0 is left out."""
    counts: Counter[tuple[str, State, Category]] = Counter()
    for tally in tallies:
        counts[tally.source, tally.state, tally.category] += tally.count
    return +counts


def _when(at: datetime | None) -> tuple[bool, float]:
    """The order of due times: a letter without one is most urgent, because it waits for none."""
    return at is not None, at.timestamp() if at else 0.0
