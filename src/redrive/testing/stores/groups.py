"""How a store sums up its letters."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from redrive.forensics.query import Query
from redrive.forensics.scope import Scope
from redrive.model import Category, Letter, State, merge_failures
from redrive.stores.base import MAY_BECOME, GroupOrder, Hit, Store
from redrive.testing.builders import make_failure, make_letter, make_message
from redrive.testing.clock import START
from redrive.testing.reference import Reference, counted, members_of
from redrive.testing.stores.backend import ALL, HOUR, MINUTE, every_page
from redrive.testing.stores.examples import corpus
from redrive.testing.stores.queries import QUERIES


class Groups:
    """Groups and tallies equal a recount, whatever happened to the letters."""

    async def test_the_largest_groups_come_first_and_no_more_than_asked_for(self, store: Store) -> None:
        sizes = {"a": 3, "b": 5, "c": 1, "d": 5, "e": 2}
        await store.letters.record([make_letter(group=name) for name, size in sizes.items() for _ in range(size)])
        for query in (ALL, Query(text="it did not work")):
            groups = await store.letters.groups(query, limit=3)
            assert [(group.id, group.count) for group in groups] == [("b", 5), ("d", 5), ("a", 3)]

    async def test_groups_are_paged_in_each_order(self, store: Store) -> None:
        spans = {"a": (5, 4, 0), "b": (4, 0, 4), "c": (3, 3, 3), "d": (3, 1, 2), "e": (1, 5, 5)}
        for name, (size, first, last) in spans.items():
            times = [START + first * HOUR, *[START + max(first, last) * HOUR] * (size - 1)]
            await store.letters.record([make_letter(None, make_failure(at=at), at=at, group=name) for at in times])
        for query in (ALL, Query(text="it did not work"), Query(scope=Scope(sources=("*",)))):
            for order, expected in (
                (GroupOrder.LETTERS, "abcde"),
                (GroupOrder.LAST_SEEN, "eabcd"),
                (GroupOrder.FIRST_SEEN, "eacdb"),
            ):
                pages = [await store.letters.groups(query, limit=2, skip=skip, order=order) for skip in (0, 2, 4, 6)]
                assert [len(page) for page in pages] == [2, 2, 1, 0], (order, query)
                assert "".join(group.id for page in pages for group in page) == expected, (order, query)

    async def test_the_tenants_of_groups_are_told_up_to_a_number(self, store: Store) -> None:
        hit = {"g": ("b", "a", None, "b", "c"), "h": (None,), "i": ("b", "d")}
        await store.letters.record(
            [make_letter(make_message(tenant=name), group=group) for group, names in hit.items() for name in names]
        )
        for most, expected in ((3, Hit(("a", "b", "c"), True)), (2, Hit(("a", "b"), False))):
            found = await store.letters.tenants(["g", "h", "nobody"], most=most)
            assert found == {"g": expected, "h": Hit((), True), "nobody": Hit((), True)}
        assert await store.letters.tenants([], most=3) == {}

    async def test_the_tenants_of_a_group_are_those_of_the_letters_that_it_has_now(self, store: Store) -> None:
        async def told() -> list[tuple[str, ...]]:
            found = await store.letters.tenants(["g", "h"], most=3)
            return [found[name].tenants for name in ("g", "h")]

        first, second, other = [make_letter(make_message(tenant=name), group="g") for name in ("a", "a", "b")]
        for _ in range(2):  # the same failures again change nothing
            await store.letters.record([first, second, other])
            assert await told() == [("a", "b"), ()]
        await store.letters.prune(Query(ids=(first.id,)), limit=1)
        assert await told() == [("a", "b"), ()], "one of its letters is left"
        await store.series.roll_up()
        assert await told() == [("a", "b"), ()]
        await store.letters.prune(Query(ids=(second.id,)), limit=1)
        assert await told() == [("b",), ()]
        again = replace(make_failure(at=START + HOUR), attempt=2)
        await store.letters.record([replace(other, group="h", failures=(again,), updated_at=START + HOUR)])
        for _ in range(2):
            assert await told() == [(), ("b",)]
            await store.series.roll_up()
        await store.letters.prune(ALL, limit=9)
        assert await told() == [(), ()]

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

    async def test_a_group_tells_the_versions_that_it_was_first_and_last_seen_in(self, store: Store) -> None:
        versions = {START + HOUR: "1.10.0", START: "1.9.2", START + 2 * HOUR: "1.10.1"}
        letters = [
            make_letter(None, make_failure(at=at, version=version), at=at, group="g")
            for at, version in versions.items()
        ]
        await store.letters.record([*letters, make_letter(group="h")])
        for query in (ALL, Query(text="it did not work")):
            told, untold = sorted(await store.letters.groups(query), key=lambda group: group.id)
            assert (told.first_version, told.last_version) == ("1.9.2", "1.10.1")
            assert (untold.first_version, untold.last_version) == ("", "")

    async def test_a_letter_that_dies_again_brings_its_group_the_version_it_died_on(self, store: Store) -> None:
        letter = make_letter(None, make_failure(version="1.0"), group="g")
        await store.letters.record([letter])
        again = make_failure(attempt=2, at=START + HOUR, version="1.1")
        await store.letters.record([replace(letter, failures=(again,), created_at=again.at, updated_at=again.at)])
        [group] = await store.letters.groups(ALL)
        assert (group.first_version, group.last_version) == ("1.0", "1.1")

    async def test_tallies_and_groups_equal_a_recount_after_a_long_history(self, store: Store) -> None:
        rng, reference = random.Random(5), Reference()
        for step in range(80):
            now = START + step * MINUTE
            await _one_thing(rng, store, reference, now)
            assert counted(await store.letters.tallies()) == reference.tallies()
        assert await every_page(store, ALL, oldest_first=True) == reference.selected(ALL)
        for query in QUERIES.values():
            assert members_of(await store.letters.groups(query)) == reference.groups(query), query
            assert await store.letters.count(query) == len(reference.selected(query)), query


async def _one_thing(rng: random.Random, store: Store, reference: Reference, now: datetime) -> None:
    """Do one of the things that happen to letters, in the store and in the reference alike."""
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
            ids = [letter.id for letter in rng.sample(known, min(5, len(known)))]
            move: dict[str, Any] = {"expect": rng.sample(list(State), 3), "to": rng.choice(list(State)), "now": now}
            assert set(await store.letters.move(ids, **move)) == reference.move(ids, **move)
        case _:
            query = Query(groups=(f"group-{rng.randrange(4)}",))
            assert set(await store.letters.prune(query, limit=2)) == reference.prune(query, limit=2)


def _some_deaths(rng: random.Random, known: Sequence[Letter], now: datetime) -> list[Letter]:
    fresh = [replace(letter, created_at=now) for letter in corpus(6, seed=rng.randrange(1 << 30))]
    fresh = [
        make_letter(make_message(source=letter.message.source), *letter.failures, at=now, group=letter.group)
        for letter in fresh
    ]
    again = [
        replace(letter, failures=merge_failures((), [make_failure(attempt=rng.randrange(3), at=now)]), group="group-0")
        for letter in rng.sample(list(known), min(3, len(known)))
    ]
    return fresh + again
