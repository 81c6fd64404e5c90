"""Clients that stall: half-open requests, bodies that trickle, connections nobody uses. Others notice nothing."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from msgspec.structs import replace

from redrive import Redrive
from redrive.access.actors import Role
from redrive.admin.server import Server
from redrive.config.settings import Admin, Settings
from tests.admin.process import python

SOON, LATER = timedelta(milliseconds=300), timedelta(hours=1)
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def served(place: Path, **limits: object) -> AsyncIterator[tuple[Server, str]]:
    """A real server on a real socket with those limits, all others far away, and a viewer's token."""
    url = f"sqlite:///{place / 'redrive.db'}"
    far = Admin(header_timeout=LATER, body_timeout=LATER, idle_timeout=LATER)
    admin = replace(far, **limits)
    async with Redrive(settings=Settings(store=url, transports={"default": url}, admin=admin)) as app:
        server = Server(app, "127.0.0.1", 0, upkeep=False)
        _, token = await server.tokens.create("me", Role.VIEWER)
        running = asyncio.create_task(server.run())
        try:
            assert await works(server, token)  # it answers: so it can be stopped
            yield server, token
        finally:
            server.stop()
            await running


async def opened(server: Server, *sent: bytes) -> Stream:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    for part in sent:
        writer.write(part)
        await writer.drain()
    return reader, writer


async def answered(stream: Stream) -> bytes:
    """Everything until the server closes; a reset is an end, too, and takes back nothing that was read."""
    said = b""
    try:
        async with asyncio.timeout(30):
            while part := await stream[0].read(65536):
                said += part
    except ConnectionError:
        pass
    finally:
        stream[1].close()
    return said


async def works(server: Server, token: str) -> bool:
    async with httpx.AsyncClient(base_url=server.address, timeout=30) as http:
        return (await http.get("/api/stats", headers={"Authorization": f"Bearer {token}"})).status_code == 200


HALF = b"GET /api/stats HTTP/1.1\r\nHost: localhost\r\n"
BODY = b"POST /api/replays HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\nAuthorization: Bearer %s\r\n\r\n{"


async def test_150_half_open_requests_change_nothing_for_others(tmp_path: Path) -> None:
    async with served(tmp_path, connections=100) as (server, token):
        half_open = [await opened(server, HALF) for _ in range(150)]
        for _ in range(3):
            assert await works(server, token)
        for _, writer in half_open:
            writer.close()


FEW_FILES = """
import resource, runpy, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
sys.argv[1:] = ["up", "--port", "0"]
runpy.run_module("redrive.cli", run_name="__main__")
"""


async def test_half_open_requests_use_up_no_files_that_newcomers_need(tmp_path: Path) -> None:
    (tmp_path / "redrive.toml").write_text('store = "memory://"\n[admin]\nconnections = 300\n')
    async with python(tmp_path, "-c", FEW_FILES) as up:
        port = int((await up.line(r"http://127\.0\.0\.1:(\d+)/"))[1])
        await up.line("Ctrl-C")
        half_open = []
        for _ in range(400):
            half_open.append((await asyncio.open_connection("127.0.0.1", port))[1])
            half_open[-1].write(HALF)
        async with httpx.AsyncClient(timeout=30) as http:
            for _ in range(3):
                assert (await http.get(f"http://127.0.0.1:{port}/healthz")).status_code == 200
        for writer in half_open:
            writer.close()


async def test_headers_that_never_end_are_not_waited_for(tmp_path: Path) -> None:
    async with served(tmp_path, header_timeout=SOON) as (server, token):
        silent, half = await opened(server), await opened(server, HALF)
        assert b" 408 " in await answered(silent)
        assert b" 408 " in await answered(half)
        assert await works(server, token)


@pytest.mark.parametrize("kind", ["headers", "body"])
async def test_a_byte_now_and_then_prolongs_nothing(tmp_path: Path, kind: str) -> None:
    limits = {"header_timeout": SOON} if kind == "headers" else {"body_timeout": SOON}
    async with served(tmp_path, **limits) as (server, token):
        stream = await opened(server, HALF if kind == "headers" else BODY % token.encode())
        trickling = asyncio.create_task(trickle(stream[1]))
        assert b" 408 " in await answered(stream)
        trickling.cancel()
        assert await works(server, token)


async def trickle(writer: asyncio.StreamWriter) -> None:
    while not writer.is_closing():
        writer.write(b"x")
        await asyncio.sleep(0.02)


ASKED = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def deaf(server: Server) -> socket.socket:
    """A client that asks for more than the machine keeps for it, and reads nothing of that."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(client, ("127.0.0.1", server.port))
    await loop.sock_sendall(client, ASKED * 60)
    return client


async def cut_off(client: socket.socket) -> bool:
    """Whether the server has cut it off: what it sends is answered with a reset."""
    async with asyncio.timeout(30):
        while True:
            try:
                await asyncio.get_running_loop().sock_sendall(client, b"G")  # this prolongs nothing
            except ConnectionError:
                return True
            await asyncio.sleep(0.05)


async def test_who_reads_nothing_of_many_answers_is_cut_off(tmp_path: Path) -> None:
    async with served(tmp_path, body_timeout=SOON) as (server, token):
        clients = [await deaf(server) for _ in range(3)]
        for client in clients:
            assert await cut_off(client)
            client.close()
        assert await works(server, token)


async def test_who_reads_no_answer_makes_room_for_newcomers(tmp_path: Path) -> None:
    async with served(tmp_path, connections=5) as (server, token):
        clients = [await deaf(server) for _ in range(8)]
        async with asyncio.timeout(30):
            while not await works(server, token):
                pass  # their answers are still being made
        for _ in range(3):
            assert await works(server, token)
        for client in clients:
            client.close()


async def test_a_body_that_is_garbage_or_broken_off_is_no_bug_of_ours(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    head = b"POST /api/replays HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n"
    async with served(tmp_path) as (server, _):
        _, token = await server.tokens.create("op", Role.OPERATOR)
        for sent in (
            head % token.encode() + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\nZZ\r\n",
            head % b"wrong" + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\nZZ\r\n",
        ):
            assert b" 40" in await answered(await opened(server, sent))
        refused = await opened(server, head % b"wrong" + b"Transfer-Encoding: chunked\r\n\r\n")
        assert b" 401 " in await refused[0].readuntil(b"\r\n\r\n")
        refused[1].write(b"ZZ\r\n")  # after its answer
        await answered(refused)
        _, writer = await opened(server, head % token.encode() + b"Content-Length: 10\r\n\r\n{")
        writer.transport.abort()
        assert await works(server, token)
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_connection_that_nobody_uses_is_closed(tmp_path: Path) -> None:
    async with served(tmp_path, idle_timeout=SOON) as (server, _):
        stream = await opened(server, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        said = await answered(stream)
        assert b" 200 " in said
        assert b" 408 " not in said


async def test_a_kept_connection_answers_again_and_again(tmp_path: Path) -> None:
    async with (
        served(tmp_path, header_timeout=SOON, body_timeout=SOON) as (server, _),
        httpx.AsyncClient(base_url=server.address, timeout=30) as http,
    ):
        used = set()
        for _ in range(3):
            async with http.stream("GET", "/healthz") as answer:
                assert answer.status_code == 200
                used.add(answer.extensions["network_stream"].get_extra_info("client_addr"))
                await answer.aread()
            await asyncio.sleep(SOON.total_seconds() * 1.5)  # longer than headers may take: nothing was begun
        assert len(used) == 1
