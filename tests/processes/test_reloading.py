"""New code without a stop: SIGHUP in production, `--reload` while developing."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from redrive.processes.changes import times
from tests.processes.conftest import Start
from tests.processes.world import SHOP, SOON, is_alive, send
from tests.servers.waiting import wait_until

BROKEN = "def charge(:\n"


def write(shop: Path, text: str) -> None:
    """As editors do it: another file in its place."""
    new = shop / "new"
    new.write_text(text)
    new.replace(shop / "shop.py")


def test_sighup_replaces_the_processes_one_after_the_other(shop: Path, start: Start) -> None:
    run = start("run", "shop:app", "--processes", "2")
    before = run.pids(2)
    send(shop, "slow", 1)
    wait_until(lambda: (shop / "begun-1").exists(), "an order begun", SOON)
    run.process.send_signal(signal.SIGHUP)
    shop.joinpath("go").touch()
    run.wait("reloaded")
    assert (shop / "ended-1").exists()
    assert not any(map(is_alive, before))
    assert len(run.seen("process_started")) == 4
    assert run.seen("process_died") == []
    assert run.end(signal.SIGTERM) == 0


def test_code_that_cannot_be_started_is_not_loaded(shop: Path, start: Start) -> None:
    run = start("run", "shop:app", "--processes", "2")
    before = run.pids(2)
    write(shop, BROKEN)
    run.process.send_signal(signal.SIGHUP)
    run.wait("not reloaded")
    assert "cannot be imported: invalid syntax (shop.py, line 1)" in run.other
    assert all(map(is_alive, before))
    write(shop, SHOP)
    run.process.send_signal(signal.SIGHUP)
    run.wait("reloaded", level="info")
    assert not any(map(is_alive, before))
    assert run.end(signal.SIGTERM) == 0


def test_an_edited_file_is_loaded(shop: Path, start: Start) -> None:
    run = start("run", "shop:app", "--reload")
    [before] = run.pids(1)
    send(shop, "slow", 1)
    wait_until(lambda: (shop / "begun-1").exists(), "an order begun", SOON)
    shop.joinpath("go").touch()
    write(shop, SHOP.replace("VERSION = 1", "VERSION = 2"))
    assert "shop.py" in run.wait("changed")["event"]
    new = run.wait("process_started", times=2)["pid"]
    assert new != before
    assert (shop / "ended-1").exists()
    assert run.end(signal.SIGINT) == 0


def test_broken_code_is_said_once_and_waited_for(shop: Path, start: Start) -> None:
    write(shop, BROKEN)
    run = start("run", "shop:app", "--reload", "--processes", "2")
    run.wait("waits for a change")
    write(shop, SHOP)
    run.pids(2)
    write(shop, BROKEN)
    run.wait("waits for a change", times=2)
    assert run.other.count("cannot be imported: invalid syntax (shop.py, line 1)") == 2
    write(shop, SHOP + "\n")
    run.wait("process_started", times=2, process=1)
    run.wait("process_started", times=2, process=2)
    assert run.seen("process_died") == []
    assert run.end(signal.SIGTERM) == 0


def test_what_waits_for_a_change_can_be_stopped(shop: Path, start: Start) -> None:
    write(shop, BROKEN)
    run = start("run", "shop:app", "--reload")
    run.wait("waits for a change")
    assert run.end(signal.SIGINT) == 0


@pytest.mark.parametrize("name", ["a.py", "deep/er/b.py", "redrive.toml"])
def test_what_is_watched(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("")
    assert set(times(tmp_path)) == {name}
    before = times(tmp_path)
    os.utime(file, (1, 1))
    assert times(tmp_path) != before


@pytest.mark.parametrize("name", ["a.log", ".git/a.py", "node_modules/a.py", "env/a.py", "__pycache__/a.py"])
def test_what_is_not_watched(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("")
    (tmp_path / "env").mkdir(exist_ok=True)
    (tmp_path / "env" / "pyvenv.cfg").write_text("")
    assert times(tmp_path) == {}
