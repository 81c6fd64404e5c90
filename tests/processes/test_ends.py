"""Ends that no user waits for: a process that does not stop, one that cannot be started, one that says nonsense."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from redrive.clock import SystemClock
from redrive.config.settings import Processes
from redrive.processes.process import Process
from redrive.processes.restarts import Restarts
from redrive.processes.slot import Slot
from redrive.processes.supervisor import Supervisor, command_of
from redrive.telemetry.events import Event, Events, ProcessDied
from redrive.testing.waiting import until
from tests.processes.world import SHOP, send

QUICK = Processes(pause=timedelta(milliseconds=10), longest_pause=timedelta(milliseconds=20), deaths=2)


async def test_who_does_not_stop_within_its_grace_is_killed(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hangs = (
        "\n@app.handler('hang')\nasync def hang(order: dict) -> None:\n    Path('hangs').touch()\n    time.sleep(600)\n"
    )
    shop.joinpath("shop.py").write_text(SHOP + hangs)
    monkeypatch.chdir(shop)
    await asyncio.to_thread(send, shop, "hang", 1)
    command = command_of(["run", "shop:app", "--grace", "0s"])
    supervisor = Supervisor(command, 1, QUICK, Events(), margin=timedelta(0))
    running = asyncio.create_task(supervisor.run())
    await until(lambda: (shop / "hangs").exists())
    supervisor.stop()
    assert await running == 1


async def test_a_command_that_cannot_be_run_is_given_up() -> None:
    events, seen = Events(), list[Event]()
    events.subscribe(seen.append)
    assert await Supervisor(["/no/such/program"], 2, QUICK, events).run() == 1
    causes = [event.cause for event in seen if isinstance(event, ProcessDied)]
    assert len(causes) == 2
    assert "cannot be started" in causes[0]


async def test_a_program_that_knows_nothing_of_us_is_one_that_died() -> None:
    events, seen = Events(), list[Event]()
    events.subscribe(seen.append)
    assert await Supervisor([sys.executable, "-c", "raise SystemExit(9)"], 1, QUICK, events).run() == 9
    assert [event.cause for event in seen if isinstance(event, ProcessDied)] == ["exit code 9"] * 2


async def test_who_is_stopped_is_not_renewed_any_more() -> None:
    """A reload that is under way must not start again what is to end."""
    started = list[int]()

    async def start(number: int) -> Process:
        started.append(number)
        raise OSError("nobody is started in this test")

    slot = Slot(1, start, Restarts(QUICK), Events(), SystemClock())
    slot.stop()
    renewing = asyncio.create_task(slot.renew())
    await asyncio.sleep(0)
    await slot.keep()
    assert started == []
    renewing.cancel()
