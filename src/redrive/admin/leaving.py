"""A request that only reads ends when its client has left: nobody waits for the answer, so the store stops, too.

What acts goes on: half an act would be worse than one whose answer nobody reads.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from litestar.types import ASGIApp, Message, Receive, Scope, Send

_LEFT: Message = {"type": "http.disconnect"}
_AHEAD = 4  # parts of a body that nobody has read yet


def ends_when_left(app: ASGIApp) -> ASGIApp:
    """The app, whose GETs are cancelled when their client leaves; a route with `reads=True` in its options, too."""

    async def watching(scope: Scope, receive: Receive, send: Send) -> None:
        reads = scope.get("method") == "GET" or scope["route_handler"].opt.get("reads")
        await (_until_left(app, scope, receive, send) if reads else app(scope, receive, send))

    return watching


async def _until_left(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    asked: asyncio.Queue[Any] = asyncio.Queue(_AHEAD)
    is_answered = False

    async def listen() -> None:
        while (message := await receive())["type"] != "http.disconnect":
            await asked.put(message)
        await asked.put(_LEFT)

    async def heard() -> Any:
        return _LEFT if listening.done() and asked.empty() else await asked.get()

    async def answer(message: Message) -> None:
        nonlocal is_answered
        is_answered = message["type"] == "http.response.body" and not message.get("more_body", False)
        await send(message)

    listening = asyncio.create_task(listen())
    answering = asyncio.ensure_future(app(scope, heard, answer))
    try:
        await asyncio.wait({listening, answering}, return_when=asyncio.FIRST_COMPLETED)
        if not is_answered:  # else it has only to tidy up
            answering.cancel()
        with suppress(asyncio.CancelledError):
            await answering
    finally:
        for task in (listening, answering):
            task.cancel()
        await asyncio.gather(listening, answering, return_exceptions=True)
