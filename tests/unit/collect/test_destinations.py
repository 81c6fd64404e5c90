"""A record does not choose where its letter goes back to."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from redrive.collect.destinations import Destinations, LettersNotAllowed, allow_kept, confined, named_after
from redrive.collect.foreign import failure_of, letter_of
from redrive.collect.kafka import KafkaReader
from redrive.errors import NOT_ALLOWED
from redrive.forensics.query import Query
from redrive.model import Edit, Letter, Revision, State, letter_id
from redrive.stores.memory import MemoryStore
from redrive.testing.builders import make_message
from redrive.testing.clock import START
from redrive.transports.base import Delivery

HELD = f"{NOT_ALLOWED}default"


def read(destinations: Destinations, said: str = "payments") -> Letter:
    headers = (
        ("kafka_dlt-original-topic", said.encode()),
        ("kafka_dlt-exception-fqcn", b"E" * 5_000),
        ("kafka_dlt-exception-message", b"x" * 1_000_000),
    )
    reader = confined(KafkaReader("orders.DLT", source=destinations.source), destinations)
    message = replace(make_message(id="m"), source="orders.DLT", headers=headers)
    letter = reader(Delivery(message, token=None), START)
    assert letter is not None
    return letter


@pytest.mark.parametrize(
    ("destinations", "goes_to", "transport"),
    [
        (Destinations("orders"), "orders", "default"),
        (Destinations("orders", ("pay*",)), "payments", "default"),
        (Destinations("orders", (), {"payments"}), "orders", "default"),
        (Destinations(None, ("orders",)), "payments", HELD),
        (Destinations(None, ("payments",)), "payments", "default"),
        (Destinations(None, (), {"payments"}), "payments", "default"),
        (Destinations(None, (), (), {"payments"}), "payments", "default"),
        (Destinations(), "payments", HELD),
    ],
)
def test_a_record_names_only_what_is_allowed_or_declared(
    destinations: Destinations, goes_to: str, transport: str
) -> None:
    letter = read(destinations)
    assert (letter.message.source, letter.transport) == (goes_to, transport)
    assert letter.id == letter_id(goes_to, letter.message.id)


def test_what_it_says_of_its_error_is_bounded() -> None:
    assert len(read(Destinations("orders")).last.message) == 4_000
    assert len(read(Destinations("orders")).last.type) == 500


def test_the_names_that_it_says_are_bounded_and_stay_two() -> None:
    names = ["x" * 900_000 + end for end in "ab"]
    for destinations in (Destinations(), Destinations("orders"), Destinations(None, ("x*",))):
        letters = [read(destinations, name) for name in names]
        for letter in letters:
            message = letter.message
            assert max(map(len, (message.source, message.id, message.origin))) <= 500
            assert letter.id == letter_id(message.source, message.id)
        if destinations.source is None:
            assert letters[0].id != letters[1].id
    assert not Destinations(None, (), ("x" * 200,)).take(read(Destinations(), names[0]).message.source)


@pytest.mark.parametrize(
    ("place", "source"),
    [
        ("orders.DLT", "orders"),
        ("q.orders.dlq", "q.orders"),
        ("orders_error", "orders"),
        ("mail.XQ", "mail"),
        ("dlq.prod.1", "prod.1"),
        ("default", "default"),
    ],
)
def test_a_topic_or_queue_says_by_its_name_whose_it_is(place: str, source: str) -> None:
    assert source in named_after(place)


async def test_what_is_kept_takes_the_way_back_of_no_letter_that_is_there() -> None:
    store = MemoryStore()
    forged = read(Destinations())
    message = replace(forged.message, id=read(Destinations("payments")).message.id, body=b"genuine")
    theirs = letter_of(message, failure_of("E", "", START), transport="default", now=START)
    await store.letters.record([theirs])
    await store.letters.record([forged])
    assert await store.letters.get(theirs.id) == theirs
    assert await store.letters.count(Query()) == 2


async def test_what_is_kept_is_allowed_afterwards_and_what_is_not_meant_stays() -> None:
    store = MemoryStore()
    kept, other, archived = (read(Destinations(), said) for said in ("payments", "ledger", "payments.old"))
    pipeline = replace(read(Destinations(), "payments.new"), transport=f"{NOT_ALLOWED}pipeline")
    await store.letters.record([kept, other, archived, pipeline])
    await store.letters.move([archived.id], expect=[State.PENDING], to=State.ARCHIVED, now=START)
    edit = Edit(by="ada", at=START, why="a typo")
    await store.versions.edit([Revision(kept.id, 0, b"mended", kept.message.headers, edit)])
    allowed = Destinations(None, ("payments*",))
    assert await allow_kept(store, allowed, {"default"}, START) == 1
    assert await allow_kept(store, allowed, {"default"}, START) == 0
    [letter] = (await store.letters.search(Query(transports=("default",)))).letters
    assert (letter.id, letter.message.source) == (letter_id("payments", "m"), "payments")
    assert (letter.message.body, letter.version, letter.edit) == (b"mended", 1, edit)
    first = await store.versions.get(letter.id, 0)
    assert first is not None
    assert first.body == kept.message.body
    left = {letter.id for letter in (await store.letters.search(Query())).letters} - {letter.id}
    assert left == {other.id, archived.id, pipeline.id}


async def test_the_sources_that_strangers_make_up_are_counted_up_to_a_bound() -> None:
    held = LettersNotAllowed()
    await held.note([read(Destinations(), f"made-up-{number}") for number in range(300)])
    await held.note([read(Destinations(), "made-up-7"), read(Destinations("orders"))])
    assert len(held.counts) == 101
    assert sum(held.counts.values()) == 301
    assert (held.counts["(others)"], held.counts["made-up-7"]) == (200, 2)
