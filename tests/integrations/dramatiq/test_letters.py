"""What Dramatiq gives up becomes a letter, and its replay is run by Dramatiq."""

from __future__ import annotations

import json

import dramatiq
import pytest

from redrive.model import Category, Reason, State
from redrive.stores.base import EntryStatus
from redrive.testing.waiting import until
from tests.integrations.dramatiq.conftest import BROKERS, Shop

both = pytest.mark.parametrize("broker_url", BROKERS, indirect=True)


@both
async def test_a_message_whose_retries_are_over_is_a_letter_and_its_replay_resolves_it(shop: Shop) -> None:
    sent = shop.send("charge", "o-1", time_limit=60_000)
    async with shop.worker():
        letter = await shop.letter()
        assert (letter.message.id, letter.message.source) == (sent.message_id, shop.queue)
        assert [failure.attempt for failure in letter.failures] == [1, 2, 3]
        assert {failure.type for failure in letter.failures} == {"ConnectionError"}
        assert "the bank does not answer for o-1" in letter.last.stack
        assert letter.last.frames[-1].endswith("shop:charge")
        assert (letter.reason, letter.state, letter.category) == (Reason.ATTEMPTS, State.PENDING, Category.NETWORK)
        assert letter.message.body == sent.encode(), "byte for byte as it was first sent"
        first = await shop.replay()
        await until(lambda: shop.is_state(State.EXHAUSTED), what="it died again")
        again = await shop.letter(6)
        assert [failure.attempt for failure in again.failures] == [1, 2, 3, 1, 2, 3]
        assert (again.id, again.message.body) == (letter.id, letter.message.body)
        assert await shop.entries(first.replay.id) == {EntryStatus.FAILED: 1}
        shop.mend()
        await shop.run("replay", "--all", "--yes")
        await until(lambda: shop.is_state(State.RESOLVED), what="it is resolved")
        assert shop.lines("done") == ["o-1"]
    found = await shop.run("collect", f"{shop.transport_url}/{shop.queue}.XQ", "--json")
    assert json.loads(found)["collected"] == 2, "both deaths lie there"
    assert shop.dead() == 0
    [known] = await shop.letters()
    assert (known.state, len(known.failures)) == (State.RESOLVED, 6), "they are known already"


@both
async def test_every_kind_of_death_is_a_letter(shop: Shop) -> None:
    large = "x" * 5_000_000
    with shop.producer() as broker:
        for actor, arguments, options in (
            ("refuse", ("o-2",), {}),
            ("hang", (), {}),
            ("nobody", (1,), {}),
            ("show", ("old",), {"max_age": 600_000}),
            ("spoil", ([1],), {}),
            ("show", (large,), {}),
        ):
            message: dramatiq.Message[None] = dramatiq.Message(shop.queue, actor, arguments, {}, options)
            broker.enqueue(message.copy(message_timestamp=message.message_timestamp - 3_600_000))
    async with shop.worker():
        letters = await shop.until_letters(6)
        shop.mend()
        await shop.replay()
        await until(lambda: shop.has({State.RESOLVED: 3, State.EXHAUSTED: 2, State.PENDING: 1}), what="all have ended")
    found = {(json.loads(letter.message.body)["actor_name"], letter.reason): letter for letter in letters}
    refused = found["refuse", Reason.PERMANENT]
    assert (refused.last.type, refused.last.attempt) == ("ValueError", 1)
    assert found["hang", Reason.ATTEMPTS].last.type.endswith("TimeLimitExceeded")
    unknown = found["nobody", Reason.PERMANENT]
    assert (unknown.last.type, unknown.last.retryable) == ("dramatiq.errors.ActorNotFound", False)
    assert "age limit" in found["show", Reason.EXPIRED].last.message
    lost = found["spoil", Reason.ATTEMPTS]
    assert (lost.last.message, lost.message.header("dramatiq-unfit")) == (
        "spoiled",
        b"TypeError: its arguments cannot be encoded any more",
    )
    assert len(json.loads(found["show", Reason.ATTEMPTS].message.body)["args"][0]) == len(large)
    states = {json.loads(letter.message.body)["actor_name"]: letter.state for letter in await shop.letters()}
    assert states["spoil"] is State.PENDING, "a replay that cannot send its arguments sends nothing"
    assert (states["refuse"], states["nobody"]) == (State.EXHAUSTED, State.EXHAUSTED)


@both
async def test_a_pipeline_goes_on_when_its_dead_message_is_replayed(shop: Shop) -> None:
    first: dramatiq.Message[str] = dramatiq.Message(shop.queue, "charge", ("o-3",), {}, {})
    last: dramatiq.Message[None] = dramatiq.Message(shop.queue, "confirm", (), {}, {})
    with shop.producer() as broker:
        dramatiq.pipeline([first, last], broker=broker).run()
    async with shop.worker():
        letter = await shop.letter()
        assert json.loads(letter.message.body)["options"]["pipe_target"]["message_id"] == last.message_id
        shop.mend()
        await shop.replay()
        await until(lambda: shop.lines("confirmed") == ["o-3 paid"], what="the rest of the pipeline has run")
        await until(lambda: shop.is_state(State.RESOLVED), what="it is resolved")


@pytest.mark.parametrize("broker_url", BROKERS, indirect=True)
async def test_pickled_messages_are_carried_as_they_are_and_never_unpickled_by_us(shop: Shop) -> None:
    shop.environment["PICKLE"] = "1"
    await shop.python("show.send(NoRepr())")
    async with shop.worker():
        letter = await shop.letter()
        assert letter.message.header("dramatiq-actor") == b"show"
        assert b"NoRepr" in letter.message.body
        assert not letter.message.body.startswith(b"{")
        await shop.replay()
        again = await shop.letter(2)
        assert (again.id, again.state) == (letter.id, State.EXHAUSTED)
        shop.mend()
        await shop.replay()
        await until(lambda: shop.is_state(State.RESOLVED), what="it is resolved")


@pytest.mark.parametrize("broker_url", ["redis"], indirect=True)
async def test_a_group_is_complete_once_its_dead_member_was_replayed(shop: Shop) -> None:
    shop.environment["RESULTS"] = shop.broker
    await shop.python(
        "made = dramatiq.group([charge.message('o-1'), confirm.message('beside it')])\n"
        "made.add_completion_callback(confirm.message('complete'))\nmade.run()"
    )
    async with shop.worker():
        await shop.letter(3)
        assert shop.lines("confirmed") == ["beside it"]
        shop.mend()
        await shop.replay()
        await until(lambda: shop.lines("confirmed") == ["beside it", "complete"], what="the group is complete")
