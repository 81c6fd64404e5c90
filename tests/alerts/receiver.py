"""A real HTTP server that takes what notifiers send, and answers as it is told: also badly, late, or never."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from redrive.testing.waiting import until


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Answer:
    """A status; `hang` never answers, `close` hangs up without a word."""

    status: int = 202
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b"{}"
    hang: bool = False
    close: bool = False


HANG, CLOSE = Answer(hang=True), Answer(close=True)


class Receiver:
    """Keeps every request. `answers` are given in turn, then `always`."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.answers: deque[Answer] = deque()
        self.always = Answer()
        self.port = 0
        self.asked = asyncio.Event()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def got(self, count: int) -> list[Request]:
        await until(lambda: len(self.requests) >= count, what=f"{count} requests")
        return self.requests

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (request := await _read(reader)) is not None:
                self.requests.append(request)
                self.asked.set()
                answer = self.answers.popleft() if self.answers else self.always
                if answer.hang:
                    await reader.read()  # until the other side goes away
                if answer.hang or answer.close:
                    break
                writer.write(_written(answer))
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


async def _read(reader: asyncio.StreamReader) -> Request | None:
    line = await reader.readline()
    if not line:
        return None
    method, path, _ = line.decode().split()
    headers = {}
    while (header := (await reader.readline()).decode().strip()) != "":
        name, _, value = header.partition(":")
        headers[name.lower()] = value.strip()
    return Request(method, path, headers, await reader.readexactly(int(headers.get("content-length", "0"))))


def _written(answer: Answer) -> bytes:
    lines = [f"HTTP/1.1 {answer.status} X", f"Content-Length: {len(answer.body)}"]
    lines += [f"{name}: {value}" for name, value in answer.headers]
    return "\r\n".join([*lines, "", ""]).encode() + answer.body


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    made = Receiver()
    connections: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        await made.serve(reader, writer)
        connections.discard(task)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    yield made
    server.close()
    for task in connections:
        task.cancel()
    await asyncio.gather(*connections, return_exceptions=True)
    await server.wait_closed()
