"""A transport's own place for dead letters: published there first, then recorded in the store, acked last."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from redrive.errors import StoreUnavailable, TransportUnavailable
from redrive.flow.decision import Decision
from redrive.flow.settle import Settled, settle
from redrive.model import Bury, Done, Letter, Reason, Release, Retry, letter_id
from redrive.telemetry.events import BackendDown, BatchSettled, MessageBuried
from redrive.testing.builders import make_failure, make_message
from redrive.transports.base import ACCEPTED, SendResult, SendStatus
from tests.unit.support import World, nothing

BURY = Bury(Reason.ATTEMPTS)


class Place:
    """A dead-letter place in memory, which answers as it is told."""

    name = "the broker"

    def __init__(self, world: World, *, replaces_store: bool = False, **answers: SendStatus) -> None:
        self.replaces_store = replaces_store
        self.answers = answers
        self.letters: list[str] = []
        self.referred: list[str] = []
        self._world = world

    async def bury(self, letters: Sequence[Letter]) -> Sequence[SendResult]:
        answers: Sequence[SendResult] = await self._world.calls.run("place.bury", self._bury, letters)
        return answers

    async def _bury(self, letters: Sequence[Letter]) -> Sequence[SendResult]:
        answers = [self._answer(letter) for letter in letters]
        self.letters += [
            letter.message.id for letter, answer in zip(letters, answers, strict=True) if answer is ACCEPTED
        ]
        return answers

    async def refer(self, letters: Sequence[Letter]) -> None:
        await self._world.calls.run("place.refer", self._refer, letters)

    async def _refer(self, letters: Sequence[Letter]) -> None:
        self.referred += [letter.message.id for letter in letters]

    def _answer(self, letter: Letter) -> SendResult:
        status = self.answers.get(letter.message.id, SendStatus.ACCEPTED)
        return ACCEPTED if status is SendStatus.ACCEPTED else SendResult(status, "it is full")


async def bury(world: World, *names: str) -> Settled:
    """Messages of these names, all of them to be buried."""
    deliveries = await world.deliver(*(make_message(id=name) for name in names))
    batch = [Decision(delivery, BURY, make_failure(at=world.clock.now())) for delivery in deliveries]
    return await settle(world.context(nothing), batch, timedelta(seconds=5))


async def stored(world: World, *names: str) -> list[str]:
    """Those of them that the store has."""
    found = [(name, await world.letters.letters.get(letter_id("orders", name))) for name in names]
    return [name for name, letter in found if letter is not None]


async def test_a_letter_is_published_then_recorded_and_only_then_is_its_message_acked() -> None:
    world = World()
    place = world.place = Place(world)
    assert await bury(world, "a") == Settled()
    assert world.calls.names == ["place.bury", "letters.record", "transport.settle"]
    assert (place.letters, await stored(world, "a")) == (["a"], ["a"])
    assert [event.message for event in world.seen(MessageBuried)] == ["a"]


async def test_a_success_after_a_crash_needs_no_store_that_holds_no_letters_of_its_source() -> None:
    """A store that is away must not hold up what was being handled when a worker was killed."""
    world = World()
    world.place = Place(world, replaces_store=True)
    await world.deliver(make_message(id="a"))
    await world.clock.advance(61)
    (again,) = await world.queue.receive("orders", 1)
    assert again.redelivered
    assert await settle(world.context(nothing), [Decision(again, Done())], timedelta(seconds=5)) == Settled()
    assert world.calls.names == ["transport.settle"]


async def test_where_the_place_replaces_the_store_the_letter_is_there_only() -> None:
    world = World()
    place = world.place = Place(world, replaces_store=True)
    await bury(world, "a")
    assert world.calls.names == ["place.bury", "transport.settle"]
    assert (place.letters, await stored(world, "a")) == (["a"], [])
    assert [event.message for event in world.seen(MessageBuried)] == ["a"]


@pytest.mark.parametrize("replaces_store", [True, False])
async def test_one_that_is_refused_for_good_is_in_the_store_and_referred_to_when_it_is(replaces_store: bool) -> None:
    world = World()
    place = world.place = Place(world, replaces_store=replaces_store, large=SendStatus.REFUSED)
    assert await bury(world, "a", "large") == Settled()
    assert world.calls.names == ["place.bury", "letters.record", "place.refer", "transport.settle"]
    assert (place.letters, place.referred) == (["a"], ["large"])
    assert await stored(world, "a", "large") == (["large"] if replaces_store else ["a", "large"])


@pytest.mark.parametrize("status", [SendStatus.BUSY, SendStatus.UNKNOWN])
async def test_one_that_is_not_taken_now_is_given_back_and_its_neighbours_are_buried(status: SendStatus) -> None:
    world = World()
    world.place = Place(world, late=status)
    settled = await bury(world, "a", "late", "b")
    assert (settled.written, [delivery.message.id for delivery in settled.kept_back]) == (False, ["late"])
    assert await stored(world, "a", "late", "b") == ["a", "b"]
    [down] = world.seen(BackendDown)
    assert (down.backend, "it is full" in down.why) == ("the broker", True), "it is the broker, and not the store"
    [batch] = world.seen(BatchSettled)
    assert (batch.buried, batch.released) == (2, 1)


async def test_a_broker_that_is_away_keeps_every_letter_out_of_the_store_and_is_named() -> None:
    world = World()
    world.place = Place(world)
    world.calls.fail("place.bury", TransportUnavailable("the broker", "connection refused"))
    settled = await bury(world, "a", "b")
    assert (settled.written, len(settled.kept_back)) == (False, 2)
    assert await stored(world, "a", "b") == []
    assert [down.backend for down in world.seen(BackendDown)] == ["the broker"]


async def test_without_the_store_what_was_published_is_given_back_too() -> None:
    world = World()
    world.place = Place(world)
    world.calls.fail("letters.record", StoreUnavailable("letters", "disk is full"))
    settled = await bury(world, "a")
    assert (settled.written, len(settled.kept_back)) == (False, 1)
    assert [down.backend for down in world.seen(BackendDown)] == ["letters"]


async def test_a_letter_that_the_store_refuses_is_published_once() -> None:
    world = World()
    place = world.place = Place(world)
    world.calls.fail("letters.record", ValueError("no such value"), ValueError("no such value"))
    settled = await bury(world, "a", "b")
    assert [delivery.message.id for delivery in settled.kept_back] == ["a"]
    assert place.letters == ["a", "b"]


async def test_while_the_note_of_a_refused_letter_cannot_be_left_nothing_is_acked_and_all_can_be_repeated() -> None:
    world = World()
    place = world.place = Place(world, large=SendStatus.REFUSED)
    world.calls.fail("place.refer", TransportUnavailable("the broker", "connection refused"))
    [delivery] = await world.deliver(make_message(id="large"))
    batch = [Decision(delivery, BURY, make_failure(at=world.clock.now()))]
    with pytest.raises(TransportUnavailable):
        await settle(world.context(nothing), batch)
    assert "transport.settle" not in world.calls.names
    assert await settle(world.context(nothing), batch) == Settled()
    assert place.referred == ["large"]
    [letter] = [await world.letter_of(delivery.message)]
    assert len(letter.failures) == 1


async def test_what_is_only_parked_until_its_retry_is_no_dead_letter() -> None:
    world = World(native_delay=False)
    place = world.place = Place(world, replaces_store=True)
    [delivery] = await world.deliver(make_message(id="a"))
    retry = Retry(timedelta(seconds=15))
    await settle(world.context(nothing), [Decision(delivery, retry, make_failure(at=world.clock.now()))])
    assert (place.letters, await stored(world, "a")) == ([], ["a"])


async def test_what_is_given_back_needs_no_letter() -> None:
    world = World()
    place = world.place = Place(world)
    [delivery] = await world.deliver(make_message(id="a"))
    await settle(world.context(nothing), [Decision(delivery, Release())])
    assert (place.letters, world.calls.names) == ([], ["transport.settle"])


async def test_a_letter_that_has_no_form_for_its_place_is_in_the_store_and_its_neighbours_are_published() -> None:
    world = World()
    place = world.place = Breaking(world, replaces_store=True)
    settled = await bury(world, "a", "bad", "b")
    assert settled.kept_back == ()
    assert place.letters == ["a", "b"]
    assert await stored(world, "a", "bad", "b") == ["bad"]
    assert (await world.queue.depths()).get("orders") is None


class Breaking(Place):
    """Cannot put what is bad into its form."""

    async def _bury(self, letters: Sequence[Letter]) -> Sequence[SendResult]:
        if any(letter.message.id == "bad" for letter in letters):
            raise RecursionError("too deep for it")
        return await super()._bury(letters)
