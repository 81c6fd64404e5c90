"""Answers that last: they are for who is still let in when they come."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from litestar import Litestar

from redrive.access.actors import Role
from redrive.access.tokens import Tokens
from redrive.service import Service
from tests.admin.conftest import Shop
from tests.cli.world import letter

MANY = 1_200  # letters: more than come in one part


@pytest.mark.parametrize("is_revoked", [False, True])
async def test_an_export_ends_when_its_token_is_revoked(
    shop: Shop, api: Litestar, tokens: Tokens, is_revoked: bool
) -> None:
    await shop.app.store.letters.record([letter(number) for number in range(MANY)])
    made, text = await tokens.create("ci", Role.ADMIN, unmask=True)
    over = asyncio.Event()
    lines, is_whole, asked = 0, False, [{"type": "http.request", "body": b"{}", "more_body": False}]

    async def receive() -> dict[str, Any]:
        if asked:
            return asked.pop()
        await over.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        nonlocal lines, is_whole
        if message["type"] == "http.response.body":
            lines += message.get("body", b"").count(b"\n")
            is_whole = not message.get("more_body", False)
            if is_whole:
                over.set()
            if is_revoked and lines:  # the first part is read
                await tokens.revoke(made.id)

    headers = [(b"host", b"redrive.test"), (b"authorization", f"Bearer {text}".encode())]
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/api/export",
        "raw_path": b"/api/export",
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "http_version": "1.1",
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "server": ("redrive.test", 80),
    }
    try:
        await cast(Any, api)(scope, receive, send)
    except Exception:
        assert is_revoked
    assert (lines == MANY, is_whole) == (not is_revoked, not is_revoked)
    told = [line["outcome"] for line in await Service(shop.app).audit() if line["action"] == "export"]
    assert told[0] == ("refused" if is_revoked else "done")
