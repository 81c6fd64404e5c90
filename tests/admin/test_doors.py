"""What somebody without a token learns, and what becomes of those who try one that is wrong."""

from __future__ import annotations

import asyncio
import signal
import stat
from pathlib import Path

import pytest
from litestar import Litestar

from redrive.access.actors import Role
from redrive.access.logins import Logins, pause_after
from redrive.access.tokens import Tokens
from redrive.forensics.transfer import append_lines
from redrive.telemetry.events import Event, LoginFailed
from tests.admin.conftest import Client, Shop
from tests.admin.process import redrive
from tests.admin.test_health import away


async def test_an_outsider_hears_only_whether_it_is_ready(
    client: Client, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    for role in (None, "rdr_wrong"):
        assert (await (await client(role)).get("/readyz")).json() == {"status": "ok"}
    monkeypatch.setattr(shop.app.store, "check", away)
    answer = await (await client(None)).get("/readyz")
    assert (answer.status_code, answer.json()) == (503, {"status": "unavailable"})


async def test_the_openapi_document_is_written_once(client: Client, api: Litestar) -> None:
    http = await client(None)
    first = (await http.get("/openapi.json")).content
    kept = api.state.openapi_written
    assert first == (await http.get("/openapi.json")).content == kept
    assert api.state.openapi_written is kept


async def test_a_failed_login_is_told_and_counted_without_its_token(
    client: Client, shop: Shop, tokens: Tokens, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Event] = []
    shop.app.events.subscribe(seen.append)
    wrong = "rdr_aaaaaaaaaa_" + "x" * 43
    for _ in range(2):
        assert (await (await client(wrong)).get("/api/stats")).status_code == 401
    found = [event for event in seen if isinstance(event, LoginFailed)]
    assert [event.times for event in found] == [1, 2]
    assert wrong not in str(found)
    metrics = (await (await client(Role.VIEWER)).get("/metrics")).text
    assert "redrive_logins_failed_total 2.0" in metrics


async def test_a_route_that_is_open_to_all_is_no_place_to_try_tokens(client: Client, shop: Shop) -> None:
    seen: list[Event] = []
    shop.app.events.subscribe(seen.append)
    for role in (None, Role.VIEWER, "rdr_aaaaaaaaaa_" + "x" * 43, "rdr_bbbbbbbbbb_" + "x" * 43):
        assert (await (await client(role)).get("/readyz")).status_code == 200
    assert [event.times for event in seen if isinstance(event, LoginFailed)] == [1, 2]


async def test_wrong_tokens_wait_and_right_ones_do_not(client: Client, api: Litestar) -> None:
    asleep, wake = asyncio.Event(), asyncio.Event()

    async def sleep(seconds: float) -> None:
        asleep.set()
        await wake.wait()

    logins: Logins = api.state.door.logins
    logins.sleep = sleep
    wrong = await client("rdr_aaaaaaaaaa_" + "x" * 43)
    for _ in range(5):
        assert (await wrong.get("/api/stats")).status_code == 401
    waiting = asyncio.create_task(wrong.get("/api/stats"))
    await asleep.wait()
    assert (await (await client(Role.VIEWER)).get("/api/stats")).status_code == 200  # from the same address, even
    assert not waiting.done()
    wake.set()
    assert (await waiting).status_code == 401


async def test_addresses_that_fail_take_bounded_room() -> None:
    logins = Logins()
    for number in range(20_000):
        await logins.failed(f"10.0.{number >> 8}.{number & 255}")
    assert logins.addresses == 10_000
    assert pause_after(5) == 0 < pause_after(6) < pause_after(9) < pause_after(10_000) <= 5


def test_what_is_exported_is_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "pruned.jsonl"
    append_lines(file, [])
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_a_token_is_not_written_into_what_is_captured(tmp_path: Path) -> None:
    async with redrive(tmp_path, "up", "--port", "0") as up:
        await up.line(r"console  http://127\.0\.0\.1:\d+/$")
        await up.line("--print-token")
        await up.line("Ctrl-C")
        assert await up.end(signal.SIGINT) == 0
        assert "rdr_" not in up.seen + await up.errors()
