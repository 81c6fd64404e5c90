"""Who gets a letter when several want it."""

from __future__ import annotations

import asyncio
import random
from datetime import datetime
from typing import Any

import pytest
from msgspec.structs import replace

from redrive.forensics.query import Query
from redrive.model import Letter, State
from redrive.stores.base import MAY_BECOME, Store
from redrive.testing.builders import make_letter, make_message
from redrive.testing.clock import START
from redrive.testing.reference import Reference
from redrive.testing.stores.backend import ALL, HOUR, LATER, MINUTE, StoreBackend, claim, every_page


class Claiming:
    """A claim has one owner at a time, and ends with its lease."""

    async def test_a_claim_leases_and_counts(self, store: Store) -> None:
        letter = make_letter(next_retry_at=START, retries=1, resends=2)
        await store.letters.record([letter])
        [taken] = await claim(store, ALL, to=State.RETRYING, owner="me")
        assert taken == replace(
            letter,
            state=State.RETRYING,
            owner="me",
            lease_until=LATER + MINUTE,
            updated_at=LATER,
            resends=3,
            retries=2,
        )
        assert await store.letters.get(letter.id) == taken
        assert await claim(store, ALL, to=State.RETRYING, owner="somebody else") == []

    @pytest.mark.parametrize("to", MAY_BECOME)
    async def test_a_claim_is_renewed_by_its_owner_and_counts_nothing_twice(self, store: Store, to: State) -> None:
        letter = make_letter(next_retry_at=START, retries=1, resends=2)
        await store.letters.record([letter])
        [taken] = await claim(store, ALL, to=to, owner="me")
        mine = Query(ids=(letter.id,), states=(to,), owner="me")
        ask: dict[str, Any] = {"to": to, "now": LATER + MINUTE, "until": LATER + HOUR, "limit": 1}
        assert await store.letters.claim(mine, owner="somebody else", **ask) == []
        [renewed] = await store.letters.claim(mine, owner="me", **ask)
        assert renewed == replace(taken, lease_until=LATER + HOUR, updated_at=LATER + MINUTE)
        assert await store.letters.get(letter.id) == renewed

    async def test_a_claim_for_a_replay_notes_it_and_counts_no_retry(self, store: Store) -> None:
        letter = make_letter(state=State.EXHAUSTED, replay="r-0", retries=3)
        await store.letters.record([letter])
        [taken] = await claim(store, ALL, to=State.REPLAYING, owner="me", replay="r-1")
        assert (taken.state, taken.replay, taken.resends, taken.retries) == (State.REPLAYING, "r-1", 1, 3)
        [again] = await claim(store, ALL, to=State.REPLAYING, owner="me", replay="r-1")
        assert (again.resends, again.owner) == (1, "me"), "who resumes counts nothing twice"
        assert await store.letters.get(letter.id) == again

    @pytest.mark.parametrize("to", MAY_BECOME)
    @pytest.mark.parametrize("state", State)
    async def test_only_some_states_may_be_claimed(self, store: Store, state: State, to: State) -> None:
        owner = "me" if state in (State.RETRYING, State.REPLAYING) else None
        until = LATER + HOUR if owner else None
        await store.letters.record([make_letter(state=state, owner=owner, lease_until=until)])
        taken = await claim(store, ALL, to=to, owner="me")
        assert len(taken) == (state in MAY_BECOME[to])

    async def test_the_most_urgent_are_claimed_first(self, store: Store) -> None:
        def letter(name: str, priority: int, due: datetime | None) -> Letter:
            return make_letter(make_message(id=name, priority=priority), next_retry_at=due)

        await store.letters.record(
            [
                letter("late", 0, START + 2 * MINUTE),
                letter("least", 9, START),
                letter("soon", 0, START + MINUTE),
                letter("at once", 0, None),
                letter("most", -1, START + 3 * MINUTE),
                letter("soon too", 0, START + MINUTE),
            ]
        )
        order = ["most", "at once", "soon", "soon too", "late", "least"]
        first = await claim(store, ALL, to=State.REPLAYING, owner="me", limit=4)
        assert [letter.message.id for letter in first] == order[:4]
        rest = await claim(store, Query(states=(State.PENDING,)), to=State.RETRYING, owner="me", limit=4)
        assert [letter.message.id for letter in rest] == order[4:]

    async def test_what_is_due_is_claimed_by_source_and_priority(self, store: Store) -> None:
        rng = random.Random(3)
        letters = [
            make_letter(
                make_message(source=rng.choice("ab"), priority=rng.randrange(3)),
                next_retry_at=rng.choice([None, START, START + MINUTE, START + 2 * HOUR]),
            )
            for _ in range(60)
        ]
        await store.letters.record(letters)
        reference = Reference()
        reference.record(letters)
        for sources in (("a",), ("b", "a")):
            query = Query(sources=sources, states=(State.PENDING,), due=LATER, transports=("default",))
            call: dict[str, Any] = {"to": State.RETRYING, "owner": "me", "now": LATER, "until": LATER, "limit": 9}
            taken = await store.letters.claim(query, **call)
            assert [letter.id for letter in taken] == [letter.id for letter in reference.claim(query, **call)]

    async def test_a_query_limits_a_claim(self, store: Store) -> None:
        await store.letters.record([make_letter(make_message(source=name)) for name in "aab"])
        assert len(await claim(store, Query(sources=("a",)), to=State.RETRYING, owner="me")) == 2
        assert await store.letters.count(Query(states=(State.PENDING,))) == 1

    async def test_a_letter_of_somebody_else_is_not_claimed(self, store: Store) -> None:
        await store.letters.record([make_letter()])
        await claim(store, ALL, to=State.REPLAYING, owner="first")
        assert await claim(store, ALL, to=State.REPLAYING, owner="second") == []
        assert len(await claim(store, ALL, to=State.REPLAYING, owner="first")) == 1

    async def test_a_letter_that_one_replay_has_sent_or_left_behind_is_no_other_replays(self, store: Store) -> None:
        await store.letters.record([make_letter()])
        [held] = await claim(store, ALL, to=State.REPLAYING, owner="first")
        assert held.lease_until is not None
        late = held.lease_until + HOUR
        assert await claim(store, ALL, to=State.REPLAYING, owner="second", now=late) == [], "its own will go on"
        await store.letters.move([held.id], expect=[State.REPLAYING], to=State.REPLAYING, owner="first", now=late)
        for owner in ("first", "second"):
            assert await claim(store, ALL, to=State.REPLAYING, owner=owner, now=late) == [], "it was sent"

    async def test_a_letter_waits_for_those_it_depends_on(self, store: Store) -> None:
        first = make_letter(make_message(id="first"))
        then = make_letter(make_message(id="then"), depends_on=("first", "never buried"))
        await store.letters.record([then, first])
        follower = Query(message_ids=("then",))
        for state in (State.EXHAUSTED, State.PENDING):
            await store.letters.move([first.id], expect=list(State), to=state, now=LATER)
            assert await claim(store, follower, to=State.RETRYING, owner="me") == [], state
        await store.letters.move([first.id], expect=list(State), to=State.RESOLVED, now=LATER)
        assert len(await claim(store, follower, to=State.RETRYING, owner="me")) == 1

    async def test_a_dependency_that_somebody_archived_holds_nobody_up(self, store: Store) -> None:
        first = make_letter(make_message(id="first"))
        await store.letters.record([first, make_letter(make_message(id="then"), depends_on=("first",))])
        await store.letters.move([first.id], expect=list(State), to=State.ARCHIVED, now=LATER)
        assert len(await claim(store, Query(message_ids=("then",)), to=State.RETRYING, owner="me")) == 1

    async def test_a_dependency_that_was_pruned_holds_nobody_up(self, store: Store) -> None:
        first = make_letter(make_message(id="first"))
        await store.letters.record([first, make_letter(make_message(id="then"), depends_on=("first",))])
        await store.letters.prune(Query(ids=(first.id,)), limit=1)
        assert len(await claim(store, ALL, to=State.RETRYING, owner="me")) == 1

    async def test_a_letter_recorded_again_after_it_was_pruned_has_only_its_own_dependencies(
        self, store: Store
    ) -> None:
        first, then = make_letter(make_message(id="first")), make_message(id="then")
        await store.letters.record([first, make_letter(then, depends_on=("first",))])
        await store.letters.prune(Query(message_ids=("then",)), limit=1)
        await store.letters.record([make_letter(then)])
        assert len(await claim(store, Query(message_ids=("then",)), to=State.RETRYING, owner="me")) == 1

    async def test_one_letter_has_one_owner_however_many_ask(self, store: Store, backend: StoreBackend) -> None:
        other = await backend.open() if store.features.shared else store
        await store.letters.record([make_letter() for _ in range(200)])

        async def claimer(number: int) -> list[str]:
            mine: list[str] = []
            while some := await claim(
                (store, other)[number % 2],
                Query(states=(State.PENDING,)),
                to=State.RETRYING,
                owner=f"owner-{number}",
                limit=7,
            ):
                mine += [letter.id for letter in some]
            return mine

        got = await asyncio.gather(*(claimer(number) for number in range(8)))
        if other is not store:
            await other.aclose()
        taken = [id for some in got for id in some]
        if store.features.atomic_claims:
            assert len(taken) == len(set(taken)) == 200
        else:
            assert set(taken) == {letter.id for letter in await every_page(store, ALL, oldest_first=True)}
