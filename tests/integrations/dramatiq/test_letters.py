"""What Dramatiq gives up becomes a letter, and its replay is run by Dramatiq."""

from __future__ import annotations

import json

import pytest

from redrive.model import Category, Reason, State
from redrive.testing.waiting import until
from tests.integrations.dramatiq.conftest import BROKERS, Shop

both = pytest.mark.parametrize("broker_url", BROKERS, indirect=True)


@both
async def test_a_message_whose_retries_are_over_is_a_letter_and_its_replay_resolves_it(shop: Shop) -> None:
    id = await shop.send("print(charge.send('o-1', amount=3).message_id)")
    async with shop.worker():
        letter = await shop.letter()
        assert (letter.message.id, letter.message.source) == (id, shop.queue)
        assert [failure.attempt for failure in letter.failures] == [1, 2, 3]
        assert {failure.type for failure in letter.failures} == {"ConnectionError"}
        assert "the bank does not answer for o-1" in letter.last.stack
        assert (letter.reason, letter.state, letter.category) == (Reason.ATTEMPTS, State.PENDING, Category.NETWORK)
        body = json.loads(letter.message.body)
        assert (body["actor_name"], body["args"], body["kwargs"]) == ("charge", ["o-1"], {"amount": 3})
        assert body["options"] == {}, "as it was first sent"
        shop.mend()
        await shop.run("replay", "--all", "--yes")
        await until(lambda: is_state(shop, State.RESOLVED), what="it is resolved")
        assert shop.lines("done") == ["o-1"]


async def is_state(shop: Shop, state: State) -> bool:
    return all(letter.state is state for letter in await shop.letters())
