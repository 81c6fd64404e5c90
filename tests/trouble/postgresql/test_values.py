"""What PostgreSQL cannot hold as text is kept all the same, byte by byte, and found again."""

from __future__ import annotations

import pytest

from redrive.forensics.query import Query
from redrive.model import State
from redrive.stores.base import Entry, EntryStatus
from redrive.stores.postgresql import PostgresStore
from redrive.stores.postgresql.codec import clean, keyed, unclean
from redrive.testing.builders import make_failure, make_letter, make_message
from redrive.testing.clock import START

NUL, HALF, ESCAPE = "a\0b", "a\ud800b", "a\x1a0000b"
ODD = [NUL, ESCAPE, "a\uffffb", "x" * 5000, "ж" * 5000, "\x1a" * 400]


@pytest.mark.parametrize("odd", ODD, ids=ascii)
async def test_odd_text_everywhere(store: PostgresStore, odd: str) -> None:
    message = make_message(id=odd, source=odd, tenant=odd, correlation_id=odd, key=odd.encode("utf-8", "replace"))
    failure = make_failure(type=odd, message=odd, code=odd, worker=odd)
    letter = make_letter(message, failure, group=odd, transport=odd, depends_on=(odd,), state=State.EXHAUSTED)
    plain = make_letter()
    await store.letters.record([letter, plain])
    await store.letters.record([letter])
    assert await store.letters.get(letter.id) == letter
    for query in (
        Query(sources=(odd,)),
        Query(tenants=(odd,)),
        Query(groups=(odd,)),
        Query(message_ids=(odd,)),
        Query(transports=(odd,)),
        Query(error_type=odd),
        Query(code=odd),
    ):
        assert (await store.letters.search(query)).letters == (letter,), query
        assert await store.letters.count(query) == 1
        assert sum(group.count for group in await store.letters.groups(query)) == 1
    call = {"to": State.REPLAYING, "owner": odd, "now": START, "until": START, "limit": 5, "replay": odd}
    [taken] = await store.letters.claim(Query(ids=(plain.id,)), **call)  # type: ignore[arg-type]
    assert (taken.owner, taken.replay) == (odd, odd)
    assert await store.letters.count(Query(owner=odd)) == 1
    assert await store.letters.move([plain.id], expect=list(State), to=State.PENDING, now=START, owner=odd)
    assert await store.ledger.freeze(odd, Query(), now=START) == 2
    await store.ledger.mark([Entry(odd, letter.id, EntryStatus.FAILED, START, odd)])
    [entry], _ = await store.ledger.entries(odd, status=EntryStatus.FAILED)
    assert entry.note == odd


async def test_half_a_surrogate_pair_can_be_asked_for(store: PostgresStore) -> None:
    """A letter has none: what builds letters writes them otherwise, for every store."""
    await store.letters.record([make_letter()])
    for query in (
        Query(text=HALF),
        Query(sources=(HALF,)),
        Query(ids=(HALF,)),
        Query(owner=HALF),
        Query(id_prefix=HALF),
    ):
        assert await store.letters.count(query) == 0
    assert await store.letters.get(HALF) is None
    assert await store.documents.get(HALF, HALF) is None


@pytest.mark.parametrize("odd", [NUL, ESCAPE], ids=ascii)
async def test_odd_text_in_documents(store: PostgresStore, odd: str) -> None:
    assert await store.documents.put(odd, odd, {odd: [odd]}, expect=0)
    found = await store.documents.get(odd, odd)
    assert found is not None
    assert found.body == {odd: [odd]}
    assert [document.id for document in await store.documents.list(odd)] == [odd]
    assert await store.documents.delete(odd, odd)


@pytest.mark.parametrize(
    ("body", "needle", "other"),
    [
        ("Größe: 100 %".encode(), "größe: 100 %", "größe: 100_%"),
        (rb"C:\temp\new", "c:\\TEMP\\", "c:/temp"),
        (b"\x00\x01binary NEEDLE\xff\x00", "binary, 17 bytes: 00 01 62", "needle"),  # as it is shown
        (b"caf\xe9 latin", "latin", "é"),
        (b"a\x00b", "61 00 62", "A\0B"),
        ("snow\uffffman".encode(), "w\uffffm", "wm"),
        (b"x " * 4000 + b"END", "x end", "endx"),
        (b"x " * 100_000 + b"END", "x x", "x end"),  # past what is shown
    ],
)
async def test_a_text_is_found_in_what_is_shown_of_any_bytes(
    store: PostgresStore, body: bytes, needle: str, other: str
) -> None:
    letter = make_letter(make_message(body=body))
    await store.letters.record([letter, make_letter(make_message(body=b"nothing of it"))])
    assert (await store.letters.search(Query(text=needle))).letters == (letter,)
    assert await store.letters.count(Query(text=other)) == 0


async def test_a_text_is_not_found_across_two_fields(store: PostgresStore) -> None:
    await store.letters.record([make_letter(make_message(id="one", body=b"four"), make_failure(message="three"))])
    for text in ("three\nfour", "threefour", "three\ufffffour", "one\uffff"):
        assert await store.letters.count(Query(text=text)) == 0


@pytest.mark.parametrize("body", [b"x" * 10_000_000, bytes(range(256)) * 40_000], ids=["text", "binary"])
async def test_ten_megabytes(store: PostgresStore, body: bytes) -> None:
    letter = make_letter(make_message(body=body))
    await store.letters.record([letter])
    got = await store.letters.get(letter.id)
    assert got == letter
    again = make_letter(letter.message, make_failure(attempt=2))
    await store.letters.record([again])
    assert await store.letters.count(Query(text="it did not work")) == 1


@pytest.mark.parametrize("text", [*ODD, HALF, "", "plain", "\x1a#", "\ud800\udc00", "\x1a\0"], ids=ascii)
def test_what_is_cleaned_can_be_told_apart_and_read_back(text: str) -> None:
    assert unclean(clean(text)) == text
    clean(text).encode()
    assert "\0" not in clean(text)
    assert len(keyed(text)) <= 300
    assert (keyed(text) == keyed(text + "!")) is False
