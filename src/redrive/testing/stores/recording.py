"""What a store keeps of a letter, and how deaths of one message join."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from redrive.forensics.query import Query
from redrive.model import Category, Letter, Reason, State
from redrive.stores.base import Store
from redrive.testing.builders import make_failure, make_letter, make_message
from redrive.testing.clock import START
from redrive.testing.reference import Reference, counted, members_of
from redrive.testing.stores.backend import ALL, HOUR, LATER, MINUTE, StoreBackend, claim, every_page
from redrive.testing.stores.examples import LETTERS


class Recording:
    """Letters are kept as they are; the same failure twice changes nothing, another one joins its letter."""

    @pytest.mark.parametrize("letter", LETTERS.values(), ids=LETTERS.keys())
    async def test_a_letter_is_kept_as_it_is(self, store: Store, letter: Letter) -> None:
        await store.letters.record([letter])
        assert await store.letters.get(letter.id) == letter
        assert (await store.letters.search(ALL)).letters == (letter,)

    async def test_a_letter_that_nobody_wrote(self, store: Store) -> None:
        assert await store.letters.get("nobody") is None
        await store.letters.record([])
        assert (await store.letters.search(ALL)).letters == ()

    async def test_recording_the_same_failure_twice_changes_nothing(self, store: Store) -> None:
        letter = make_letter(depends_on=("other",))
        await store.letters.record([letter])
        again = replace(letter, state=State.EXHAUSTED, group="another", updated_at=LATER, retries=9, transport="x")
        await store.letters.record([again])
        await store.letters.record([letter, again])
        assert await store.letters.get(letter.id) == letter
        assert counted(await store.letters.tallies()).total() == 1
        assert members_of(await store.letters.groups(ALL)) == {letter.group: ({State.PENDING: 1}, ("orders",))}

    async def test_an_unseen_failure_rejoins_its_letter(self, store: Store) -> None:
        message = make_message(body=b"as it was sent", headers=(("h", b"1"),))
        old = make_letter(message, depends_on=("a",), max_retries=1, retries=1, expires_at=LATER)
        await store.letters.record([old])
        await self._sent_back(store, old)
        new = make_letter(
            replace(message, attempt=2),
            make_failure(attempt=1, at=LATER, message="another cause", category=Category.NETWORK, code="HTTP 503"),
            at=LATER,
            state=State.EXHAUSTED,
            reason=Reason.CRASHED,
            group="another group",
            next_retry_at=LATER + HOUR,
            retries=2,
            max_retries=7,
            depends_on=("b",),
            expires_at=LATER + HOUR,
            transport="kafka",
        )
        await store.letters.record([new])
        got = await store.letters.get(old.id)
        assert got == replace(
            new,
            message=replace(message, attempt=2),
            failures=(*old.failures, *new.failures),
            created_at=LATER,
            resends=1,
            replay="r-1",
            depends_on=("a",),
        )
        for query in (
            Query(states=(State.EXHAUSTED,), categories=(Category.NETWORK,)),
            Query(groups=("another group",)),
            Query(text="another cause"),
            Query(code="HTTP 503", transports=("kafka",)),
            Query(due=LATER + HOUR),
        ):
            assert [letter.id for letter in (await store.letters.search(query)).letters] == [old.id], query
        assert members_of(await store.letters.groups(ALL)) == {"another group": ({State.EXHAUSTED: 1}, ("orders",))}

    async def test_failures_are_told_apart_by_attempt_worker_and_time(self, store: Store) -> None:
        first = make_failure(attempt=1, worker="a", at=START)
        others = [replace(first, attempt=2), replace(first, worker="b"), replace(first, at=LATER)]
        message = make_message()
        await store.letters.record([make_letter(message, first)])
        for other in (*others, first, *others):
            await store.letters.record([make_letter(message, other)])
        got = await store.letters.get(make_letter(message).id)
        assert got is not None
        assert got.failures == (first, *others)

    async def test_two_deaths_of_one_message_in_one_batch(self, store: Store) -> None:
        message = make_message()
        first = make_letter(message, make_failure(attempt=1), group="first")
        second = make_letter(message, make_failure(attempt=2), group="second", state=State.EXHAUSTED)
        await store.letters.record([first, make_letter(), second, first])
        got = await store.letters.get(first.id)
        assert got is not None
        assert (got.group, got.state, len(got.failures)) == ("second", State.EXHAUSTED, 2)
        assert await store.letters.count(ALL) == 2
        assert counted(await store.letters.tallies()).total() == 2

    async def test_a_late_repeat_in_a_batch_does_not_undo_what_is_new(self, store: Store) -> None:
        message = make_message()
        known = make_letter(message, make_failure(attempt=1), group="known")
        newer = make_letter(message, make_failure(attempt=2), group="newer", state=State.EXHAUSTED)
        reference = Reference()
        for batch in ([known], [newer, known]):
            reference.record(batch)
            await store.letters.record(batch)
        assert await store.letters.get(known.id) == reference.letters[known.id]
        assert reference.letters[known.id].group == "newer"

    async def test_five_hundred_at_once(self, store: Store) -> None:
        letters = [make_letter(make_message(body=str(n).encode()), at=START + n * MINUTE) for n in range(500)]
        await store.letters.record(letters)
        assert await every_page(store, ALL, oldest_first=True) == letters
        await store.letters.record(letters)
        assert await store.letters.count(ALL) == 500

    async def test_two_writers_of_one_letter_lose_no_failure(self, store: Store, backend: StoreBackend) -> None:
        other = await backend.open() if store.features.shared else store
        message = make_message()
        failures = [make_failure(attempt=n, at=START + n * MINUTE) for n in range(1, 31)]
        await asyncio.gather(
            *(
                (store, other)[n % 2].letters.record([make_letter(message, failure)])
                for n, failure in enumerate(failures)
            )
        )
        got = await store.letters.get(make_letter(message).id)
        if other is not store:
            await other.aclose()
        assert got is not None
        assert sorted(failure.attempt for failure in got.failures) == list(range(1, 31))

    async def _sent_back(self, store: Store, letter: Letter) -> None:
        await claim(store, Query(ids=(letter.id,)), to=State.REPLAYING, owner="me", replay="r-1")
        await store.letters.move([letter.id], expect=[State.REPLAYING], to=State.REPLAYING, owner="me", now=LATER)
