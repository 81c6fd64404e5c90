"""What a store finds, page by page."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from redrive.errors import BadQuery
from redrive.forensics.query import Query
from redrive.forensics.redact import Redactor
from redrive.forensics.scope import Scope
from redrive.forensics.searchable import Searchable
from redrive.model import Edit, Revision, State
from redrive.stores.base import SearchesTexts, Store
from redrive.testing.builders import make_failure, make_letter, make_message
from redrive.testing.clock import START
from redrive.testing.reference import Reference, counted, members_of
from redrive.testing.stores.backend import ALL, MINUTE, StoreBackend, every_page
from redrive.testing.stores.examples import corpus
from redrive.testing.stores.queries import QUERIES, SCOPES


class Searching:
    """Every filter selects what the reference says; pages lose and repeat nothing."""

    async def test_every_query_selects_what_the_reference_says(self, store: Store) -> None:
        reference = Reference()
        reference.record(corpus(90))
        await store.letters.record(corpus(90))
        for name, query in QUERIES.items():
            expected = reference.selected(query)
            assert await every_page(store, query, oldest_first=True) == expected, name
            assert await every_page(store, query, oldest_first=False, limit=7) == expected[::-1], name
            assert await store.letters.count(query) == len(expected), name
            assert counted(await store.letters.tallies(query)) == reference.tallies(query), name
            groups = await store.letters.groups(query)
            assert members_of(groups) == reference.groups(query), name
            assert [group.count for group in groups] == sorted((group.count for group in groups), reverse=True), name

    async def test_what_is_masked_is_not_found(self, store: Store) -> None:
        letter = make_letter(
            make_message(
                id="order-7",
                body=b'{"Customer": "Zoe", "password": "hunter2-Qx9"}',
                key=b"api_key=QWxhZGRpbjpv",
                correlation_id="token=zYxWvU98",
            ),
            make_failure(type="shop.LoginError", message="refused: Authorization: Bearer Kj8sPq2w and more"),
        )
        await store.letters.record([letter])
        for seen in ("customer", "ZOE", "order-7", "loginerror", "refused", "redacted", letter.id[3:9]):
            assert await _found(store, seen) == [letter.id], seen
        for secret in ("hunter2-Qx9", "QWxhZGRpbjpv", "zYxWvU98", "Kj8sPq2w"):
            for text in _parts(secret):
                assert await _found(store, text) == [], text

    async def test_a_secret_is_not_guessed_letter_by_letter(self, store: Store) -> None:
        """The attack that recovered 15 characters in 421 requests: whatever is asked, every guess is answered alike."""
        secret, alphabet = "k3x-0wq", "0123456789abcdefghijklmnopqrstuvwxyz-"
        body = f'{{"user":"ada","password":"{secret}"}}'.encode()
        await store.letters.record([make_letter(make_message(body=body), make_failure(message=f"password={secret}"))])
        assert await _told(store, '"user":"ada"') != await _told(store, "nobody has this")
        for known in ('"password":"', "password=", secret[:3]):
            answers = {guess: await _told(store, known + guess) for guess in alphabet}
            assert len(set(answers.values())) == 1, f"{known!r} tells what follows: {answers}"

    async def test_an_edited_letter_is_found_by_what_it_says_now(self, store: Store) -> None:
        letter = make_letter(make_message(body=b"Lisbon"))
        await store.letters.record([letter])
        assert await _found(store, "lisbon") == [letter.id]
        edit = Edit(by="ada", at=START + MINUTE)
        await store.versions.edit([Revision(letter.id, 0, b"Porto, password=geheim", (), edit)])
        assert await _found(store, "porto") == [letter.id]
        assert await _found(store, "lisbon") == await _found(store, "geheim") == []
        await store.letters.move([letter.id], expect=tuple(State), to=State.ARCHIVED, now=START)
        await store.letters.prune(ALL, limit=1)
        assert await _found(store, "porto") == []

    async def test_rules_of_your_own_hide_what_could_be_found_before(self, store: Store) -> None:
        letter = make_letter(make_message(body=b'{"iban_note": "zeppelin", "city": "Porto"}'))
        await store.letters.record([letter])
        assert await _found(store, "zeppelin") == [letter.id]
        assert isinstance(store, SearchesTexts)
        store.search_as(Searchable(Redactor(keys=("iban_note",)), "of our own"))
        assert await _found(store, "zeppelin") == []
        assert await _found(store, "porto") == [letter.id]

    async def test_nothing_is_done_with_what_is_out_of_scope(self, store: Store) -> None:
        for number, (name, scope) in enumerate(SCOPES.items()):
            reference = Reference()
            letters = [replace(letter, depends_on=()) for letter in corpus(30, seed=number)]
            reference.record(letters)
            await store.letters.record(letters)
            query = Query(scope=scope)
            assert await store.ledger.freeze(name, query, now=START) == len(reference.freezable(query)), name
            claim: Any = {"to": State.REPLAYING, "owner": "me", "now": START, "until": START + MINUTE, "limit": 3}
            assert list(await store.letters.claim(query, **claim)) == reference.claim(query, **claim), name
            assert set(await store.letters.prune(query, limit=99)) == reference.prune(query, limit=99), name
            ids = [letter.id for letter in letters]
            await store.letters.move(ids, expect=tuple(State), to=State.ARCHIVED, now=START)
            await store.letters.prune(ALL, limit=99)

    async def test_a_new_source_or_tenant_is_in_scope_at_the_very_next_question(
        self, store: Store, backend: StoreBackend
    ) -> None:
        other = await backend.open() if store.features.shared else store
        scopes = Query(scope=Scope(sources=("mail.*",))), Query(scope=Scope(tenants=("eu-*",)))
        sources, tenants = set[str](), set[str | None]()
        for number in range(6):
            assert [await store.letters.count(scope) for scope in scopes] == [number, number]
            message = make_message(source=f"mail.{number}", tenant=f"eu-{number}")
            beyond = make_message(source=f"shop.{number}", tenant=f"us-{number}")
            await (other, store)[number % 2].letters.record([make_letter(message), make_letter(beyond)])
            sources.add(message.source)
            tenants.add(message.tenant)
            by_source, by_tenant = [(await store.letters.search(scope)).letters for scope in scopes]
            assert {letter.message.source for letter in by_source} == sources
            assert {letter.message.tenant for letter in by_tenant} == tenants
        if other is not store:
            await other.aclose()

    async def test_a_group_tells_nothing_of_letters_that_are_out_of_scope(self, store: Store) -> None:
        ours, theirs = [
            make_letter(
                make_message(source=source, tenant=source),
                make_failure(message=f"of {source}", at=START + at * MINUTE, version=source),
                at=START + at * MINUTE,
                group="g",
            )
            for source, at in (("ours", 2), ("theirs", 1))
        ]
        last = make_failure(message="of theirs", at=START + 3 * MINUTE, version="theirs")
        later = make_letter(make_message(source="theirs", tenant="theirs"), last, at=START + 3 * MINUTE, group="g")
        await store.letters.record([theirs, ours, later])
        for scope in (Scope(sources=("our*",)), Scope(tenants=("ours",))):
            [group] = await store.letters.groups(Query(scope=scope))
            assert (group.count, group.sources, group.message) == (1, ("ours",), "of ours")
            assert (group.first_at, group.last_at) == (START + 2 * MINUTE, START + 2 * MINUTE)
            assert (group.first_version, group.last_version) == ("ours", "ours")

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
        known = [letter.id for letter in sorted(stays, key=lambda letter: letter.created_at)]
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


async def _found(store: Store, text: str) -> list[str]:
    """The letters with a text, which a search, a count and the groups agree on."""
    query = Query(text=text)
    ids = [letter.id for letter in (await store.letters.search(query)).letters]
    assert await store.letters.count(query) == len(ids)
    assert sum(group.count for group in await store.letters.groups(query)) == len(ids)
    return ids


def _parts(secret: str) -> list[str]:
    """Every part of a secret by which it could be guessed."""
    return [secret[:end] for end in range(4, len(secret) + 1)] + [secret[start:] for start in range(len(secret) - 3)]


async def _told(store: Store, text: str) -> tuple[object, ...]:
    """All that a store tells of the letters with a text."""
    query = Query(text=text)
    page = await store.letters.search(query, oldest_first=True)
    frozen = await store.ledger.freeze(f"guess {text}", query, now=START)
    groups = tuple((group.id, group.count) for group in await store.letters.groups(query))
    tallies = sum(tally.count for tally in await store.letters.tallies(query))
    return len(page.letters), page.after, await store.letters.count(query), frozen, groups, tallies
