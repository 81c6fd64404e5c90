"""The letters of a store keep the promises of a transport, for what is sent back through them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from redrive.clock import Clock
from redrive.flow.lineage import bare, lineage, sent_back
from redrive.forensics.query import Query
from redrive.model import Done, Letter, Message, Reason, Release, Retry, State
from redrive.registry import open_store
from redrive.stores.base import Store
from redrive.stores.memory import MemoryStore
from redrive.testing.builders import make_failure, make_letter, make_message
from redrive.testing.clock import START, ManualClock
from redrive.testing.transports import TransportBackend, TransportSuite
from redrive.transports.base import ACCEPTED, Delivery, SendResult, SendStatus, Settlement, Transport
from redrive.transports.letters import KIND, LettersTransport
from tests.conformance.test_transports import ManualBackend

LEASE = timedelta(seconds=30)
SUITE = "suite"


class Replaying(LettersTransport):
    """Does for a message of the suite what a replay does: its letter is claimed and sent back. What that adds to the
    message is taken off again when it is received."""

    def __init__(self, store: Store, clock: Clock) -> None:
        super().__init__(store, clock=clock, lease=LEASE, interval=timedelta(milliseconds=50), owned=True)
        self.store = store
        self.clock = clock

    async def send(self, messages: Sequence[Message]) -> Sequence[SendResult]:
        return [result for message in messages for result in await self._replay(message)]

    async def _replay(self, message: Message) -> Sequence[SendResult]:
        origin, now = lineage(message), self.clock.now()
        replay = SUITE if origin is None or origin.replay is None else origin.replay
        letter = make_letter(bare(message), make_failure(at=now, worker=self.clock.new_id()), at=now)
        known = await self.store.letters.get(letter.id)
        if known is not None and known.state is State.REPLAYING and replay == SUITE:
            return [ACCEPTED]  # it is on its way, and no other replay gets it
        await self.store.letters.record([letter])
        [claimed] = await self.store.letters.claim(
            Query(ids=(letter.id,)),
            to=State.REPLAYING,
            owner=replay,
            now=now,
            until=now + LEASE,
            limit=1,
            replay=replay,
        )
        back = sent_back(claimed, now=now, replay=replay)
        results = await super().send([replace(back, attempt=message.attempt)])
        await self.store.letters.move(
            [letter.id], expect=[State.REPLAYING], to=State.REPLAYING, owner=replay, now=self.clock.now()
        )
        return results

    async def receive(self, source: str, limit: int) -> Sequence[Delivery]:
        return [_as_sent(delivery) for delivery in await super().receive(source, limit)]


def _as_sent(delivery: Delivery) -> Delivery:
    origin = lineage(delivery.message)
    assert origin is not None
    if origin.replay != SUITE:
        return delivery
    return replace(delivery, message=replace(delivery.token.letter.message, attempt=delivery.message.attempt))


class LettersBackend(ManualBackend):
    def __init__(self, path: Path | None) -> None:
        super().__init__()
        self.path = path
        self.many = super().many if path is None else 100  # letters are written one by one, and time flies meanwhile

    async def open(self) -> Transport:
        store = MemoryStore() if self.path is None else open_store(f"sqlite:///{self.path}")
        return Replaying(store, self.clock)


class TestLettersInMemory(TransportSuite):
    @pytest.fixture
    def backend(self) -> TransportBackend:
        return LettersBackend(None)


class TestLettersInSqlite(TransportSuite):
    @pytest.fixture
    def backend(self, tmp_path: Path) -> TransportBackend:
        return LettersBackend(tmp_path / "letters.db")


# -- what is due -----------------------------------------------------------------------------------------------------


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MemoryStore() if request.param == "memory" else open_store(f"sqlite:///{tmp_path / 'letters.db'}")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def _transport(store: Store, clock: Clock) -> LettersTransport:
    return LettersTransport(store, clock=clock, lease=LEASE)


def _due(**changes: object) -> Letter:
    return make_letter(**{"next_retry_at": START, "max_retries": 3, **changes})  # type: ignore[arg-type]


async def _get(store: Store, letter: Letter) -> Letter:
    found = await store.letters.get(letter.id)
    assert found is not None
    return found


async def test_what_is_due_is_received_with_its_lineage_and_nothing_else_is(store: Store, clock: ManualClock) -> None:
    due, later, never = _due(), _due(next_retry_at=START + LEASE), _due(next_retry_at=None)
    await store.letters.record([due, later, never, _due(message=make_message(source="elsewhere"))])
    transport = _transport(store, clock)
    [delivery] = await transport.receive("orders", 10)
    origin = lineage(delivery.message)
    assert origin is not None
    assert (origin.letter, origin.retries, origin.replay) == (due.id, 1, None)
    assert await transport.take("orders", 10) == []


async def test_done_resolves_and_what_the_core_has_written_stays(store: Store, clock: ManualClock) -> None:
    plain, buried = _due(), _due()
    await store.letters.record([plain, buried])
    transport = _transport(store, clock)
    deliveries = await transport.take("orders", 10)
    await store.letters.record([replace(buried, failures=(make_failure(attempt=2),), state=State.EXHAUSTED)])
    assert await transport.settle([Settlement(one, Done()) for one in deliveries]) == []
    assert [(await _get(store, one)).state for one in (plain, buried)] == [State.RESOLVED, State.EXHAUSTED]


async def test_who_writes_the_outcome_himself_is_not_written_after(store: Store, clock: ManualClock) -> None:
    letter = _due()
    await store.letters.record([letter])
    transport = LettersTransport(store, clock=clock, lease=LEASE, resolves=False)
    [delivery] = await transport.take("orders", 10)
    assert await transport.settle([Settlement(delivery, Done())]) == []
    assert (await _get(store, letter)).state is State.RETRYING


async def test_a_release_leaves_no_trace(store: Store, clock: ManualClock) -> None:
    letter = _due(updated_at=START)
    await store.letters.record([letter])
    transport = _transport(store, clock)
    [delivery] = await transport.take("orders", 10)
    assert await transport.settle([Settlement(delivery, Release())]) == []
    assert await _get(store, letter) == letter


async def test_a_retry_waits_in_its_letter_and_counts_attempts_not_retries(store: Store, clock: ManualClock) -> None:
    letter = _due()
    await store.letters.record([letter])
    transport = _transport(store, clock)
    for attempt in (1, 2):
        [delivery] = await transport.receive("orders", 10)
        assert delivery.message.attempt == attempt
        failure = make_failure(attempt=attempt, message=f"failure {attempt}", at=clock.now(), worker="mine")
        await transport.settle([Settlement(delivery, Retry(LEASE), failure)])
        assert await transport.take("orders", 10) == []
        await clock.advance(LEASE.total_seconds())
    kept = await _get(store, letter)
    assert [one.message for one in kept.failures][1:] == ["failure 1", "failure 2"]
    assert (kept.state, kept.reason, kept.retries, kept.max_retries) == (State.PENDING, Reason.PARKED, 1, 3)


async def test_an_extended_claim_is_kept_and_a_lost_one_is_told(store: Store, clock: ManualClock) -> None:
    kept, lost = _due(), _due()
    await store.letters.record([kept, lost])
    slow, quick = _transport(store, clock), _transport(store, clock)
    held = {one.token.letter.id: one for one in await slow.take("orders", 10)}
    await clock.advance(20)
    assert await slow.extend([held[kept.id]]) == []
    await clock.advance(20)
    [taken] = await quick.receive("orders", 10)
    assert taken.token.letter.id == lost.id
    assert await slow.extend(list(held.values())) == [held[lost.id]]
    for outcome in (Done(), Retry(LEASE), Release()):
        assert await slow.settle([Settlement(held[lost.id], outcome, make_failure())]) == [held[lost.id]]
    assert (await _get(store, lost)).owner == taken.token.owner


async def test_what_a_dead_worker_had_is_rescued_as_it_was(store: Store, clock: ManualClock) -> None:
    due, exhausted = _due(), _due(state=State.EXHAUSTED, next_retry_at=None, resends=2)
    await store.letters.record([due, exhausted])
    dead, alive = _transport(store, clock), _transport(store, clock)
    assert len(await dead.take("orders", 10)) == 1
    assert await dead.take_one(exhausted.id) is not None
    assert await alive.rescue("orders") == {}
    await clock.advance(31)
    assert await alive.rescue("orders") == {State.PENDING: 1, State.EXHAUSTED: 1}
    rescued = await _get(store, due)
    assert (rescued.retries, rescued.resends, rescued.next_retry_at) == (0, 0, START)


async def test_a_claim_whose_answer_got_lost_is_given_back_at_once(store: Store, clock: ManualClock) -> None:
    await store.letters.record([_due()])
    transport = _transport(store, clock)
    transport.forget(await transport.take("orders", 10))
    assert await transport.rescue("orders") == {State.PENDING: 1}
    assert len(await transport.take("orders", 10)) == 1


async def test_a_replays_own_claims_are_left_to_it(store: Store, clock: ManualClock) -> None:
    letter = _due()
    await store.letters.record([letter])
    await store.letters.claim(
        Query(), to=State.REPLAYING, owner="replay:r", now=START, until=START + LEASE, limit=1, replay="r"
    )
    await clock.advance(60)
    assert await _transport(store, clock).rescue("orders") == {}


async def test_what_a_worker_of_an_earlier_version_had_by_hand_is_rescued(store: Store, clock: ManualClock) -> None:
    """Its owner was called otherwise, and it died when it was replaced."""
    await store.letters.record([_due()])
    await store.letters.claim(
        Query(), to=State.REPLAYING, owner="workflow:host:7:x", now=START, until=START + LEASE, limit=1
    )
    await clock.advance(60)
    assert await _transport(store, clock).rescue("orders") == {State.PENDING: 1}


async def test_a_letter_that_somebody_asks_for_is_had_before_it_is_due(store: Store, clock: ManualClock) -> None:
    letter = _due(next_retry_at=START + LEASE, retries=1)
    await store.letters.record([letter])
    delivery = await _transport(store, clock).take_one(letter.id)
    assert delivery is not None
    origin = lineage(delivery.message)
    assert origin is not None
    assert (origin.retries, origin.replay, origin.by_hand) == (1, None, True)
    assert lineage(bare(delivery.message)) is None
    assert bare(delivery.message).headers == letter.message.headers
    assert await _transport(store, clock).take_one(letter.id) is None


async def test_a_message_without_a_letter_is_refused_beside_the_others(store: Store, clock: ManualClock) -> None:
    letter = _due()
    transport = LettersTransport(store, clock=clock, lease=LEASE, hint="run it yourself")
    results = await transport.send([make_message(), sent_back(letter, now=START, replay="r")])
    assert results == [SendResult(SendStatus.REFUSED, "run it yourself"), ACCEPTED]


async def test_what_was_archived_on_its_way_back_is_not_received(store: Store, clock: ManualClock) -> None:
    letter = _due(state=State.ARCHIVED)
    await store.letters.record([letter])
    transport = _transport(store, clock)
    await transport.send([sent_back(letter, now=START, replay="r")])
    assert await transport.take("orders", 10) == []
    assert await store.documents.list(KIND) == []


async def test_what_upkeep_sends_is_received_once(store: Store, clock: ManualClock) -> None:
    """A server with upkeep claims what is due and sends it; who received it of an earlier sending has had it."""
    letter = _due()
    await store.letters.record([letter])
    [claimed] = await store.letters.claim(
        Query(), to=State.RETRYING, owner="up", now=START, until=START + LEASE, limit=1
    )  # fmt: skip
    transport = _transport(store, clock)
    await transport.send([sent_back(claimed, now=START)])
    await store.letters.move([letter.id], expect=[State.RETRYING], to=State.RETRYING, owner="up", now=START)
    [delivery] = await transport.take("orders", 10)
    await transport.settle([Settlement(delivery, Done())])
    assert (await _get(store, letter)).state is State.RESOLVED
    await transport.send([sent_back(claimed, now=START)])
    assert await transport.take("orders", 10) == []
