"""What speaks against a replay is said before anybody says yes to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from redrive import Redrive
from redrive.config.settings import Settings
from redrive.forensics.query import Query
from redrive.service import Service
from redrive.testing.builders import make_failure, make_letter, make_message
from redrive.testing.clock import ManualClock
from tests.unit.support import nothing

LONG_AGO = timedelta(hours=1)


@pytest.fixture(params=["memory", "sqlite"])
async def service(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Service]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/redrive.db"
    async with Redrive(settings=Settings(store=url, transports={"default": url}), clock=ManualClock()) as app:
        app.handler("orders")(nothing)
        yield Service(app)


async def _bury(
    service: Service, count: int = 1, *, ago: timedelta = LONG_AGO, key: bytes | None = None, **changes: Any
) -> None:
    at = service.app.clock.now() - ago
    failure = make_failure(type=changes.pop("type", "ConnectionError"), at=at)
    letters = [make_letter(make_message(source="orders", key=key), failure, at=at) for _ in range(count)]
    await service.app.store.letters.record([replace(letter, **changes) for letter in letters])


async def _warnings(service: Service) -> list[str]:
    return (await service.plan(Query())).warnings


async def test_nothing_speaks_against_letters_that_died_once_and_long_ago(service: Service) -> None:
    await _bury(service, 3)
    assert await _warnings(service) == []


async def test_a_group_that_was_seen_a_minute_ago_may_not_be_fixed(service: Service) -> None:
    await _bury(service, 3, ago=timedelta(minutes=1), group="g1")
    assert await _warnings(service) == ["not fixed yet? group g1 (ConnectionError) was seen again 60 s ago"]


async def test_of_many_such_groups_three_are_named(service: Service) -> None:
    for number in range(5):
        await _bury(service, ago=timedelta(minutes=1), group=f"g{number}")
    said = await _warnings(service)
    assert len(said) == 4
    assert said[-1] == "not fixed yet? 2 more groups were seen again within the last 5 minutes"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"resends": 1}, "sent back before, and died again: 2 letters"),
        ({"foreign": True}, "nobody will tell what becomes of 2 letters"),
        ({"depends_on": ("m0",)}, "order at stake: 2 letters depend on others"),
        ({"key": b"k"}, "order at stake: 1 letter have others of their key before them"),
    ],
)
async def test_what_letters_say_of_themselves(service: Service, changes: dict[str, Any], says: str) -> None:
    await _bury(service, 2, **changes)
    [said] = await _warnings(service)
    assert said.startswith(says)


async def test_of_many_letters_a_few_are_looked_at_and_it_says_so(service: Service) -> None:
    await _bury(service, 300, resends=1)
    assert await _warnings(service) == ["sent back before, and died again: 200 letters of the 200 that were looked at"]


async def test_the_rate_says_how_long_it_takes_at_least(service: Service) -> None:
    await _bury(service, 30)
    assert (await service.plan(Query(), rate=2)).seconds == 15
    assert (await service.plan(Query())).seconds is None
