"""The process: started by its command, asked over a real socket, ended by a real signal."""

from __future__ import annotations

import asyncio
import signal
import socket
from pathlib import Path

import httpx
import pytest

from redrive.access.actors import Role
from redrive.access.tokens import Tokens
from redrive.admin.api import admit
from redrive.errors import ConfigError
from tests.admin.conftest import Shop
from tests.admin.process import redrive

_APP = """
import asyncio
from redrive import Redrive

app = Redrive()

@app.handler("slow")
async def slow(body: dict) -> None:
    print("began", flush=True)
    await asyncio.sleep(body["seconds"])
    print("ended", flush=True)
"""


async def test_up_answers_with_the_token_it_printed_and_ends_cleanly(tmp_path: Path) -> None:
    async with redrive(tmp_path, "up", "--port", "0", "--print-token") as up:
        address = await up.line(r"(http://127\.0\.0\.1:\d+/)#token=(rdr_[\w-]+)")
        await up.line("Ctrl-C")
        headers = {"Authorization": f"Bearer {address[2]}"}
        async with httpx.AsyncClient(base_url=address[1], headers=headers) as http:
            assert (await http.get("/readyz")).json()["status"] == "ok"
            assert (await http.get("/api/me")).json()["role"] == "admin"
            assert (await http.get("/")).headers["content-type"].startswith("text/html")
        assert await up.end(signal.SIGINT) == 0


async def test_a_port_in_use_is_said(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        async with redrive(tmp_path, "up", "--port", port) as up:
            assert await up.end() == 2
            assert f"port {port} on 127.0.0.1 is in use" in await up.errors()


async def test_without_a_token_another_address_is_refused(tmp_path: Path) -> None:
    async with redrive(tmp_path, "up", "--host", "0.0.0.0", "--port", "0") as up:
        assert await up.end() == 2
        assert "redrive token create --role admin" in await up.errors()


async def test_with_a_token_another_address_serves(tmp_path: Path) -> None:
    async with redrive(tmp_path, "token", "create", "--role", "viewer", "--name", "ci") as made:
        token = (await made.line(r"rdr_\S+"))[0]
    async with redrive(tmp_path, "up", "--host", "0.0.0.0", "--port", "0") as up:
        port = (await up.line(r"http://0\.0\.0\.0:(\d+)/$"))[1]
        await up.line("Ctrl-C")
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
            assert (await http.get("/metrics")).status_code == 401
            assert (await http.get("/metrics", headers={"Authorization": f"Bearer {token}"})).status_code == 200
        assert await up.end(signal.SIGTERM) == 0


async def test_an_app_is_handled_in_the_same_process_and_drained(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(_APP)
    async with redrive(tmp_path, "send", "slow", '{"seconds": 0.2}') as sent:
        assert await sent.end() == 0
    async with redrive(tmp_path, "up", "--port", "0", "--app", "shop:app") as up:
        await up.line("began")
        assert await up.end(signal.SIGINT) == 0
        await up.line("ended")


async def test_the_second_ctrl_c_ends_at_once(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(_APP)
    async with redrive(tmp_path, "send", "slow", '{"seconds": 3600}') as sent:
        assert await sent.end() == 0
    async with redrive(tmp_path, "up", "--port", "0", "--app", "shop:app") as up:
        await up.line("began")
        up.child.send_signal(signal.SIGINT)
        assert up.child.stderr is not None
        async with asyncio.timeout(30):
            while b"stopping" not in await up.child.stderr.readline():
                pass
        assert await up.end(signal.SIGINT) == 130


async def test_the_demonstration_shows_a_life_and_ends_cleanly(tmp_path: Path) -> None:
    async with redrive(tmp_path, "demo", "--port", "0", "--dir", str(tmp_path / "demo")) as demo:
        await demo.line(r"http://127\.0\.0\.1:\d+/#token=rdr_", timeout=300)  # it makes a past first
        await demo.line(r"redrive --store sqlite:////\S+demo\.db groups")
        await demo.line(r"sent \d+, letters", timeout=300)
        assert await demo.end(signal.SIGINT) == 0
        await demo.line("The letters are still in")
    assert (tmp_path / "demo" / "demo.db").exists()


async def test_who_may_listen_where(shop: Shop, tokens: Tokens) -> None:
    for host in ("127.0.0.1", "::1", "localhost"):
        once = await admit(tokens, host)
        assert once is not None
        assert await tokens.check(once) is not None
    for host in ("0.0.0.0", "::", "10.0.0.7", "redrive.example"):
        with pytest.raises(ConfigError, match="redrive token create"):
            await admit(tokens, host)
    made, _ = await tokens.create("me", Role.VIEWER)
    assert await admit(tokens, "0.0.0.0") is None
    assert await admit(tokens, "127.0.0.1") is None
    await tokens.revoke(made.id)
    with pytest.raises(ConfigError):
        await admit(tokens, "0.0.0.0")
