"""The promises of a store, as tests. Whoever writes one gets them all by five lines:

    class TestMyStore(StoreSuite):
        @pytest.fixture
        def backend(self) -> StoreBackend:
            return MyBackend()

Nothing is skipped: where `features` say that a promise is not made, what holds instead is asserted. What a store has
to answer is said by redrive.testing.reference.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio
from msgspec.structs import replace

from redrive.errors import BadQuery
from redrive.forensics.query import Query
from redrive.model import Category, Failure, Letter, Reason, Stage, State, merge_failures
from redrive.stores.base import MAY_BECOME, Entry, EntryStatus, Store
from redrive.testing.builders import make_failure, make_letter, make_message
from redrive.testing.clock import START
from redrive.testing.reference import Reference, counted, told

_EVERY_BYTE = bytes(range(256))
ALL = Query()
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
LATER = START + HOUR


class StoreBackend:
    """How the suite gets at a store. Subclass it for yours."""

    async def open(self) -> Store:
        """Another instance: on the same database if it can be shared, and otherwise on one of its own."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """Take away what the backend made."""


LETTERS = {
    "plain": make_letter(),
    "empty body": make_letter(make_message(body=b"")),
    "every byte": make_letter(make_message(body=_EVERY_BYTE, key=_EVERY_BYTE, headers=(("h", _EVERY_BYTE),))),
    "a megabyte": make_letter(make_message(body=_EVERY_BYTE * 4096)),
    "repeated headers": make_letter(make_message(headers=(("a", b"1"), ("b", b"\xff"), ("a", b""), ("A", b"2")))),
    "unicode": make_letter(
        make_message(id="Grüße-🚚", source="straße 🚏", tenant="テナント", correlation_id="\x00\u202e\n"),
        make_failure(message="naïve – 🧨 \x00", type="π.Fehler", stack="Traceback…\n\ttab", worker="w\u0301"),
    ),
    "words of SQL": make_letter(make_message(id="'; DROP TABLE letters; --", source='"x"', tenant="%_\\")),
    "several failures": make_letter(
        make_message(),
        *(make_failure(attempt=n, at=START + n * MINUTE, message=f"failure {n}") for n in range(1, 6)),
    ),
    "every field": make_letter(
        make_message(
            body=b"{",
            key=b"k",
            tenant="t",
            correlation_id="c",
            attempt=3,
            priority=-9,
            expires_at=START + timedelta(microseconds=1),
            origin="orders[3]@1007",
        ),
        Failure(
            type="shop.CardError",
            message="declined",
            category=Category.PERMISSION,
            retryable=False,
            at=START + timedelta(microseconds=999_999),
            attempt=3,
            stage=Stage.DECODE,
            code="HTTP 403",
            stack="a\nb",
            frames=("shop:charge", "shop.cards:pay"),
            worker="host:1",
            version="1.2.3",
        ),
        state=State.EXHAUSTED,
        reason=Reason.UNDECODABLE,
        group="g",
        updated_at=START + HOUR,
        transport="kafka",
        next_retry_at=START + 2 * HOUR,
        retries=2,
        max_retries=5,
        resends=4,
        replay="r-1",
        depends_on=("m-1", "m-2"),
        expires_at=START + timedelta(days=30),
    ),
}


def corpus(number: int, seed: int = 1) -> list[Letter]:
    """Letters that differ in everything that can be asked for."""
    rng = random.Random(seed)
    return [_some_letter(rng, n) for n in range(number)]


def _some_letter(rng: random.Random, number: int) -> Letter:
    at = START + rng.randrange(6) * MINUTE  # several at the same time: paging has to tell them apart
    message = make_message(
        id=f"{rng.choice(['m', 'M', 'ä'])}-{number}",
        source=rng.choice(["orders", "mails", "straße"]),
        body=rng.choice([b"", b'{"Total": 12}', b"\xff\x00TOTAL\x00", "Größe".encode(), _EVERY_BYTE]),
        key=rng.choice([None, b"", b"Customer-7", b"\xfe\xff"]),
        tenant=rng.choice([None, "acme", "Acme", "zeta"]),
        correlation_id=rng.choice([None, "trace-1", "TRACE-2"]),
        priority=rng.choice([-1, 0, 0, 5]),
    )
    failure = make_failure(
        type=rng.choice(["ValueError", "smtplib.SMTPError", "x.Ünfall"]),
        message=rng.choice(["no such user 17", "Timed out", "größer als erlaubt", "50% off_"]),
        category=rng.choice(list(Category)),
        code=rng.choice([None, "SMTP 550", "HTTP 503"]),
        at=at,
    )
    state = rng.choice(list(State))
    flying = state in (State.RETRYING, State.REPLAYING) and rng.random() < 0.7
    return make_letter(
        message,
        failure,
        at=at,
        state=state,
        group=f"group-{rng.randrange(4)}",
        transport=rng.choice(["default", "kafka"]),
        next_retry_at=rng.choice([None, at + MINUTE, at + 2 * MINUTE]),
        expires_at=rng.choice([None, at + HOUR, at + 2 * HOUR]),
        owner=rng.choice(["worker-1", "worker-2"]) if flying else None,
        lease_until=at + rng.choice([1, 9]) * MINUTE if flying else None,
        depends_on=rng.choice([(), (), ("m-1",)]),
    )


_SOME = corpus(2)
QUERIES: dict[str, Query] = {
    "everything": ALL,
    "ids": Query(ids=tuple(one.id for one in corpus(90)[::7])),
    "ids of nobody": Query(ids=("nobody", "'; --")),
    "no ids": Query(ids=()),
    "an id twice": Query(ids=(_SOME[0].id, _SOME[0].id)),
    "beginning of an id": Query(id_prefix=_SOME[0].id[:2]),
    "a whole id": Query(id_prefix=_SOME[0].id),
    "beginning of every id": Query(id_prefix=""),
    "beginning of no id": Query(id_prefix="%"),
    "message ids": Query(message_ids=("m-1", "M-2", "ä-3", "m-4", "m-5", "m-6")),
    "no message ids": Query(message_ids=()),
    "one state": Query(states=(State.PENDING,)),
    "states": Query(states=(State.EXHAUSTED, State.RESOLVED, State.REPLAYING)),
    "a state twice": Query(states=(State.PENDING, State.PENDING)),
    "no state": Query(states=()),
    "one source": Query(sources=("straße",)),
    "sources": Query(sources=("orders", "mails", "nowhere")),
    "a source twice": Query(sources=("orders", "orders")),
    "no source": Query(sources=()),
    "one category": Query(categories=(Category.NETWORK,)),
    "categories": Query(categories=(Category.NETWORK, Category.PERMANENT)),
    "no category": Query(categories=()),
    "groups": Query(groups=("group-1", "group-3")),
    "no group": Query(groups=()),
    "no group of a source": Query(groups=(), sources=("orders",)),
    "tenants": Query(tenants=("acme", "zeta")),
    "no tenant": Query(tenants=()),
    "transports": Query(transports=("kafka",)),
    "no transport": Query(transports=()),
    "error type": Query(error_type="x.Ünfall"),
    "code": Query(code="SMTP 550"),
    "since": Query(since=START + 3 * MINUTE),
    "before": Query(before=START + 3 * MINUTE),
    "between": Query(since=START + MINUTE, before=START + 4 * MINUTE),
    "never": Query(since=START + 4 * MINUTE, before=START + MINUTE),
    "text": Query(text="total"),
    "text in capitals": Query(text="TOTAL"),
    "text of bytes that are no text": Query(text="\x00total\x00"),
    "text of a key": Query(text="customer"),
    "text of a correlation id": Query(text="Trace-"),
    "text of an error": Query(text="timed OUT"),
    "text of an error's type": Query(text="smtperror"),
    "text of an id": Query(text="m-1"),
    "text with wildcards": Query(text="%"),
    "text with an underscore": Query(text="off_"),
    "text beyond ASCII": Query(text="größ"),
    "text beyond ASCII in capitals": Query(text="GRÖSS"),
    "no text": Query(text=""),
    "text of nobody": Query(text="no letter says this"),
    "text that is no text": Query(text="\udcff"),
    "text with quotes": Query(text="'\""),
    "scheduled": Query(scheduled=True),
    "not scheduled": Query(scheduled=False, states=(State.PENDING,)),
    "due": Query(due=START + 3 * MINUTE),
    "due of a source": Query(due=START + 4 * MINUTE, sources=("orders",), states=(State.PENDING,)),
    "lapsed": Query(lapsed=START + 5 * MINUTE),
    "lapsed at the very moment": Query(lapsed=START + MINUTE),
    "expired": Query(expired=START + HOUR + 3 * MINUTE),
    "owner": Query(owner="worker-1"),
    "owner and state": Query(owner="worker-1", states=(State.RETRYING,)),
    "state and category": Query(states=(State.PENDING,), categories=(Category.TRANSIENT, Category.NETWORK)),
    "group and source": Query(groups=("group-0", "group-1"), sources=("mails",)),
    "tenant and state": Query(tenants=("acme",), states=(State.PENDING, State.EXHAUSTED)),
    "all of it": Query(
        states=(State.PENDING, State.EXHAUSTED, State.RESOLVED),
        sources=("orders", "mails"),
        categories=tuple(Category)[:4],
        groups=("group-0", "group-1", "group-2"),
        tenants=("acme", "zeta"),
        transports=("default",),
        since=START,
        before=START + 9 * MINUTE,
        text="t",
    ),
}
"""Every filter alone, at its edges, and together with others."""


class StoreSuite:
    """Every promise in redrive.stores.base, tested on what the fixture `backend` gives."""

    pytestmark = pytest.mark.asyncio

    @pytest.fixture
    def backend(self) -> StoreBackend:
        raise NotImplementedError("give the suite a fixture `backend`")

    @pytest_asyncio.fixture
    async def store(self, backend: StoreBackend) -> AsyncIterator[Store]:
        store = await backend.open()
        yield store
        await store.aclose()
        await backend.aclose()

    # -- record and get ------------------------------------------------------------------------------------------

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
        assert told(await store.letters.groups(ALL)) == {letter.group: ({State.PENDING: 1}, ("orders",))}

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
            created_at=old.created_at,
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
            assert [one.id for one in (await store.letters.search(query)).letters] == [old.id], query
        assert told(await store.letters.groups(ALL)) == {"another group": ({State.EXHAUSTED: 1}, ("orders",))}

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
        assert await _all(store, ALL, oldest_first=True) == letters
        await store.letters.record(letters)
        assert await store.letters.count(ALL) == 500

    async def test_two_writers_of_one_letter_lose_no_failure(self, store: Store, backend: StoreBackend) -> None:
        other = await backend.open() if store.features.shared else store
        message = make_message()
        failures = [make_failure(attempt=n, at=START + n * MINUTE) for n in range(1, 31)]
        await asyncio.gather(
            *((store, other)[n % 2].letters.record([make_letter(message, one)]) for n, one in enumerate(failures))
        )
        got = await store.letters.get(make_letter(message).id)
        if other is not store:
            await other.aclose()
        assert got is not None
        assert sorted(failure.attempt for failure in got.failures) == list(range(1, 31))

    # -- search, count, groups -----------------------------------------------------------------------------------

    async def test_every_query_selects_what_the_reference_says(self, store: Store) -> None:
        reference = Reference()
        reference.record(corpus(90))
        await store.letters.record(corpus(90))
        for name, query in QUERIES.items():
            expected = reference.selected(query)
            assert await _all(store, query, oldest_first=True) == expected, name
            assert await _all(store, query, oldest_first=False, limit=7) == expected[::-1], name
            assert await store.letters.count(query) == len(expected), name
            groups = await store.letters.groups(query)
            assert told(groups) == reference.groups(query), name
            assert [one.count for one in groups] == sorted((one.count for one in groups), reverse=True), name

    @pytest.mark.parametrize("oldest_first", [False, True])
    @pytest.mark.parametrize("query", [ALL, Query(states=tuple(State)), Query(sources=("orders", "mails", "straße"))])
    async def test_paging_while_letters_come_and_go(self, store: Store, query: Query, oldest_first: bool) -> None:
        stays = corpus(60, seed=2)
        await store.letters.record(stays)
        seen: list[str] = []
        after, number = None, 0
        while True:
            page = await store.letters.search(query, after=after, limit=7, oldest_first=oldest_first)
            assert len(page.letters) <= 7
            seen += [letter.id for letter in page.letters]
            after, number = page.after, number + 1
            if after is None:
                break
            extra = [make_letter(make_message(id=f"extra-{number}-{n}"), at=START + n * MINUTE) for n in range(5)]
            await store.letters.record(extra)
            await store.letters.prune(Query(ids=(extra[0].id,)), limit=1)
        assert len(seen) == len(set(seen)), "a letter came twice"
        known = [one.id for one in sorted(stays, key=lambda one: one.created_at)]
        assert [id for id in seen if id in known] == (known if oldest_first else known[::-1])

    async def test_a_page_that_ends_exactly_with_the_letters(self, store: Store) -> None:
        await store.letters.record([make_letter(at=START + n * MINUTE) for n in range(4)])
        first = await store.letters.search(ALL, limit=4)
        assert len(first.letters) == 4
        rest = await store.letters.search(ALL, after=first.after, limit=4) if first.after else None
        assert rest is None or (rest.letters, rest.after) == ((), None)

    @pytest.mark.parametrize("cursor", ["", "x", "1", ".", "1.", "².²", "1.1.1", "2030-01-01|1", "9" * 40 + ".1", "|"])
    async def test_a_cursor_that_is_none(self, store: Store, cursor: str) -> None:
        await store.letters.record([make_letter()])
        with pytest.raises(BadQuery, match="cursor"):
            await store.letters.search(ALL, after=cursor)
        await store.ledger.freeze("r", ALL, now=START)
        with pytest.raises(BadQuery, match="cursor"):
            await store.ledger.entries("r", after=f"no {cursor}")

    async def test_the_largest_groups_come_first_and_no_more_than_asked_for(self, store: Store) -> None:
        sizes = {"a": 3, "b": 5, "c": 1, "d": 5, "e": 2}
        await store.letters.record([make_letter(group=name) for name, size in sizes.items() for _ in range(size)])
        for query in (ALL, Query(text="it did not work")):
            groups = await store.letters.groups(query, limit=3)
            assert [(group.id, group.count) for group in groups] == [("b", 5), ("d", 5), ("a", 3)]

    async def test_a_group_tells_what_its_letters_have_in_common(self, store: Store) -> None:
        common = make_failure(type="smtplib.SMTPError", message="mailbox full", category=Category.RESOURCE)
        await store.letters.record(
            [
                make_letter(make_message(source=name), replace(common, at=at), at=at, group="g")
                for name, at in (("b", START + HOUR), ("a", START), ("b", START + 2 * HOUR))
            ]
        )
        [group] = await store.letters.groups(ALL)
        assert (group.error_type, group.message) == ("smtplib.SMTPError", "mailbox full")
        assert (group.category, group.sources, group.count) == (Category.RESOURCE, ("a", "b"), 3)
        assert (group.first_at, group.last_at) == (START, START + 2 * HOUR)

    async def test_tallies_and_groups_equal_a_recount_after_a_long_history(self, store: Store) -> None:
        rng, reference = random.Random(5), Reference()
        for step in range(80):
            now = START + step * MINUTE
            await _one_thing(rng, store, reference, now)
            assert counted(await store.letters.tallies()) == reference.tallies()
        assert await _all(store, ALL, oldest_first=True) == reference.selected(ALL)
        for query in QUERIES.values():
            assert told(await store.letters.groups(query)) == reference.groups(query), query
            assert await store.letters.count(query) == len(reference.selected(query)), query

    # -- claim ---------------------------------------------------------------------------------------------------

    async def test_a_claim_leases_and_counts(self, store: Store) -> None:
        letter = make_letter(next_retry_at=START, retries=1, resends=2)
        await store.letters.record([letter])
        [taken] = await _claim(store, ALL, to=State.RETRYING, owner="me")
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
        assert await _claim(store, ALL, to=State.RETRYING, owner="somebody else") == []

    @pytest.mark.parametrize("to", MAY_BECOME)
    async def test_a_claim_is_renewed_by_its_owner_and_counts_nothing_twice(self, store: Store, to: State) -> None:
        letter = make_letter(next_retry_at=START, retries=1, resends=2)
        await store.letters.record([letter])
        [taken] = await _claim(store, ALL, to=to, owner="me")
        mine = Query(ids=(letter.id,), states=(to,), owner="me")
        ask: dict[str, Any] = {"to": to, "now": LATER + MINUTE, "until": LATER + HOUR, "limit": 1}
        assert await store.letters.claim(mine, owner="somebody else", **ask) == []
        [renewed] = await store.letters.claim(mine, owner="me", **ask)
        assert renewed == replace(taken, lease_until=LATER + HOUR, updated_at=LATER + MINUTE)
        assert await store.letters.get(letter.id) == renewed

    async def test_a_claim_for_a_replay_notes_it_and_counts_no_retry(self, store: Store) -> None:
        letter = make_letter(state=State.EXHAUSTED, replay="r-0", retries=3)
        await store.letters.record([letter])
        [taken] = await _claim(store, ALL, to=State.REPLAYING, owner="me", replay="r-1")
        assert (taken.state, taken.replay, taken.resends, taken.retries) == (State.REPLAYING, "r-1", 1, 3)
        [again] = await _claim(store, ALL, to=State.REPLAYING, owner="me", replay="r-1")
        assert (again.resends, again.owner) == (1, "me"), "who resumes counts nothing twice"
        assert await store.letters.get(letter.id) == again

    @pytest.mark.parametrize("to", MAY_BECOME)
    @pytest.mark.parametrize("state", State)
    async def test_only_some_states_may_be_claimed(self, store: Store, state: State, to: State) -> None:
        owner = "me" if state in (State.RETRYING, State.REPLAYING) else None
        until = LATER + HOUR if owner else None
        await store.letters.record([make_letter(state=state, owner=owner, lease_until=until)])
        taken = await _claim(store, ALL, to=to, owner="me")
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
        first = await _claim(store, ALL, to=State.REPLAYING, owner="me", limit=4)
        assert [one.message.id for one in first] == order[:4]
        rest = await _claim(store, Query(states=(State.PENDING,)), to=State.RETRYING, owner="me", limit=4)
        assert [one.message.id for one in rest] == order[4:]

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
            assert [one.id for one in taken] == [one.id for one in reference.claim(query, **call)]

    async def test_a_query_limits_a_claim(self, store: Store) -> None:
        await store.letters.record([make_letter(make_message(source=name)) for name in "aab"])
        assert len(await _claim(store, Query(sources=("a",)), to=State.RETRYING, owner="me")) == 2
        assert await store.letters.count(Query(states=(State.PENDING,))) == 1

    async def test_a_letter_of_somebody_else_is_not_claimed(self, store: Store) -> None:
        await store.letters.record([make_letter()])
        await _claim(store, ALL, to=State.REPLAYING, owner="first")
        assert await _claim(store, ALL, to=State.REPLAYING, owner="second") == []
        assert len(await _claim(store, ALL, to=State.REPLAYING, owner="first")) == 1

    async def test_a_letter_that_one_replay_has_sent_or_left_behind_is_no_other_replays(self, store: Store) -> None:
        await store.letters.record([make_letter()])
        [held] = await _claim(store, ALL, to=State.REPLAYING, owner="first")
        assert held.lease_until is not None
        late = held.lease_until + HOUR
        assert await _claim(store, ALL, to=State.REPLAYING, owner="second", now=late) == [], "its own will go on"
        await store.letters.move([held.id], expect=[State.REPLAYING], to=State.REPLAYING, owner="first", now=late)
        for owner in ("first", "second"):
            assert await _claim(store, ALL, to=State.REPLAYING, owner=owner, now=late) == [], "it was sent"

    async def test_a_letter_waits_for_those_it_depends_on(self, store: Store) -> None:
        first = make_letter(make_message(id="first"))
        then = make_letter(make_message(id="then"), depends_on=("first", "never buried"))
        await store.letters.record([then, first])
        one = Query(message_ids=("then",))
        for state in (State.EXHAUSTED, State.PENDING):
            await store.letters.move([first.id], expect=list(State), to=state, now=LATER)
            assert await _claim(store, one, to=State.RETRYING, owner="me") == [], state
        await store.letters.move([first.id], expect=list(State), to=State.RESOLVED, now=LATER)
        assert len(await _claim(store, one, to=State.RETRYING, owner="me")) == 1

    async def test_a_dependency_that_somebody_archived_holds_nobody_up(self, store: Store) -> None:
        first = make_letter(make_message(id="first"))
        await store.letters.record([first, make_letter(make_message(id="then"), depends_on=("first",))])
        await store.letters.move([first.id], expect=list(State), to=State.ARCHIVED, now=LATER)
        assert len(await _claim(store, Query(message_ids=("then",)), to=State.RETRYING, owner="me")) == 1

    async def test_a_dependency_that_was_pruned_holds_nobody_up(self, store: Store) -> None:
        first = make_letter(make_message(id="first"))
        await store.letters.record([first, make_letter(make_message(id="then"), depends_on=("first",))])
        await store.letters.prune(Query(ids=(first.id,)), limit=1)
        assert len(await _claim(store, ALL, to=State.RETRYING, owner="me")) == 1

    async def test_a_letter_recorded_again_after_it_was_pruned_has_only_its_own_dependencies(
        self, store: Store
    ) -> None:
        first, then = make_letter(make_message(id="first")), make_message(id="then")
        await store.letters.record([first, make_letter(then, depends_on=("first",))])
        await store.letters.prune(Query(message_ids=("then",)), limit=1)
        await store.letters.record([make_letter(then)])
        assert len(await _claim(store, Query(message_ids=("then",)), to=State.RETRYING, owner="me")) == 1

    async def test_one_letter_has_one_owner_however_many_ask(self, store: Store, backend: StoreBackend) -> None:
        other = await backend.open() if store.features.shared else store
        await store.letters.record([make_letter() for _ in range(200)])

        async def claimer(number: int) -> list[str]:
            mine: list[str] = []
            while some := await _claim(
                (store, other)[number % 2],
                Query(states=(State.PENDING,)),
                to=State.RETRYING,
                owner=f"owner-{number}",
                limit=7,
            ):
                mine += [one.id for one in some]
            return mine

        got = await asyncio.gather(*(claimer(number) for number in range(8)))
        if other is not store:
            await other.aclose()
        taken = [id for some in got for id in some]
        if store.features.atomic_claims:
            assert len(taken) == len(set(taken)) == 200
        else:
            assert set(taken) == {letter.id for letter in await _all(store, ALL, oldest_first=True)}

    # -- move and prune ------------------------------------------------------------------------------------------

    async def test_a_move_is_made_only_from_where_it_was_expected(self, store: Store) -> None:
        letters = [make_letter(state=state) for state in State]
        await store.letters.record(letters)
        expect = [State.PENDING, State.EXHAUSTED]
        ids = [letter.id for letter in letters]
        moved = await store.letters.move([*ids, ids[0], "nobody"], expect=expect, to=State.ARCHIVED, now=LATER)
        assert sorted(moved) == sorted(one.id for one in letters if one.state in expect)
        for letter in letters:
            got = await store.letters.get(letter.id)
            went = letter.state in expect
            assert got == (replace(letter, state=State.ARCHIVED, updated_at=LATER) if went else letter)
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
        await _claim(store, ALL, to=State.RETRYING, owner="me")
        ask: dict[str, Any] = {"expect": [State.RETRYING], "to": State.RETRYING, "now": LATER}
        assert await store.letters.move([letter.id], owner="somebody else", **ask) == []
        assert await store.letters.move([letter.id], owner="me", **ask) == [letter.id]
        assert await store.letters.move([letter.id], owner="me", **ask) == [], "its lease is gone with the move"

    @pytest.mark.parametrize("to", MAY_BECOME)
    async def test_a_confirmed_letter_is_on_its_way_and_owned_by_nobody(self, store: Store, to: State) -> None:
        await store.letters.record([make_letter(next_retry_at=START)])
        [taken] = await _claim(store, ALL, to=to, owner="me")
        await store.letters.move([taken.id], expect=[to], to=to, owner="me", now=LATER)
        assert await store.letters.get(taken.id) == replace(taken, owner=None, lease_until=None, next_retry_at=None)

    @pytest.mark.parametrize("to", MAY_BECOME)
    async def test_a_claim_that_is_undone_leaves_no_trace(self, store: Store, to: State) -> None:
        letter = make_letter(next_retry_at=START, retries=1, resends=4, updated_at=LATER)
        await store.letters.record([letter])
        [taken] = await _claim(store, ALL, to=to, owner="me")
        await store.letters.move([taken.id], expect=[to], to=State.PENDING, owner="me", now=LATER)
        assert await store.letters.get(letter.id) == letter

    async def test_what_is_on_its_way_is_never_pruned(self, store: Store) -> None:
        letters = [make_letter(state=state, at=START) for state in State for _ in range(2)]
        await store.letters.record(letters)
        gone = await store.letters.prune(ALL, limit=100)
        flying = (State.RETRYING, State.REPLAYING)
        assert sorted(gone) == sorted(one.id for one in letters if one.state not in flying)
        assert await store.letters.prune(ALL, limit=100) == []
        assert {one.state for one in await _all(store, ALL, oldest_first=True)} == set(flying)
        assert await store.letters.prune(Query(states=flying), limit=100) == []

    async def test_the_oldest_are_pruned_first_and_no_more_than_asked_for(self, store: Store) -> None:
        letters = [make_letter(at=START + n * MINUTE) for n in (3, 1, 4, 0, 2)]
        await store.letters.record(letters)
        for expected in ((0, 1), (2, 3), (4,), ()):
            gone = await store.letters.prune(ALL, limit=2)
            assert set(gone) == {one.id for one in letters if one.created_at in [START + n * MINUTE for n in expected]}

    async def test_prune_deletes_what_the_query_selects(self, store: Store) -> None:
        reference = Reference()
        for number, (name, query) in enumerate(QUERIES.items()):
            some = corpus(20, seed=number)
            reference.record(some)
            await store.letters.record(some)
            for limit in (3, 1000):
                assert set(await store.letters.prune(query, limit=limit)) == reference.prune(query, limit=limit), name
            assert await _all(store, ALL, oldest_first=True) == reference.selected(ALL), name
            assert counted(await store.letters.tallies()) == reference.tallies(), name

    # -- ledger --------------------------------------------------------------------------------------------------

    async def test_a_selection_is_frozen_once(self, store: Store) -> None:
        letters = [make_letter(state=state, at=START - n * MINUTE) for n, state in enumerate((*State, State.PENDING))]
        await store.letters.record(letters)
        allowed = [one for one in letters if one.state in (State.PENDING, State.EXHAUSTED)]
        assert await store.ledger.freeze("r", ALL, now=LATER) == 3
        await store.letters.record([make_letter() for _ in range(3)])
        assert await store.ledger.freeze("r", ALL, now=LATER + HOUR) == 3
        entries, _ = await store.ledger.entries("r")
        oldest_first = [one.id for one in sorted(allowed, key=lambda one: one.created_at)]
        assert list(entries) == [Entry("r", id, EntryStatus.SELECTED, LATER) for id in oldest_first]
        assert await store.ledger.freeze("another", ALL, now=LATER) == 6

    async def test_a_selection_of_nothing_is_frozen_too(self, store: Store) -> None:
        assert await store.ledger.freeze("r", ALL, now=START) == 0
        await store.letters.record([make_letter()])
        assert await store.ledger.freeze("r", ALL, now=LATER) == 0, "a letter joined a replay after it was approved"
        assert await store.ledger.entries("r") == ([], None)

    async def test_what_the_query_selects_is_frozen(self, store: Store) -> None:
        reference = Reference()
        reference.record(corpus(90))
        await store.letters.record(corpus(90))
        for name, query in QUERIES.items():
            assert await store.ledger.freeze(name, query, now=LATER) == len(reference.freezable(query))
            entries, _ = await store.ledger.entries(name, limit=1000)
            assert [entry.letter for entry in entries] == reference.freezable(query), name

    async def test_the_ledger_is_read_in_pages_while_it_changes(self, store: Store) -> None:
        letters = [make_letter(at=START + n * MINUTE) for n in range(23)]
        await store.letters.record(letters)
        await store.ledger.freeze("r", ALL, now=LATER)
        seen: list[str] = []
        after = None
        while True:
            entries, after = await store.ledger.entries("r", after=after, limit=5)
            seen += [entry.letter for entry in entries]
            await store.ledger.mark([replace(entry, status=EntryStatus.SENT) for entry in entries])
            if after is None:
                break
        assert seen == [letter.id for letter in letters]
        assert await store.ledger.entries("r", status=EntryStatus.SELECTED) == ([], None)
        sent, _ = await store.ledger.entries("r", status=EntryStatus.SENT, limit=1000)
        assert [entry.letter for entry in sent] == seen

    @pytest.mark.parametrize("new", EntryStatus)
    @pytest.mark.parametrize("old", EntryStatus)
    async def test_an_outcome_is_never_overwritten_by_less(
        self, store: Store, old: EntryStatus, new: EntryStatus
    ) -> None:
        await store.letters.record([make_letter(make_message(id="x"))])
        await store.ledger.freeze("r", ALL, now=START)
        [[entry], _] = await store.ledger.entries("r")
        first = replace(entry, status=old, at=LATER, note="first")
        await store.ledger.mark([first])
        second = replace(entry, status=new, at=LATER + HOUR, note="second")
        await store.ledger.mark([second])
        final = (EntryStatus.RESOLVED, EntryStatus.FAILED)
        [[kept], _] = await store.ledger.entries("r")
        assert kept == (second if new in final or old is EntryStatus.SELECTED else first)

    async def test_the_ledger_is_counted(self, store: Store) -> None:
        await store.letters.record([make_letter(at=START + n * MINUTE) for n in range(10)])
        await store.ledger.freeze("r", ALL, now=START)
        await store.ledger.freeze("other", ALL, now=START)
        entries, _ = await store.ledger.entries("r")
        statuses = [EntryStatus.SENT] * 3 + [EntryStatus.RESOLVED] * 2 + [EntryStatus.SKIPPED]
        await store.ledger.mark(replace(entry, status=status) for entry, status in zip(entries, statuses, strict=False))
        expected = {EntryStatus.SENT: 3, EntryStatus.RESOLVED: 2, EntryStatus.SKIPPED: 1, EntryStatus.SELECTED: 4}
        assert await store.ledger.tally("r") == expected
        assert await store.ledger.tally("other") == {EntryStatus.SELECTED: 10}
        assert await store.ledger.tally("nobody's") == {}

    async def test_the_ledger_outlives_its_letters(self, store: Store) -> None:
        await store.letters.record([make_letter()])
        await store.ledger.freeze("r", ALL, now=START)
        await store.letters.prune(ALL, limit=1)
        assert await store.ledger.tally("r") == {EntryStatus.SELECTED: 1}

    # -- documents -----------------------------------------------------------------------------------------------

    async def test_a_document_is_kept_as_it_is(self, store: Store) -> None:
        body: dict[str, Any] = {"ä": [1, 2.5, None, True, {"deep": "🗝"}], "": "", "big": 2**53}
        assert await store.documents.get("kind", "id") is None
        assert await store.documents.put("kind", "id", body)
        got = await store.documents.get("kind", "id")
        assert got is not None
        assert (got.kind, got.id, got.version, got.body) == ("kind", "id", 1, body)
        assert await store.documents.get("other kind", "id") is None

    async def test_what_is_written_is_a_copy(self, store: Store) -> None:
        body: dict[str, Any] = {"list": [1]}
        await store.documents.put("kind", "id", body)
        body["list"].append(2)
        got = await store.documents.get("kind", "id")
        assert got is not None
        got.body["list"].append(3)
        again = await store.documents.get("kind", "id")
        assert again is not None
        assert again.body == {"list": [1]}

    async def test_a_document_is_written_only_over_the_version_that_was_read(self, store: Store) -> None:
        put = store.documents.put
        assert not await put("k", "id", {"n": 0}, expect=1)
        assert await put("k", "id", {"n": 1}, expect=0)
        assert not await put("k", "id", {"n": 2}, expect=0)
        assert await put("k", "id", {"n": 3}, expect=1)
        assert await put("k", "id", {"n": 4})
        got = await store.documents.get("k", "id")
        assert got is not None
        assert (got.version, got.body) == (3, {"n": 4})

    async def test_compare_and_set_loses_no_update(self, store: Store, backend: StoreBackend) -> None:
        other = await backend.open() if store.features.shared else store
        await store.documents.put("k", "counter", {"n": 0})

        async def add(through: Store) -> None:
            while True:
                document = await through.documents.get("k", "counter")
                assert document is not None
                body = {"n": document.body["n"] + 1}
                if await through.documents.put("k", "counter", body, expect=document.version):
                    return

        await asyncio.gather(*(add((store, other)[n % 2]) for n in range(30)))
        got = await store.documents.get("k", "counter")
        if other is not store:
            await other.aclose()
        assert got is not None
        assert (got.body, got.version) == ({"n": 30}, 31)

    async def test_documents_are_listed_the_latest_id_first(self, store: Store) -> None:
        for id in ("b", "d", "a", "c"):
            await store.documents.put("k", id, {"id": id})
        await store.documents.put("other", "z", {})
        assert [one.id for one in await store.documents.list("k")] == ["d", "c", "b", "a"]
        assert [one.body for one in await store.documents.list("k", limit=2)] == [{"id": "d"}, {"id": "c"}]
        assert await store.documents.list("nothing") == []

    async def test_a_document_is_deleted_once(self, store: Store) -> None:
        await store.documents.put("k", "id", {})
        assert await store.documents.delete("k", "id")
        assert not await store.documents.delete("k", "id")
        assert await store.documents.put("k", "id", {"new": True}, expect=0)

    # -- the rest ------------------------------------------------------------------------------------------------

    async def test_check_says_nothing_when_all_is_well(self, store: Store) -> None:
        await store.check()

    async def test_closing_twice_is_harmless(self, store: Store, backend: StoreBackend) -> None:
        other = await backend.open()
        await other.aclose()
        await other.aclose()
        await store.letters.record([make_letter()])
        assert await store.letters.count(ALL) == 1

    async def test_letters_outlive_those_who_wrote_them(self, store: Store, backend: StoreBackend) -> None:
        await store.letters.record([make_letter()])
        await store.aclose()
        again = await backend.open()
        try:
            assert await again.letters.count(ALL) == (1 if store.features.durable else 0)
        finally:
            await again.aclose()

    # -- helpers -------------------------------------------------------------------------------------------------

    async def _sent_back(self, store: Store, letter: Letter) -> None:
        await _claim(store, Query(ids=(letter.id,)), to=State.REPLAYING, owner="me", replay="r-1")
        await store.letters.move([letter.id], expect=[State.REPLAYING], to=State.REPLAYING, owner="me", now=LATER)


async def _claim(
    store: Store,
    query: Query,
    *,
    to: State,
    owner: str,
    now: datetime = LATER,
    limit: int = 100,
    replay: str | None = None,
) -> list[Letter]:
    taken = await store.letters.claim(
        query, to=to, owner=owner, now=now, until=now + MINUTE, limit=limit, replay=replay
    )
    return list(taken)


async def _all(store: Store, query: Query, *, oldest_first: bool, limit: int = 200) -> list[Letter]:
    """Every page of it."""
    found: list[Letter] = []
    after = None
    while True:
        page = await store.letters.search(query, after=after, limit=limit, oldest_first=oldest_first)
        found += page.letters
        after = page.after
        if after is None:
            return found


async def _one_thing(rng: random.Random, store: Store, reference: Reference, now: datetime) -> None:
    """One of the things that happen to letters, to both alike."""
    known = list(reference.letters.values())
    match rng.randrange(5):
        case 0 | 1:
            batch = _some_deaths(rng, known, now)
            reference.record(batch)
            await store.letters.record(batch)
        case 2:
            to = rng.choice(list(MAY_BECOME))
            claim: dict[str, Any] = {"to": to, "owner": rng.choice("ab"), "now": now, "until": now + 5 * MINUTE}
            taken = await store.letters.claim(ALL, limit=4, **claim)
            assert list(taken) == reference.claim(ALL, limit=4, **claim)
        case 3:
            ids = [one.id for one in rng.sample(known, min(5, len(known)))]
            move: dict[str, Any] = {"expect": rng.sample(list(State), 3), "to": rng.choice(list(State)), "now": now}
            assert set(await store.letters.move(ids, **move)) == reference.move(ids, **move)
        case _:
            query = Query(groups=(f"group-{rng.randrange(4)}",))
            assert set(await store.letters.prune(query, limit=2)) == reference.prune(query, limit=2)


def _some_deaths(rng: random.Random, known: Sequence[Letter], now: datetime) -> list[Letter]:
    fresh = [replace(one, created_at=now) for one in corpus(6, seed=rng.randrange(1 << 30))]
    fresh = [
        make_letter(make_message(source=one.message.source), *one.failures, at=now, group=one.group) for one in fresh
    ]
    again = [
        replace(one, failures=merge_failures((), [make_failure(attempt=rng.randrange(3), at=now)]), group="group-0")
        for one in rng.sample(list(known), min(3, len(known)))
    ]
    return fresh + again
