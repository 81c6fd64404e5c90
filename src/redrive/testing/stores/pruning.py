"""Letters that are deleted."""

from __future__ import annotations

from redrive.forensics.query import Query
from redrive.model import State
from redrive.stores.base import Store
from redrive.testing.builders import make_failure, make_letter, make_message
from redrive.testing.clock import START
from redrive.testing.reference import Reference, counted
from redrive.testing.stores.backend import ALL, HOUR, MINUTE, every_page
from redrive.testing.stores.examples import corpus
from redrive.testing.stores.queries import QUERIES


class Pruning:
    """What the query selects goes, the oldest first; what is on its way stays."""

    async def test_what_is_on_its_way_is_never_pruned(self, store: Store) -> None:
        letters = [make_letter(state=state, at=START) for state in State for _ in range(2)]
        await store.letters.record(letters)
        gone = await store.letters.prune(ALL, limit=100)
        flying = (State.RETRYING, State.REPLAYING)
        assert sorted(gone) == sorted(letter.id for letter in letters if letter.state not in flying)
        assert await store.letters.prune(ALL, limit=100) == []
        assert {letter.state for letter in await every_page(store, ALL, oldest_first=True)} == set(flying)
        assert await store.letters.prune(Query(states=flying), limit=100) == []

    async def test_the_oldest_are_pruned_first_and_no_more_than_asked_for(self, store: Store) -> None:
        letters = [make_letter(at=START + n * MINUTE) for n in (3, 1, 4, 0, 2)]
        await store.letters.record(letters)
        for expected in ((0, 1), (2, 3), (4,), ()):
            gone = await store.letters.prune(ALL, limit=2)
            assert set(gone) == {
                letter.id for letter in letters if letter.created_at in [START + n * MINUTE for n in expected]
            }

    async def test_prune_deletes_what_the_query_selects(self, store: Store) -> None:
        reference = Reference()
        for number, (name, query) in enumerate(QUERIES.items()):
            some = corpus(20, seed=number)
            reference.record(some)
            await store.letters.record(some)
            for limit in (3, 1000):
                assert set(await store.letters.prune(query, limit=limit)) == reference.prune(query, limit=limit), name
            assert await every_page(store, ALL, oldest_first=True) == reference.selected(ALL), name
            assert counted(await store.letters.tallies()) == reference.tallies(), name

    async def test_a_letter_that_died_again_is_as_old_as_its_last_death(self, store: Store) -> None:
        """One that was buried a hundred days ago and again today is not deleted as a hundred days old."""
        message, today = make_message(id="reborn"), START + 2400 * HOUR
        old, other = make_letter(message), make_letter(make_message(id="other"), at=START + 24 * HOUR)
        await store.letters.record([old, other])
        await store.letters.record([make_letter(message, make_failure(attempt=2, at=today), at=today)])
        newest_first = [letter.id for letter in (await store.letters.search(ALL)).letters]
        assert newest_first == [old.id, other.id]
        assert await store.letters.count(Query(since=today)) == 1
        assert await store.letters.prune(Query(before=today), limit=10) == [other.id]
        kept = await store.letters.get(old.id)
        assert kept is not None
        assert [failure.at for failure in kept.failures] == [START, today]
