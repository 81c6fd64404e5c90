"""Messages of letters that are edited, and what they were before."""

from __future__ import annotations

import asyncio
from datetime import datetime

from msgspec.structs import replace

from redrive.forensics.query import Query
from redrive.model import ANOTHER, EDITABLE, Edit, Headers, Letter, Revision, State, letter_id, version_of
from redrive.stores.base import Store
from redrive.testing.builders import make_failure, make_letter, make_message
from redrive.testing.clock import START
from redrive.testing.stores.backend import ALL, HOUR, LATER, claim
from redrive.testing.stores.examples import EVERY_BYTE

_LARGE = 9 << 20  # more than stands in one document of MongoDB, and what a small OpenSearch still takes


def revision(
    letter: Letter,
    body: bytes,
    *,
    headers: Headers = (("h", EVERY_BYTE), ("h", b"2")),
    expect: int | None = None,
    by: str = "ada",
    at: datetime = LATER,
) -> Revision:
    edit = Edit(by=by, at=at, why="naïve – 🧨", repair="r-1", restores=None)
    return Revision(letter.id, letter.version if expect is None else expect, body, headers, edit)


async def _got(store: Store, letter: Letter) -> Letter:
    got = await store.letters.get(letter.id)
    assert got is not None
    return got


class Versions:
    """An edit is made only to what was read, and every version stays as long as its letter."""

    async def test_an_edit_changes_body_and_headers_and_nothing_else(self, store: Store) -> None:
        message = make_message(body=b'{"total": 12}', headers=(("a", b"1"), ("a", b"\xff")))
        letter = make_letter(message, next_retry_at=START, retries=2, resends=1, depends_on=("m-0",))
        await store.letters.record([letter])
        change = revision(letter, EVERY_BYTE)
        assert await store.versions.edit([change]) == [letter.id]
        new = replace(letter.message, body=EVERY_BYTE, headers=change.headers)
        expected = replace(letter, message=new, version=1, edit=change.edit, updated_at=LATER)
        assert await store.letters.get(letter.id) == expected
        assert [found.id for found in (await store.letters.search(ALL)).letters] == [letter.id]
        assert await store.letters.count(Query(text="total")) == 0, "what is searched is the newest"

    async def test_every_version_is_kept_byte_for_byte_and_the_first_for_ever(self, store: Store) -> None:
        first = make_letter(make_message(body=b"", headers=(("a", b""),)))
        await store.letters.record([first])
        letters = [first]
        for body in (EVERY_BYTE, b"second", b""):
            assert await store.versions.edit([revision(letters[-1], body, by=f"by-{len(letters)}")])
            letters.append(await _got(store, first))
        kept = [version_of(letter) for letter in letters[:-1]]
        assert await store.versions.list(first.id) == [replace(version, body=b"") for version in kept]
        for version in kept:
            assert await store.versions.get(first.id, version.number) == version
        assert await store.versions.get(first.id, 3) is None, "the newest is in the letter"
        assert await store.versions.get("nobody", 0) is None
        assert await store.versions.list("nobody") == []

    async def test_a_large_body_is_kept_whole(self, store: Store) -> None:
        letter = make_letter(make_message(body=EVERY_BYTE * (_LARGE // 256)))
        await store.letters.record([letter])
        assert await store.versions.edit([revision(letter, b"small")]) == [letter.id]
        large = letter.message.body[::-1]
        assert await store.versions.edit([revision(await _got(store, letter), large)]) == [letter.id]
        assert (await _got(store, letter)).message.body == large
        assert [version.size for version in await store.versions.list(letter.id)] == [_LARGE, 5]
        assert await store.versions.get(letter.id, 0) == version_of(letter)

    async def test_of_many_who_edit_one_version_one_wins(self, store: Store) -> None:
        letter = make_letter()
        await store.letters.record([letter])
        edits = [store.versions.edit([revision(letter, b"%d" % n, by=str(n))]) for n in range(8)]
        won = await asyncio.gather(*edits)
        assert sorted(map(len, won)) == [0] * 7 + [1]
        got = await _got(store, letter)
        assert got.edit is not None
        assert (got.version, got.message.body) == (1, got.edit.by.encode())
        assert await store.versions.get(letter.id, 0) == version_of(letter)

    async def test_only_the_expected_version_of_a_letter_at_rest_is_edited(self, store: Store) -> None:
        letters = [make_letter(state=state) for state in State]
        await store.letters.record(letters)
        assert await store.versions.edit([revision(letter, b"no", expect=1) for letter in letters]) == []
        missing = replace(revision(letters[0], b"no"), letter="nobody")
        won = await store.versions.edit([*(revision(letter, b"yes") for letter in letters), missing])
        assert sorted(won) == sorted(letter.id for letter in letters if letter.state in EDITABLE)
        for letter in letters:
            body = b"yes" if letter.state in EDITABLE else letter.message.body
            assert (await _got(store, letter)).message.body == body
        assert await store.versions.edit([]) == []

    async def test_what_is_edited_can_be_claimed_and_undone_as_before(self, store: Store) -> None:
        letter = make_letter(next_retry_at=START)
        await store.letters.record([letter])
        await store.versions.edit([revision(letter, b"new")])
        before = await _got(store, letter)
        [taken] = await claim(store, ALL, to=State.REPLAYING, owner="me")
        assert (taken.message.body, taken.version) == (b"new", 1)
        assert await store.versions.edit([revision(taken, b"on its way")]) == []
        await store.letters.move([letter.id], expect=[State.REPLAYING], to=State.PENDING, owner="me", now=LATER)
        assert await _got(store, letter) == before

    async def test_an_edited_letter_that_dies_again_keeps_its_newest_version(self, store: Store) -> None:
        letter = make_letter(make_message(id="m"))
        await store.letters.record([letter])
        await store.versions.edit([revision(letter, b"edited")])
        edited = await _got(store, letter)
        again = make_failure(attempt=1, at=LATER + HOUR, edition=0)
        old_one = make_letter(make_message(id="m", body=letter.message.body), again, at=LATER + HOUR)
        await store.letters.record([old_one])
        got = await _got(store, letter)
        assert (got.message.body, got.message.headers) == (b"edited", edited.message.headers)
        assert (got.version, got.edit) == (1, edited.edit)
        assert [failure.edition for failure in got.failures] == [None, 0]

    async def test_another_message_under_the_id_of_an_edited_letter_is_its_next_version(self, store: Store) -> None:
        letter = make_letter(make_message(id="m"))
        await store.letters.record([letter])
        await store.versions.edit([revision(letter, b"edited")])
        edited = await _got(store, letter)
        at = LATER + HOUR
        await store.letters.record([make_letter(make_message(id="m", body=b"new"), make_failure(at=at), at=at)])
        got = await _got(store, letter)
        assert (got.message.body, got.version, got.edit) == (b"new", 2, Edit(by="", at=at, why=ANOTHER))
        assert await store.versions.get(letter.id, 0) == version_of(letter)
        assert await store.versions.get(letter.id, 1) == version_of(edited)

    async def test_two_messages_under_one_id_keep_both_bodies(self, store: Store) -> None:
        letter = make_letter(make_message(id="m", body=b"first"))
        await store.letters.record([letter])
        at = LATER + HOUR
        other = make_letter(make_message(id="m", body=b"second"), make_failure(at=at), at=at)
        for _ in range(2):  # the same failure again changes nothing
            await store.letters.record([other])
        got = await _got(store, letter)
        assert (got.message.body, got.version, len(got.failures)) == (b"second", 1, 2)
        assert got.edit == Edit(by="", at=at, why=ANOTHER)
        assert await store.versions.get(letter.id, 0) == version_of(letter)

    async def test_a_message_of_another_tenant_under_an_id_is_a_letter_of_its_own(self, store: Store) -> None:
        letter = make_letter(make_message(id="m", body=b"of acme", tenant="acme"))
        await store.letters.record([letter])
        at = LATER + HOUR
        made = [
            make_letter(make_message(id="m", body=b"of umbra", tenant="umbra"), make_failure(at=at + n * HOUR), at=at)
            for n in range(2)
        ]
        for others in ([made[0]], [made[0]], [made[1]]):  # the same failure again changes nothing
            await store.letters.record(others)
        assert await _got(store, letter) == letter
        assert await store.versions.list(letter.id) == [] or await store.versions.get(letter.id, 1) is None
        (other,) = [each for each in (await store.letters.search(Query(), limit=9)).letters if each.id != letter.id]
        assert (other.message.tenant, other.message.body, len(other.failures)) == ("umbra", b"of umbra", 2)
        assert other.id == letter_id(other.message.source, other.message.id), "so that it finds back to itself"
        assert other.message.id.startswith("m#")

    async def test_what_we_sent_back_is_of_the_tenant_that_it_was_of(self, store: Store) -> None:
        letter = make_letter(make_message(id="m", body=b"first", tenant="acme"))
        await store.letters.record([letter])
        again = make_failure(at=LATER + HOUR, edition=0)
        for number, tenant in enumerate(("umbra", None)):
            failure = replace(again, attempt=number + 2)
            died = make_letter(make_message(id="m", body=b"first", tenant=tenant), failure, at=LATER + HOUR)
            await store.letters.record([died])
        got = await _got(store, letter)
        assert (got.message.tenant, len(got.failures)) == ("acme", 3)

    async def test_the_versions_go_with_their_letter(self, store: Store) -> None:
        letters = [make_letter() for _ in range(3)]
        await store.letters.record(letters)
        await store.versions.edit([revision(letter, b"1") for letter in letters])
        gone, stays = letters[0], letters[1]
        assert await store.letters.prune(Query(ids=(gone.id,)), limit=5) == [gone.id]
        assert await store.versions.list(gone.id) == []
        assert await store.versions.get(gone.id, 0) is None
        assert await store.versions.get(stays.id, 0) == version_of(stays)
        await store.letters.record([gone])
        assert await store.versions.list(gone.id) == []
        assert await store.versions.edit([revision(gone, b"2")]) == [gone.id], "it begins anew"

    async def test_versions_are_kept_as_an_import_brings_them(self, store: Store) -> None:
        letter = make_letter(version=2, edit=Edit(by="ada", at=LATER))
        messages = [make_message(body=b"%d" % number) for number in (0, 1)]
        old = [version_of(replace(letter, version=n, message=message)) for n, message in enumerate(messages)]
        await store.letters.record([letter])
        assert await _got(store, letter) == letter
        await store.versions.keep([*old, replace(old[0], letter="nobody")])
        await store.versions.keep([replace(old[0], body=b"other")])
        assert [await store.versions.get(letter.id, number) for number in (0, 1)] == old
        assert await store.versions.get("nobody", 0) is None

    async def test_an_archived_letter_says_where_it_came_from(self, store: Store) -> None:
        letters = [make_letter(state=state) for state in State if state is not State.ARCHIVED]
        await store.letters.record(letters)
        ids = [letter.id for letter in letters]
        await store.letters.move(ids, expect=list(State), to=State.ARCHIVED, now=LATER)
        await store.letters.move(ids, expect=[State.ARCHIVED], to=State.ARCHIVED, now=LATER)
        for letter in letters:
            flew = letter.state in (State.RETRYING, State.REPLAYING)
            assert (await _got(store, letter)).archived_from == (State.EXHAUSTED if flew else letter.state)
        await store.letters.move(ids, expect=[State.ARCHIVED], to=State.PENDING, now=LATER)
        assert {(await _got(store, letter)).archived_from for letter in letters} == {None}
