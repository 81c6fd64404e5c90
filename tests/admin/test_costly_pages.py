"""What pages ask for, asked by somebody who wants to harm: ends of the calendar, tiny buckets, long notes."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from redrive.access.actors import Role, Scope
from redrive.access.tokens import Tokens
from redrive.forensics.query import Query
from redrive.service import Service, groups, redacting
from redrive.service import series as counted
from tests.actors import acting
from tests.admin.asking import asking
from tests.admin.conftest import Client, Shop

_ENDS = [
    "since=9999-12-31T00:00:00Z&until=9999-12-31T23:59:59Z",
    "since=0001-01-01T00:00:00Z&until=0001-01-02T00:00:00Z",
    "since=0001-01-01T00:00:00%2B14:00&until=0001-01-02T00:00:00Z",
    "since=9999-12-31T00:00:00-14:00&until=9999-12-31T23:59:59-14:00",
    "until=0001-01-01T00:00:00Z",
]


@pytest.mark.parametrize("ends", _ENDS)
async def test_counts_at_an_end_of_the_calendar_are_refused(client: Client, ends: str) -> None:
    answer = await (await client(Role.VIEWER)).get(f"/api/series?{ends}")
    assert answer.status_code == 400, answer.text
    assert "counts are of 1970 to 9998" in answer.json()["error"]


async def test_a_million_buckets_are_refused_before_they_are_made(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def starts(since: int, until: int, step: int) -> list[int]:
        raise AssertionError("they were made")

    monkeypatch.setattr(counted, "starts", starts)
    answer = await (await client(Role.VIEWER)).get("/api/series?last=730d&step=60")
    assert answer.status_code == 400, answer.text
    assert "3,000 are the most" in answer.json()["error"]


async def test_long_notes_are_masked_beside_the_event_loop(
    client: Client, shop: Shop, buried: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service(shop.app)
    group = (await service.groups(Query()))[0].id
    for _ in range(3):
        await service.note_group(group, "password: hunter2 " + "word " * 1900, actor=acting("ann"))
    loop, masked = threading.get_ident(), []
    text = type(service.redactor).text

    def noticed(self: Any, value: str) -> str:
        if len(value) > 1000:
            masked.append(threading.get_ident())
        return text(self, value)

    monkeypatch.setattr(type(service.redactor), "text", noticed)
    answer = await (await client(Role.VIEWER)).get(f"/api/groups/{group}/notes")
    assert "hunter2" not in answer.text
    assert len(masked) == 3
    assert loop not in masked


async def test_many_who_compare_groups_take_turns(
    client: Client, buried: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once, most, off_loop = 0, 0, redacting.each_off_loop

    async def counting(*given: Any) -> Any:
        nonlocal at_once, most
        at_once, most = at_once + 1, max(most, at_once + 1)
        try:
            await asyncio.sleep(0)
            return await off_loop(*given)
        finally:
            at_once -= 1

    monkeypatch.setattr(groups, "each_off_loop", counting)
    http = await client(Role.VIEWER)
    group = (await http.get("/api/groups")).json()[0]["id"]
    answers = await asyncio.gather(*(http.get(f"/api/groups/{group}/differs") for _ in range(8)))
    assert {answer.status_code for answer in answers} == {200}
    assert most <= 2


@pytest.mark.parametrize(("scope", "sees"), [(Scope(sources=("orders",)), 1), (Scope(sources=("emails",)), 0)])
async def test_whose_a_replay_is_is_looked_up_once(
    api: Any, shop: Shop, tokens: Tokens, buried: list[str], monkeypatch: pytest.MonkeyPatch, scope: Scope, sees: int
) -> None:
    """A replay of a million letters is not read again with every page of who reaches a part."""
    await Service(shop.app).replay(Query(sources=("orders",)), actor=acting("ann"), reason="again")
    _, token = await tokens.create("part", Role.VIEWER, scope=scope)
    read, entries = 0, shop.app.store.ledger.entries

    async def counting(*given: Any, **more: Any) -> Any:
        nonlocal read
        read += 1
        return await entries(*given, **more)

    monkeypatch.setattr(shop.app.store.ledger, "entries", counting)
    async with asking(api, token) as http:
        assert len((await http.get("/api/replays")).json()) == sees
        first, read = read, 0
        assert len((await http.get("/api/replays")).json()) == sees
        assert first > read == 0
