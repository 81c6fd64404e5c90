"""Secrets of a letter are seen one letter at a time, by who may, with a reason, and the trail has it."""

from __future__ import annotations

import hmac
from base64 import b64decode
from hashlib import sha256

import pytest

from redrive.access.actors import Role
from redrive.access.tokens import Tokens
from redrive.service import Service
from tests.admin.conftest import Client, Shop

pytestmark = pytest.mark.asyncio


async def test_unmasking_takes_a_permission_and_a_reason_and_is_written_down(
    client: Client, tokens: Tokens, shop: Shop, buried: list[str]
) -> None:
    admin = await client(Role.ADMIN)
    path = f"/api/letters/{buried[0]}/unmask"
    refused = await admin.post(path, json={"reason": "curious"})
    assert refused.status_code == 403, "no role has it by itself"
    seer = await client((await tokens.create("seer", Role.VIEWER, unmask=True))[1])
    assert (await seer.post(path, json={"reason": ""})).status_code == 400
    for blank in ("   ", "\u200b", "\u2800", "\x00", "..."):
        assert (await seer.post(path, json={"reason": blank})).status_code in (400, 422)
    shown = (await seer.post(path, json={"reason": "ticket 4711"})).json()
    assert shown["redacted"] is False
    letter = await Service(shop.app).find(buried[0])
    assert b64decode(shown["body"]) == letter.message.body
    done, *others = (await admin.get("/api/audit", params={"action": "unmask"})).json()
    assert (done["outcome"], done["reason"], letter.id in done["about"]) == ("done", "ticket 4711", True)
    key = await Service(shop.app).trail.key()
    assert f"hmac-sha256 {hmac.digest(key, letter.message.body, 'sha256').hex()}" in done["detail"]
    assert sha256(letter.message.body).hexdigest() not in done["detail"], "nobody tries all values of a short secret"
    assert {line["outcome"] for line in others} == {"refused"}
    assert (await admin.get(f"/api/letters/{buried[0]}/message")).json()["redacted"] is True


async def test_a_token_that_may_unmask_gives_its_secret_to_nobody_who_may_not(client: Client, tokens: Tokens) -> None:
    seer, text = await tokens.create("seer", Role.VIEWER, unmask=True)
    admin, path = await client(Role.ADMIN), f"/api/tokens/{seer.id}/rotate"
    answer = await admin.post(path, json={})
    assert (answer.status_code, "rdr_" in answer.text) == (403, False), answer.text
    assert await tokens.check(text) is not None
    boss = await client((await tokens.create("boss", Role.ADMIN, unmask=True))[1])
    assert (await boss.post(path, json={})).status_code == 200


async def test_tokens_are_in_the_trail_before_they_are_made_and_where_they_are_refused(
    client: Client, shop: Shop, tokens: Tokens
) -> None:
    admin = await client(Role.ADMIN)
    assert (await admin.post("/api/tokens", json={"name": "eye", "role": "viewer", "unmask": True})).status_code == 403
    made = (await admin.post("/api/tokens", json={"name": "ci", "role": "viewer"})).json()["token"]["id"]
    await admin.post(f"/api/tokens/{made}/rotate", json={})
    await admin.delete(f"/api/tokens/{made}")
    lines = [line async for line in Service(shop.app).trail.lines(ascending=True) if line.action.startswith("token")]
    assert [(line.action, line.outcome) for line in lines] == [
        ("token create", "began"),
        ("token create", "refused"),
        ("token create", "began"),
        ("token create", "done"),
        ("token rotate", "began"),
        ("token rotate", "done"),
        ("token revoke", "began"),
        ("token revoke", "done"),
    ]
    assert all(made in line.detail for line in lines if line.outcome == "done")


async def test_the_trail_can_be_verified_by_its_route(client: Client, buried: list[str]) -> None:
    await (await client(Role.OPERATOR)).post("/api/letters/archive", json={"ids": buried[:1]})
    verdict = (await (await client(Role.ADMIN)).get("/api/audit/verify")).json()
    assert (verdict["broken"], verdict["lines"]) == (None, 3), "its first line, the act, and its outcome"
