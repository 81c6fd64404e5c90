"""Keys that are held: what is behind a dead message is set aside, and follows it in order, whoever dies meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from redrive import HoldKey, Message, Policy, Redrive
from redrive.errors import ConfigError, StoreUnavailable
from redrive.flow.batches import BatchConsumer
from redrive.flow.bury import BEHIND_GROUP
from redrive.flow.context import Context
from redrive.flow.held import KIND, Death, KeyHolds, Place, Verdict, held_keys, plan
from redrive.flow.receive import Consumer
from redrive.forensics.query import Query
from redrive.model import Letter, Reason, State, letter_id
from redrive.telemetry.events import BatchSettled, KeyHoldFull, KeyReleased, KeysHeld, MessageBuried
from redrive.testing.builders import make_message
from redrive.upkeep.holding import Holding
from redrive.upkeep.rescue import rescue_claims
from tests.unit.support import SOON, Killed, World, running, until

ONCE = Policy(attempts=1, on_death="hold-key")
HELD = Place(Verdict.BEHIND, "m1")


class Shop:
    """A handler that fails at what is broken, and what it has done."""

    def __init__(self, *broken: str) -> None:
        self.broken = set(broken)
        self.begun: list[str] = []
        self.done: list[str] = []

    async def handle(self, body: bytes, message: Message) -> None:
        self.begun.append(message.id)
        if message.id in self.broken:
            raise ValueError("out of stock")
        self.done.append(message.id)


def context_of(
    world: World, call: Callable[..., Awaitable[Any]], policy: Policy = ONCE, *, fresh: bool = False, **options: Any
) -> Context:
    context = world.context(call, policy, **options)
    assert policy.on_death is not None
    holds = KeyHolds(
        world.store.documents,
        world.clock,
        transport="default",
        source="orders",
        rule=policy.on_death,
        always_fresh=fresh,
    )
    return replace(context, holds=holds)


def holding_of(world: World) -> Holding:
    return Holding(
        world.store,
        {"default": world.transport},
        world.events,
        world.clock,
        owner="upkeep",
        lease=timedelta(minutes=1),
        patience=2 * world.lease,
    )


def of_key(*ids: str, key: bytes = b"k") -> list[Message]:
    return [make_message(id=id, key=key) for id in ids]


async def letters_of(world: World, *states: State) -> list[Letter]:
    page = await world.letters.letters.search(Query(states=states or None), limit=1000, oldest_first=True)
    return list(page.letters)


async def move(world: World, id: str, to: State) -> None:
    expect = [state for state in State if state is not to]
    assert await world.letters.letters.move([letter_id("orders", id)], expect=expect, to=to, now=world.clock.now())


async def send_back(world: World, id: str) -> None:
    """As a replay of that letter does."""
    from redrive.flow.lineage import sent_back

    now = world.clock.now()
    query = Query(ids=(letter_id("orders", id),))
    (letter,) = await world.letters.letters.claim(
        query, to=State.REPLAYING, owner="o", now=now, until=now, limit=1, replay="r"
    )
    await world.queue.send([sent_back(letter, now=now, replay="r")])


async def all_let_go(world: World, holding: Holding) -> None:
    """Let upkeep and the workers go on until no key is held."""
    async with asyncio.timeout(SOON):
        while await world.letters.documents.list(KIND):
            await holding.cycle()
            await asyncio.sleep(0)


async def end_all() -> None:
    """The process is dead: nothing of it renews a lease any more."""
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


# -- the plan --------------------------------------------------------------------------------------------------------


def test_who_follows_whom() -> None:
    joined = plan((), [Death("m1", False), Death("m2", True), Death("m3", True)], 10)
    assert joined.members == ("m1", "m2", "m3")
    assert joined.places == {
        "m1": Place(Verdict.DEAD),
        "m2": HELD,
        "m3": Place(Verdict.BEHIND, "m2"),
    }
    assert plan(joined.members, [Death("m2", True)], 10) == (joined.members, {"m2": HELD}), "twice changes nothing"


def test_the_first_of_a_key_is_behind_nobody() -> None:
    assert plan(("m1", "m2"), [Death("m1", True)], 10).places == {"m1": Place(Verdict.FREE)}
    assert plan((), [Death("m1", True)], 10) == ((), {"m1": Place(Verdict.FREE)})


def test_what_is_over_the_bound_joins_nobody() -> None:
    joined = plan(("m1",), [Death(f"m{n}", True) for n in range(2, 6)], 3)
    assert joined.members == ("m1", "m2", "m3", "m4"), "three are behind one"
    assert joined.places["m5"] == Place(Verdict.FULL)


# -- the policy ------------------------------------------------------------------------------------------------------


def test_the_policy_in_words() -> None:
    assert Policy().on_death is None
    assert Policy(on_death="go-on").on_death is None
    bounds = Policy(on_death=HoldKey(most=5, keys=7, longest="2h")).on_death
    assert bounds is not None
    assert (bounds.most, bounds.keys, bounds.longest) == (5, 7, timedelta(hours=2))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: Policy(on_death="hold_key"), "hold-key"),
        (lambda: Policy(on_death=3), "on_death=3"),  # type: ignore[arg-type]
        (lambda: HoldKey(most=0), "most=0"),
        (lambda: HoldKey(keys=True), "keys=True"),
        (lambda: HoldKey(longest="-1s"), "longest"),
    ],
)
def test_what_is_wrong_in_a_policy_is_said(wrong: Callable[[], object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        wrong()


# -- setting aside ---------------------------------------------------------------------------------------------------


async def test_what_is_behind_a_dead_message_is_set_aside_and_others_go_on() -> None:
    world, shop = World(), Shop("m1")
    await world.queue.send([*of_key("m0", "m1", "m2", "m3"), *of_key("x1", "x2", key=b"x"), make_message(id="none")])
    async with running(Consumer(context_of(world, shop.handle))):
        await until(lambda: len(shop.begun) + sum(e.count for e in world.seen(KeysHeld)) == 7)
    assert shop.done == ["m0", "x1", "x2", "none"]
    head, *behind = sorted(await letters_of(world), key=lambda letter: letter.message.id)
    assert (head.message.id, head.reason) == ("m1", Reason.PERMANENT)
    assert [(letter.message.id, letter.reason, letter.depends_on) for letter in behind] == [
        ("m2", Reason.BEHIND, ("m1",)),
        ("m3", Reason.BEHIND, ("m2",)),
    ]
    assert {letter.group for letter in behind} == {BEHIND_GROUP}, "one bundle, and not a group for each"
    assert head.id in behind[0].last.message
    assert [event.message for event in world.seen(MessageBuried)] == ["m1"], "those behind are not dead"
    settled = world.seen(BatchSettled)
    assert (sum(event.buried for event in settled), sum(event.behind for event in settled)) == (1, 2)
    assert (await world.queue.depths()).get("orders", None) is None or not (await world.queue.depths())["orders"].total


async def test_they_follow_in_order_when_it_is_resolved() -> None:
    world, shop = World(), Shop("m1")
    holding = holding_of(world)
    await world.queue.send(of_key("m1", "m2", "m3", "m4"))
    async with running(Consumer(context_of(world, shop.handle))):
        await until(lambda: sum(event.count for event in world.seen(KeysHeld)) == 3)
        await holding.cycle()
        assert shop.begun == ["m1"], "nothing goes before it is resolved"
        shop.broken.clear()
        await send_back(world, "m1")
        await until(lambda: shop.done == ["m1"])
        await all_let_go(world, holding)
    assert shop.done == ["m1", "m2", "m3", "m4"]
    assert {letter.state for letter in await letters_of(world)} == {State.RESOLVED}
    assert [letter.retries for letter in await letters_of(world) if letter.message.id == "m2"] == [1]


async def test_they_follow_when_it_is_archived_and_one_that_dies_holds_the_rest() -> None:
    world, shop = World(), Shop("m1", "m2")
    holding = holding_of(world)
    await world.queue.send(of_key("m1", "m2", "m3"))
    async with running(Consumer(context_of(world, shop.handle))):
        await until(lambda: sum(event.count for event in world.seen(KeysHeld)) == 2)
        await move(world, "m1", State.ARCHIVED)
        await holding.cycle()
        await holding.cycle()
        await until(lambda: shop.begun == ["m1", "m2"])
        await until(lambda: len(world.seen(MessageBuried)) == 2)
        for _ in range(3):
            await holding.cycle()
        assert shop.begun == ["m1", "m2"]
        second = await world.letter_of(make_message(id="m2"))
        assert (second.state, second.reason) == (State.PENDING, Reason.PERMANENT), "its first death, and no retry"
        (held,) = await held_keys(world.letters.documents)
        assert (held.head, held.behind) == (second.id, 1)
        await move(world, "m2", State.ARCHIVED)
        await holding.cycle()
        await holding.cycle()
        await until(lambda: shop.done == ["m3"])


async def test_one_that_a_person_sends_back_before_its_turn_is_set_aside_again() -> None:
    world, shop = World(), Shop("m1")
    await world.queue.send(of_key("m1", "m2", "m3"))
    async with running(Consumer(context_of(world, shop.handle))):
        await until(lambda: sum(event.count for event in world.seen(KeysHeld)) == 2)
        await move(world, "m2", State.ARCHIVED)  # so that m3 may be claimed
        await world.clock.advance(1)
        await send_back(world, "m3")
        await until(lambda: sum(event.count for event in world.seen(KeysHeld)) == 3)
    assert shop.begun == ["m1"]
    third = await world.letter_of(make_message(id="m3"))
    assert (third.state, third.reason, third.replay) == (State.PENDING, Reason.BEHIND, "r")


async def test_one_that_comes_while_the_key_is_let_go_is_handled() -> None:
    world, shop = World(), Shop("m1")
    holding, context = holding_of(world), context_of(world, shop.handle)
    await world.queue.send(of_key("m1"))
    async with running(Consumer(context)):
        await until(lambda: len(world.seen(MessageBuried)) == 1)
        await move(world, "m1", State.ARCHIVED)
        await holding.cycle()
        assert await held_keys(world.letters.documents) == []
        assert context.holds is not None
        assert b"k" in context.holds.keys, "this worker has not looked since"
        await world.queue.send(of_key("m2"))
        await until(lambda: shop.done == ["m2"])
    assert [letter.message.id for letter in await letters_of(world)] == ["m1"]


async def test_another_worker_knows_and_so_does_one_that_is_started_later() -> None:
    world, shop = World(), Shop("m1")
    async with running(Consumer(context_of(world, shop.handle))):
        await world.queue.send(of_key("m1"))
        await until(lambda: len(world.seen(MessageBuried)) == 1)
    async with running(Consumer(context_of(world, shop.handle))):
        await world.queue.send(of_key("m2"))
        await until(lambda: len(world.seen(KeysHeld)) == 1)
    assert shop.begun == ["m1"]


async def test_a_worker_waits_for_the_store_before_its_first_message() -> None:
    world, shop = World(), Shop()
    world.calls.break_down("documents.list", StoreUnavailable("letters", "away"))
    async with running(Consumer(context_of(world, shop.handle))):
        await world.queue.send(of_key("m1"))
        await world.clock.advance(5)
        assert shop.begun == []
        world.calls.mend("documents.list")
        await world.clock.advance(20)
        await until(lambda: shop.done == ["m1"])
        world.calls.break_down("documents.list", StoreUnavailable("letters", "away"))
        await world.queue.send(of_key("m2"))
        await until(lambda: shop.done == ["m1", "m2"])


async def test_a_source_whose_messages_succeed_asks_the_store_rarely() -> None:
    world, shop = World(), Shop()
    async with running(Consumer(context_of(world, shop.handle, concurrency=4))):
        for n in range(50):
            await world.queue.send(of_key(f"a{n}", f"b{n}"))
            await until(lambda n=n: len(shop.done) == 2 * n + 2)  # type: ignore[misc]
    assert world.calls.count("documents.list") == 1, "no time passed"
    assert world.calls.count("documents.get") == 0


# -- bounds ----------------------------------------------------------------------------------------------------------


async def test_past_the_bound_messages_stay_in_the_broker_and_it_is_said() -> None:
    world, shop = World(), Shop("m1")
    policy = Policy(attempts=1, on_death=HoldKey(most=2))
    async with running(Consumer(context_of(world, shop.handle, policy))):
        await world.queue.send(of_key("m1", "m2", "m3", "m4", "m5"))
        await until(lambda: sum(event.messages for event in world.seen(KeyHoldFull)) == 2)
        assert (await world.queue.depths())["orders"].delayed == 2
        await world.queue.send(of_key("x", key=b"x"))
        await until(lambda: shop.done == ["x"])
    assert shop.begun == ["m1", "x"]
    assert len(await letters_of(world)) == 3
    assert "most=2" in world.seen(KeyHoldFull)[0].why


async def test_no_more_keys_are_held_than_the_policy_allows() -> None:
    world, shop = World(), Shop("a1", "b1")
    policy = Policy(attempts=1, on_death=HoldKey(keys=1))
    async with running(Consumer(context_of(world, shop.handle, policy))):
        await world.queue.send([*of_key("a1", key=b"a"), *of_key("b1", key=b"b")])
        await until(lambda: len(world.seen(KeyHoldFull)) == 1)
        assert [letter.message.id for letter in await letters_of(world)] == ["a1"]
        await move(world, "a1", State.ARCHIVED)
        await holding_of(world).cycle()
        await world.clock.advance(61)
        await until(lambda: len(world.seen(MessageBuried)) == 2)
    assert shop.begun == ["a1", "b1"], "it was decided before, and is not attempted again"


async def test_a_key_is_held_for_so_long_and_no_longer() -> None:
    world, shop = World(), Shop("m1")
    policy = Policy(attempts=1, on_death=HoldKey(longest="1h"))
    holding = holding_of(world)
    async with running(Consumer(context_of(world, shop.handle, policy))):
        await world.queue.send(of_key("m1", "m2", "m3"))
        await until(lambda: sum(event.count for event in world.seen(KeysHeld)) == 2)
        await world.clock.advance(3590)
        await holding.cycle()
        assert not world.seen(KeyReleased)
        await world.clock.advance(11)
        for _ in range(10):
            await holding.cycle()
            await world.clock.advance(1)
        await until(lambda: shop.done == ["m2", "m3"])
    assert [(event.letter, event.behind) for event in world.seen(KeyReleased)] == [(letter_id("orders", "m1"), 2)]
    assert (await world.letter_of(make_message(id="m1"))).state is State.PENDING, "it stays for a person"


async def test_those_behind_a_purged_letter_follow_after_a_while() -> None:
    world, shop = World(), Shop("m1")
    holding = holding_of(world)
    async with running(Consumer(context_of(world, shop.handle))):
        await world.queue.send(of_key("m1", "m2"))
        await until(lambda: sum(event.count for event in world.seen(KeysHeld)) == 1)
        await world.letters.letters.prune(Query(ids=(letter_id("orders", "m1"),)), limit=1)
        await holding.cycle()
        assert shop.begun == ["m1"], "its worker may be about to write it"
        await world.clock.advance(121)
        for _ in range(3):
            await holding.cycle()
        await until(lambda: shop.done == ["m2"])


async def test_letters_that_are_behind_are_not_pruned() -> None:
    world, shop = World(), Shop("m1")
    async with running(Consumer(context_of(world, shop.handle))):
        await world.queue.send(of_key("m1", "m2"))
        await until(lambda: sum(event.count for event in world.seen(KeysHeld)) == 1)
    assert await world.letters.letters.count(Query(scheduled=False)) == 1


# -- crashes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(14))
async def test_a_worker_that_dies_at_any_step_loses_nothing_and_lets_nothing_overtake(number: int, after: bool) -> None:
    world, shop = World(), Shop("m1")
    await world.queue.send(of_key("m1"))
    async with running(Consumer(context_of(world, shop.handle, fresh=True))):
        await until(lambda: len(world.seen(MessageBuried)) == 1)
    world.calls.die_at(number, after=after)
    dying = Consumer(context_of(world, shop.handle, fresh=True))
    at_work = asyncio.create_task(dying.run(timedelta()))
    await world.queue.send(of_key("m2", "m3"))
    for _ in range(300):
        await asyncio.sleep(0)
    world.calls.live()
    await end_all()
    assert at_work.done()
    assert shop.begun == ["m1"]
    holding = holding_of(world)
    async with running(Consumer(context_of(world, shop.handle, fresh=True))):
        await world.clock.advance(130)
        shop.broken.clear()
        await send_back(world, "m1")
        for _ in range(60):
            await holding.cycle()
            await world.clock.advance(5)
    assert shop.done[0] == "m1"
    assert sorted(set(shop.done)) == ["m1", "m2", "m3"]
    assert {letter.state for letter in await letters_of(world)} == {State.RESOLVED}
    assert await held_keys(world.letters.documents) == []


@pytest.mark.parametrize("number", range(8))
async def test_a_worker_that_dies_while_it_buries_the_first_leaves_the_key_held_or_the_message_untouched(
    number: int,
) -> None:
    world, shop = World(), Shop("m1")
    world.calls.die_at(number, after=True)
    await world.queue.send(of_key("m1", "m2"))
    at_work = asyncio.create_task(Consumer(context_of(world, shop.handle, batch=1)).run(timedelta()))
    for _ in range(300):
        await asyncio.sleep(0)
    world.calls.live()
    await end_all()
    assert at_work.done()
    known = [letter.message.id for letter in await letters_of(world)]
    held = await held_keys(world.letters.documents)
    assert held or not known, "a letter without its hold would let others overtake it"


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(10))
async def test_an_upkeep_that_dies_at_any_step_sends_nothing_out_of_turn(number: int, after: bool) -> None:
    world, shop = World(), Shop("m1")
    async with running(Consumer(context_of(world, shop.handle))):
        await world.queue.send(of_key("m1", "m2", "m3"))
        await until(lambda: sum(event.count for event in world.seen(KeysHeld)) == 2)
    await move(world, "m1", State.ARCHIVED)
    world.calls.die_at(number, after=after)
    with suppress(Killed):
        for _ in range(2):
            await holding_of(world).cycle()
    world.calls.live()
    await world.clock.advance(61)
    await rescue_claims(world.store, world.events, world.clock)
    async with running(Consumer(context_of(world, shop.handle))):
        await all_let_go(world, holding_of(world))
    assert list(dict.fromkeys(shop.done)) == ["m2", "m3"]


# -- batches ---------------------------------------------------------------------------------------------------------


async def test_a_batch_that_fails_as_a_whole_sets_aside_what_is_behind() -> None:
    world, done = World(), list[str]()

    async def handle(bodies: list[bytes], messages: list[Message]) -> None:
        if any(message.id == "m1" for message in messages):
            raise ValueError("out of stock")
        done.extend(message.id for message in messages)

    await world.queue.send([*of_key("m1", "m2"), *of_key("x1", key=b"x")])
    async with running(BatchConsumer(context_of(world, handle, size=3))):
        await until(lambda: done == ["x1"] and len(world.seen(KeysHeld)) == 1)
    behind = await world.letter_of(make_message(id="m2"))
    assert (behind.reason, behind.depends_on) == (Reason.BEHIND, ("m1",))


# -- what it is set up with ------------------------------------------------------------------------------------------


async def test_an_app_holds_the_keys_of_its_sources(tmp_path: Any) -> None:
    app = Redrive(transport=f"sqlite:///{tmp_path / 'q.db'}")

    @app.handler("orders", policy=ONCE)
    async def held(body: bytes) -> None: ...

    @app.handler("mails")
    async def free(body: bytes) -> None: ...

    async with app:
        assert app.context(app.handlers["orders"]).holds is not None
        assert app.context(app.handlers["mails"]).holds is None
