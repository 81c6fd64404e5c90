"""The same machine on Redis, with and without entries beside the letters."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from redrive.model import OPEN
from redrive.stores.base import Store
from redrive.stores.redis.entries import EntryShape
from tests.conformance.test_redis_store import JobShape, RedisBackend
from tests.properties.test_store_machine import SHORT, THOROUGH, LetterMachine
from tests.servers.redis import Redis

SHORTER = settings(SHORT, max_examples=SHORT.max_examples if THOROUGH else 10)


@pytest.mark.parametrize("shape", [None, JobShape()], ids=["letters", "letters and entries"])
def test_redis(redis_server: Redis, shape: EntryShape | None) -> None:
    class RedisMachine(LetterMachine):
        def open(self) -> Store:
            self.backend = RedisBackend(redis_server.url, shape)
            return self.run(self.backend.open())

        def teardown(self) -> None:
            if shape is not None:
                self.run(self.entries_are_the_open_letters())
            self.run(self.backend.aclose())
            super().teardown()

        async def entries_are_the_open_letters(self) -> None:
            members = await self.backend.link.command("ZRANGE", f"{self.backend.name}:dlq", 0, -1)
            is_open = [one for one in self.reference.letters.values() if one.state in OPEN]
            assert sorted(members) == sorted(JobShape().encode(one) for one in is_open)

    run_state_machine_as_test(RedisMachine, settings=SHORTER)
