"""What a store writes down about a replay."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from redrive.forensics.query import Query
from redrive.model import State
from redrive.stores.base import REPLAYABLE, Entry, EntryStatus, Store
from redrive.testing.builders import make_letter, make_message
from redrive.testing.clock import START
from redrive.testing.reference import Reference
from redrive.testing.stores.backend import ALL, HOUR, LATER, MINUTE
from redrive.testing.stores.examples import corpus
from redrive.testing.stores.queries import QUERIES


class Ledger:
    """A selection is frozen once; an outcome is never overwritten by less."""

    async def test_a_selection_is_frozen_once(self, store: Store) -> None:
        letters = [make_letter(state=state, at=START - n * MINUTE) for n, state in enumerate((*State, State.PENDING))]
        await store.letters.record(letters)
        allowed = [letter for letter in letters if letter.state in REPLAYABLE]
        assert await store.ledger.freeze("r", ALL, now=LATER) == 4
        await store.letters.record([make_letter() for _ in range(3)])
        assert await store.ledger.freeze("r", ALL, now=LATER + HOUR) == 4
        entries, _ = await store.ledger.entries("r")
        oldest_first = [letter.id for letter in sorted(allowed, key=lambda letter: letter.created_at)]
        assert list(entries) == [Entry("r", id, EntryStatus.SELECTED, LATER) for id in oldest_first]
        assert await store.ledger.freeze("another", ALL, now=LATER) == 7

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

    async def test_the_lines_of_one_status_are_read_in_pages_of_any_size(self, store: Store) -> None:
        await store.letters.record([make_letter(at=START + n * MINUTE) for n in range(9)])
        await store.ledger.freeze("r", ALL, now=LATER)
        lines, _ = await store.ledger.entries("r")
        failed = [replace(line, status=EntryStatus.FAILED, note=f"line {n}") for n, line in enumerate(lines) if n % 2]
        await store.ledger.mark(failed)
        for size in (1, 2, 3):
            first, after = await store.ledger.entries("r", status=EntryStatus.FAILED, limit=size)
            assert after is not None
            rest, _ = await store.ledger.entries("r", status=EntryStatus.FAILED, after=after, limit=100)
            assert [*first, *rest] == failed

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

    async def test_the_replays_of_a_letter_are_found(self, store: Store) -> None:
        first, second = recorded = [make_letter(make_message()) for _ in range(2)]
        await store.letters.record(recorded)
        await store.ledger.freeze("both", Query(ids=(first.id, second.id)), now=START)
        await store.ledger.freeze("one", Query(ids=(first.id,)), now=START)
        await store.ledger.mark([Entry("one", first.id, EntryStatus.SKIPPED, LATER, "it was gone")])
        found = await store.ledger.of_letter(first.id, ["one", "never", "both"])
        told = [(entry.replay, entry.letter, entry.status, entry.note) for entry in found]
        assert told == [
            ("one", first.id, EntryStatus.SKIPPED, "it was gone"),
            ("both", first.id, EntryStatus.SELECTED, ""),
        ]
        assert [entry.replay for entry in await store.ledger.of_letter(second.id, ["one", "both"])] == ["both"]
        assert not await store.ledger.of_letter(first.id, [])

    async def test_the_ledger_outlives_its_letters(self, store: Store) -> None:
        await store.letters.record([make_letter()])
        await store.ledger.freeze("r", ALL, now=START)
        await store.letters.prune(ALL, limit=1)
        assert await store.ledger.tally("r") == {EntryStatus.SELECTED: 1}
