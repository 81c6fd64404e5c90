"""Letters that are deleted."""

from __future__ import annotations

from redrive.forensics.query import Query
from redrive.model import State
from redrive.stores.base import Store
from redrive.testing.builders import make_letter
from redrive.testing.clock import START
from redrive.testing.reference import Reference, counted
from redrive.testing.stores.backend import ALL, MINUTE, every_page
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
