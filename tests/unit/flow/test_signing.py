"""A producer that knows a letter's id, its source and its message's id can still not speak for it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from msgspec.structs import replace

from redrive.flow.lineage import LETTER, lineage, sent_back
from redrive.flow.signing import load_keys, rotate
from redrive.model import Headers, with_headers
from redrive.proof import Process, forget, ring
from redrive.stores.memory import MemoryStore
from redrive.testing.builders import make_letter
from redrive.testing.clock import START
from redrive.transports.kafka.dlq import letter_in, record_of
from redrive.transports.kafka.writer import Parcel

DAY = timedelta(days=1)


@pytest.fixture(autouse=True)
def apart() -> Iterator[None]:
    forget()
    yield
    forget()


async def test_a_forged_lineage_is_just_a_header() -> None:
    await load_keys(MemoryStore(), START)
    letter = make_letter(retries=1)
    genuine = sent_back(letter, now=START, replay="r1")
    origin = lineage(genuine)
    assert origin is not None
    assert (origin.letter, origin.retries, origin.replay) == (letter.id, 1, "r1")
    for forged in (
        with_headers(genuine.headers, redrive_letter=letter.id.encode()),
        with_headers(genuine.headers, redrive_letter=f"{letter.id}.0.{'A' * 32}".encode()),
        with_headers(genuine.headers, redrive_replay=b"r2"),
        with_headers(genuine.headers, redrive_retries=b"0"),
        with_headers(genuine.headers, redrive_by_hand=b"1"),
    ):
        assert lineage(replace(genuine, headers=forged)) is None
    assert lineage(replace(genuine, id="another")) is None
    assert lineage(replace(genuine, source="another")) is None


async def test_what_was_on_its_way_before_the_upgrade_is_believed_for_a_week() -> None:
    store, letter = MemoryStore(), make_letter()
    old = sent_back(letter, now=START)
    assert old.header(LETTER) == letter.id.encode()
    await store.letters.record([letter])
    await load_keys(store, START)
    assert lineage(old) is not None
    Process.read.clear()
    await load_keys(store, START + 8 * DAY)
    assert lineage(old) is None


async def test_every_process_has_the_key_of_the_store_and_old_keys_are_accepted_until_they_are_dropped() -> None:
    store, letter = MemoryStore(), make_letter()
    await load_keys(store, START)
    first, sent = ring().signs, sent_back(letter, now=START)
    forget()  # another process
    await load_keys(store, START)
    assert ring().signs == first
    assert await rotate(store, START + DAY) == 2
    forget()
    await load_keys(store, START + DAY)
    assert ring().signs == first, "others may not know the new one yet"
    forget()
    await load_keys(store, START + 2 * DAY)
    assert ring().signs != first
    assert lineage(sent) is not None
    assert await rotate(store, START + 2 * DAY, drop_old=True) == 1
    forget()
    await load_keys(store, START + 2 * DAY)
    assert lineage(sent) is None


async def test_a_key_that_is_dropped_while_a_process_runs_is_believed_by_it_no_more() -> None:
    store, other, letter = MemoryStore(), MemoryStore(), make_letter()
    await load_keys(other, START)
    of_other = sent_back(letter, now=START)
    await load_keys(store, START)
    sent = sent_back(letter, now=START)
    await rotate(store, START)
    assert await rotate(store, START, drop_old=True) == 1
    assert lineage(sent) is not None, "until it reads the keys again"
    Process.read.clear()  # a minute is over
    await load_keys(store, START + DAY)
    assert lineage(sent) is None
    assert lineage(of_other) is not None, "another store of this process has its own"


async def test_a_crafted_dead_record_is_nobodys_letter() -> None:
    letter = make_letter()
    forged = record_of(letter, "orders.dlq")
    await load_keys(MemoryStore(), START)
    genuine = record_of(letter, "orders.dlq")
    found = letter_in(_headers(genuine), letter.message)
    assert found is not None
    assert found.id == letter.id
    assert not [name for name, _ in found.message.headers if name.startswith("redrive-dlq-")]
    assert letter_in(_headers(forged), letter.message) is None


def _headers(parcel: Parcel) -> Headers:
    return tuple((name, value or b"") for name, value in parcel.headers)
