"""Secrets of a letter are seen one letter at a time, by who may, with a reason, and the trail has it."""

from __future__ import annotations

from base64 import b64decode

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
    assert (await seer.post(path, json={"reason": "   "})).status_code == 400
    shown = (await seer.post(path, json={"reason": "ticket 4711"})).json()
    assert shown["redacted"] is False
    letter = await Service(shop.app).find(buried[0])
    assert b64decode(shown["body"]) == letter.message.body
    done, *others = (await admin.get("/api/audit", params={"action": "unmask"})).json()
    assert (done["outcome"], done["reason"], letter.id in done["about"]) == ("done", "ticket 4711", True)
    assert "sha256" in done["detail"]
    assert [line["outcome"] for line in others] == ["refused"] * 3
    assert (await admin.get(f"/api/letters/{buried[0]}/message")).json()["redacted"] is True


async def test_the_trail_can_be_verified_by_its_route(client: Client, buried: list[str]) -> None:
    await (await client(Role.OPERATOR)).post("/api/letters/archive", json={"ids": buried[:1]})
    verdict = (await (await client(Role.ADMIN)).get("/api/audit/verify")).json()
    assert (verdict["broken"], verdict["lines"]) == (None, 3), "its first line, the act, and its outcome"
