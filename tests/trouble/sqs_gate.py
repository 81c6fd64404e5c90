"""A gate before a real SQS server: what AWS says under load or without rights, and no server of ours ever does, is said
here; everything else goes through to the real one."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from aiohttp import web

Said = tuple[int, dict[str, Any]]


class Gate:
    """What it says by itself.

    refuses   action and request to an answer of its own; None: the server is asked
    spoils    entries of a batch that are held back, and the code and fault that is said of them
    """

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.url = ""
        self.refuses: Callable[[str, dict[str, Any]], Said | None] = lambda action, request: None
        self.spoils: dict[str, tuple[list[int], str, bool]] = {}

    async def answer(self, request: web.Request) -> web.Response:
        action = request.headers["X-Amz-Target"].partition(".")[2]
        asked = json.loads(await request.read())
        refusal = self.refuses(action, asked)
        if refusal is not None:
            return web.json_response(refusal[1], status=refusal[0])
        failed = self._held_back(action, asked)
        if failed and not asked["Entries"]:
            return web.json_response({"Successful": [], "Failed": failed})
        status, said = await self._passed(request, asked)
        if failed and status == 200:
            said["Failed"] = [*(said.get("Failed") or ()), *failed]
        return web.json_response(said, status=status)

    def _held_back(self, action: str, asked: dict[str, Any]) -> list[dict[str, Any]]:
        """Some entries of the next batch, once."""
        if action not in self.spoils:
            return []
        places, code, fault = self.spoils.pop(action)
        held = [asked["Entries"][place] for place in places]
        asked["Entries"] = [entry for entry in asked["Entries"] if entry not in held]
        return [{"Id": entry["Id"], "Code": code, "Message": "so it says", "SenderFault": fault} for entry in held]

    async def _passed(self, request: web.Request, asked: dict[str, Any]) -> Said:
        names = ("Content-Type", "X-Amz-Target", "Authorization", "X-Amz-Date")
        headers = {name: request.headers[name] for name in names if name in request.headers}
        async with (
            aiohttp.ClientSession() as http,
            http.post(self.endpoint, data=json.dumps(asked), headers=headers) as answer,
        ):
            text = await answer.read()
            return answer.status, json.loads(text) if text else {}


@asynccontextmanager
async def gate_before(endpoint: str) -> AsyncIterator[Gate]:
    gate = Gate(endpoint)
    app = web.Application(client_max_size=1 << 24)
    app.router.add_post("/{rest:.*}", gate.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    gate.url = f"sqs://x:x@{host}:{port}?tls=false&region=us-east-1"
    try:
        yield gate
    finally:
        await runner.cleanup()
