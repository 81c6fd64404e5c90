"""Moves of letters from one state to another."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from redrive.model import State
from redrive.stores.base import MAY_BECOME, Store
from redrive.testing.builders import make_letter
from redrive.testing.clock import START
from redrive.testing.stores.backend import ALL, LATER, claim


class Moving:
    """A move is made only from the state, and by the owner, that was expected."""

    async def test_a_move_is_made_only_from_where_it_was_expected(self, store: Store) -> None:
        letters = [make_letter(state=state) for state in State]
        await store.letters.record(letters)
        expect = [State.PENDING, State.EXHAUSTED]
        ids = [letter.id for letter in letters]
        moved = await store.letters.move([*ids, ids[0], "nobody"], expect=expect, to=State.ARCHIVED, now=LATER)
        assert sorted(moved) == sorted(letter.id for letter in letters if letter.state in expect)
        for letter in letters:
            got = await store.letters.get(letter.id)
            went = letter.state in expect
            gone = replace(letter, state=State.ARCHIVED, updated_at=LATER, archived_from=letter.state)
            assert got == (gone if went else letter)
        assert await store.letters.move(ids, expect=expect, to=State.ARCHIVED, now=LATER) == []
        assert await store.letters.move([], expect=expect, to=State.ARCHIVED, now=LATER) == []

    async def test_one_of_two_movers_wins(self, store: Store) -> None:
        letter = make_letter()
        await store.letters.record([letter])
        moves = [
            store.letters.move([letter.id], expect=[State.PENDING], to=to, now=LATER)
            for to in (State.ARCHIVED, State.RESOLVED) * 5
        ]
        assert sum([len(won) for won in await asyncio.gather(*moves)]) == 1

    async def test_only_its_owner_moves_a_claimed_letter_if_the_owner_is_asked_for(self, store: Store) -> None:
        letter = make_letter(next_retry_at=START)
        await store.letters.record([letter])
        await claim(store, ALL, to=State.RETRYING, owner="me")
        ask: dict[str, Any] = {"expect": [State.RETRYING], "to": State.RETRYING, "now": LATER}
        assert await store.letters.move([letter.id], owner="somebody else", **ask) == []
        assert await store.letters.move([letter.id], owner="me", **ask) == [letter.id]
        assert await store.letters.move([letter.id], owner="me", **ask) == [], "its lease is gone with the move"

    @pytest.mark.parametrize("to", MAY_BECOME)
    async def test_a_confirmed_letter_is_on_its_way_and_owned_by_nobody(self, store: Store, to: State) -> None:
        await store.letters.record([make_letter(next_retry_at=START)])
        [taken] = await claim(store, ALL, to=to, owner="me")
        await store.letters.move([taken.id], expect=[to], to=to, owner="me", now=LATER)
        assert await store.letters.get(taken.id) == replace(taken, owner=None, lease_until=None, next_retry_at=None)

    async def test_a_letter_that_went_to_a_consumer_of_others_is_sent_and_can_go_again(self, store: Store) -> None:
        await store.letters.record([make_letter(next_retry_at=START, foreign=True)])
        [taken] = await claim(store, ALL, to=State.REPLAYING, owner="me", replay="r-1")
        await store.letters.move([taken.id], expect=[State.REPLAYING], to=State.SENT, owner="me", now=LATER)
        sent = replace(taken, state=State.SENT, owner=None, lease_until=None, next_retry_at=None)
        assert await store.letters.get(taken.id) == sent
        assert await store.ledger.freeze("r-2", ALL, now=LATER) == 1
        [again] = await claim(store, ALL, to=State.REPLAYING, owner="you", replay="r-2")
        assert (again.state, again.resends, again.replay) == (State.REPLAYING, 2, "r-2")
        await store.letters.move([again.id], expect=[State.REPLAYING], to=State.SENT, owner="you", now=LATER)
        assert await store.letters.prune(ALL, limit=5) == [again.id]

    @pytest.mark.parametrize("to", MAY_BECOME)
    async def test_a_claim_that_is_undone_leaves_no_trace(self, store: Store, to: State) -> None:
        letter = make_letter(next_retry_at=START, retries=1, resends=4, updated_at=LATER)
        await store.letters.record([letter])
        [taken] = await claim(store, ALL, to=to, owner="me")
        await store.letters.move([taken.id], expect=[to], to=State.PENDING, owner="me", now=LATER)
        assert await store.letters.get(letter.id) == letter
