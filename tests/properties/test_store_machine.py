"""Whatever happens to letters, in whatever order: every store answers as the reference does.

HYPOTHESIS_PROFILE=thorough looks longer.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Awaitable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec.structs import replace

from redrive.forensics.query import Query
from redrive.model import Category, Letter, Reason, State
from redrive.stores.base import MAY_BECOME, Entry, EntryStatus, Store
from redrive.stores.memory import MemoryStore
from redrive.stores.sqlite import SqliteStore
from redrive.telemetry.events import Events
from redrive.testing.builders import make_failure, make_letter, make_message
from redrive.testing.clock import ManualClock
from redrive.testing.reference import IN_FLIGHT, Reference, counted, members_of
from redrive.upkeep.rescue import rescue_claims

T = TypeVar("T")
THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
SHORT = settings(
    max_examples=400 if THOROUGH else 25,
    stateful_step_count=60 if THOROUGH else 30,
    deadline=None,
    derandomize=not THOROUGH,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
IDS = [f"m-{n}" for n in range(8)]
OWNERS, REPLAYS, GROUPS = ["ann", "bob"], ["r-1", "r-2"], ["g-1", "g-2", "g-3"]
LEASE = timedelta(minutes=5)

sources = st.sampled_from(["orders", "mails"])
states = st.sampled_from(list(State))
some_ids = st.lists(st.sampled_from(IDS), max_size=4).map(tuple)
seconds = st.integers(0, 600)


@st.composite
def deaths(draw: st.DrawFn) -> Letter:
    """A message that died: any of few, so that they meet again."""
    message = make_message(id=draw(st.sampled_from(IDS)), source=draw(sources), priority=draw(st.integers(-1, 1)))
    failure = make_failure(attempt=draw(st.integers(1, 4)), category=draw(st.sampled_from(list(Category)[:3])))
    return make_letter(
        message,
        failure,
        state=draw(st.sampled_from([State.PENDING, State.EXHAUSTED])),
        group=draw(st.sampled_from(GROUPS)),
        reason=draw(st.sampled_from(list(Reason))),
        depends_on=draw(some_ids)[:1],
        retries=draw(st.integers(0, 3)),
    )


@st.composite
def queries(draw: st.DrawFn) -> Query:
    """Mostly wide: a narrow one selects nothing, and nothing is dull."""

    def maybe(values: st.SearchStrategy[Any]) -> Any:
        return draw(st.one_of(st.none(), st.none(), st.none(), values))

    return Query(
        message_ids=maybe(some_ids),
        states=maybe(st.lists(states, max_size=3).map(tuple)),
        sources=maybe(st.lists(sources, max_size=2).map(tuple)),
        groups=maybe(st.lists(st.sampled_from(GROUPS), max_size=2).map(tuple)),
        owner=maybe(st.sampled_from(OWNERS)),
    )


class LetterMachine(RuleBasedStateMachine):
    """Does everything to a store and to the reference alike."""

    @initialize()
    def begin(self) -> None:
        self.directory = Path(tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
        self.runner = asyncio.Runner()
        self.clock = ManualClock()
        self.reference = Reference()
        self.ledger: dict[str, dict[str, Entry]] = {}
        self.store = self.open()

    def open(self) -> Store:
        raise NotImplementedError

    def teardown(self) -> None:
        self.run(self.store.aclose())
        self.runner.close()
        shutil.rmtree(self.directory)

    def run(self, work: Awaitable[T]) -> T:
        async def awaited() -> T:
            return await work

        return self.runner.run(awaited())

    # -- what happens ----------------------------------------------------------------------------------------------

    @rule(letters=st.lists(deaths(), min_size=1, max_size=5), due=st.one_of(st.none(), seconds))
    def record(self, letters: list[Letter], due: int | None) -> None:
        now = self.clock.now()
        at = None if due is None else now + timedelta(seconds=due)
        fresh = [
            replace(
                one,
                created_at=now,
                updated_at=now,
                next_retry_at=at,
                failures=tuple(replace(failure, at=now) for failure in one.failures),
            )
            for one in letters
        ]
        self.reference.record(fresh)
        self.run(self.store.letters.record(fresh))

    @rule()
    def record_again_what_is_known(self) -> None:
        known = list(self.reference.letters.values())
        before = dict(self.reference.letters)
        self.reference.record(known)
        self.run(self.store.letters.record(known))
        assert self.reference.letters == before

    @rule(
        query=queries(),
        to=st.sampled_from(list(MAY_BECOME)),
        owner=st.sampled_from(OWNERS),
        limit=st.integers(1, 5),
        only_due=st.booleans(),
    )
    def claim(self, query: Query, to: State, owner: str, limit: int, only_due: bool) -> None:
        now = self.clock.now()
        if only_due:
            query = replace(query, due=now)
        before = dict(self.reference.letters)
        replay = "r-1" if to is State.REPLAYING else None
        call: dict[str, Any] = {"to": to, "owner": owner, "now": now, "until": now + LEASE, "limit": limit}
        taken = self.run(self.store.letters.claim(query, replay=replay, **call))
        for letter in taken:
            held = before[letter.id]
            free = held.owner in (None, owner) or (held.lease_until is not None and held.lease_until < now)
            assert free, f"{letter.id} was taken from {held.owner}"
        assert list(taken) == self.reference.claim(query, replay=replay, **call)

    @rule(
        names=some_ids,
        expect=st.lists(states, min_size=1, max_size=4),
        to=states.filter(lambda state: state not in IN_FLIGHT),  # there it comes by a claim only
        owner=st.one_of(st.none(), st.sampled_from(OWNERS)),
    )
    def move(self, names: tuple[str, ...], expect: list[State], to: State, owner: str | None) -> None:
        ids = [one.id for one in self.reference.letters.values() if one.message.id in names]
        call: dict[str, Any] = {"expect": expect, "to": to, "now": self.clock.now(), "owner": owner}
        assert set(self.run(self.store.letters.move(ids, **call))) == self.reference.move(ids, **call)

    @rule(owner=st.sampled_from(OWNERS), state=st.sampled_from(IN_FLIGHT), to=st.sampled_from([*IN_FLIGHT, "undo"]))
    def confirm_or_undo(self, owner: str, state: State, to: str) -> None:
        """What a processor does with what it claimed."""
        ids = [one.id for one in self.reference.letters.values() if one.owner == owner]
        end = State.PENDING if to == "undo" else state
        call: dict[str, Any] = {"expect": [state], "to": end, "now": self.clock.now(), "owner": owner}
        assert set(self.run(self.store.letters.move(ids, **call))) == self.reference.move(ids, **call)

    @rule()
    def rescue(self) -> None:
        now = self.clock.now()
        lapsed = self.reference.selected(Query(states=(State.RETRYING,), lapsed=now))
        rescued = self.run(rescue_claims(self.store, Events(), self.clock))
        assert rescued == len(lapsed)
        self.reference.move([one.id for one in lapsed], expect=[State.RETRYING], to=State.PENDING, now=now)

    @rule(query=queries(), limit=st.integers(1, 4))
    def prune(self, query: Query, limit: int) -> None:
        flying = {one.id for one in self.reference.letters.values() if one.state in IN_FLIGHT}
        gone = set(self.run(self.store.letters.prune(query, limit=limit)))
        assert not gone & flying
        assert gone == self.reference.prune(query, limit=limit)

    @rule(span=seconds)
    def time_passes(self, span: int) -> None:
        self.run(self.clock.advance(span))

    @rule(span=seconds)
    def the_clock_is_set_back(self, span: int) -> None:
        self.clock.set_back(span)

    @rule(replay=st.sampled_from(REPLAYS), query=queries())
    def freeze(self, replay: str, query: Query) -> None:
        now = self.clock.now()
        number = self.run(self.store.ledger.freeze(replay, query, now=now))
        if replay not in self.ledger:
            ids = self.reference.freezable(query)
            self.ledger[replay] = {id: Entry(replay, id, EntryStatus.SELECTED, now) for id in ids}
        assert number == len(self.ledger[replay])

    @rule(replay=st.sampled_from(REPLAYS), status=st.sampled_from(list(EntryStatus)), number=st.integers(0, 7))
    def mark(self, replay: str, status: EntryStatus, number: int) -> None:
        lines = self.ledger.get(replay, {})
        marked = [Entry(replay, id, status, self.clock.now(), "noted") for id in list(lines)[number:][:3]]
        self.run(self.store.ledger.mark(marked))
        for entry in marked:
            if status in (EntryStatus.RESOLVED, EntryStatus.FAILED) or lines[entry.letter].status == "selected":
                lines[entry.letter] = entry

    # -- what always holds -----------------------------------------------------------------------------------------

    @invariant()
    def letters_are_as_the_reference_says(self) -> None:
        page = self.run(self.store.letters.search(Query(), limit=100, oldest_first=True))
        assert list(page.letters) == self.reference.selected(Query())

    @invariant()
    def counters_equal_a_recount(self) -> None:
        assert counted(self.run(self.store.letters.tallies())) == self.reference.tallies()
        assert members_of(self.run(self.store.letters.groups(Query()))) == self.reference.groups(Query())

    @invariant()
    def an_owner_has_a_lease_and_is_on_the_way(self) -> None:
        for letter in self.reference.letters.values():
            assert (letter.owner is None) == (letter.lease_until is None)
            assert letter.owner is None or letter.state in IN_FLIGHT

    @invariant()
    def counters_of_resends_are_never_negative(self) -> None:
        for letter in self.reference.letters.values():
            assert letter.resends >= 0

    @invariant()
    def ledgers_are_as_they_were_frozen_and_marked(self) -> None:
        for replay, lines in self.ledger.items():
            entries, _ = self.run(self.store.ledger.entries(replay))
            assert list(entries) == list(lines.values())


class MemoryMachine(LetterMachine):
    def open(self) -> Store:
        return MemoryStore()


class SqliteMachine(LetterMachine):
    def open(self) -> Store:
        return SqliteStore(f"sqlite:///{self.directory / 'letters.db'}")


TestMemory = MemoryMachine.TestCase
TestMemory.settings = SHORT
TestSqlite = SqliteMachine.TestCase
TestSqlite.settings = SHORT
