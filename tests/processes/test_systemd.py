"""systemd is told when a service is ready, when it stops and that it lives: on a real datagram socket."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from redrive.processes.systemd import Systemd
from tests.processes.conftest import Start
from tests.processes.world import SHOP, Manager, manager, send


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Manager]:
    with manager(tmp_path / "notify") as made:
        yield made


@pytest.mark.parametrize("words", [(), ("--processes", "2")])
def test_it_hears_of_the_start_and_of_the_end(start: Start, service: Manager, words: tuple[str, ...]) -> None:
    run = start("run", "shop:app", *words, NOTIFY_SOCKET=service.address)
    [ready] = service.told(lambda told: "READY=1" in told)
    assert ready.endswith("STATUS=2 of 2 processes run" if words else "STATUS=running")
    run.process.send_signal(signal.SIGTERM)
    service.told(lambda told: "STOPPING=1" in told)
    assert run.end() == 0


@pytest.mark.parametrize("words", [(), ("--processes", "2")])
def test_a_watchdog_is_fed(start: Start, service: Manager, words: tuple[str, ...]) -> None:
    run = start("run", "shop:app", *words, NOTIFY_SOCKET=service.address, WATCHDOG_USEC="20000000")
    service.told(lambda told: "WATCHDOG=1" in told)
    assert run.end(signal.SIGTERM) == 0


def test_a_reload_is_told(start: Start, service: Manager) -> None:
    run = start("run", "shop:app", "--processes", "2", NOTIFY_SOCKET=service.address)
    service.told(lambda told: "READY=1" in told)
    run.process.send_signal(signal.SIGHUP)
    [reloading] = service.told(lambda told: "RELOADING=1" in told)
    assert "MONOTONIC_USEC=" in reloading
    service.told(lambda told: "READY=1" in told)
    assert run.end(signal.SIGTERM) == 0


def test_a_process_whose_loop_hangs_is_ended_by_the_watchdog(shop: Path, start: Start, service: Manager) -> None:
    shop.joinpath("shop.py").write_text(
        SHOP + "\n@app.handler('hang')\nasync def hang(order: dict) -> None:\n    time.sleep(600)\n"
    )
    run = start("run", "shop:app", "--processes", "2", NOTIFY_SOCKET=service.address, WATCHDOG_USEC="3000000")
    run.pids(2)
    send(shop, "hang", 1)
    died = run.wait("process_died")
    assert died["cause"].startswith("SIGABRT")
    run.process.kill()


def test_what_is_started_by_a_process_does_not_speak_for_the_service(
    shop: Path, start: Start, service: Manager
) -> None:
    shop.joinpath("shop.py").write_text(
        SHOP + "\nassert not {'NOTIFY_SOCKET', 'WATCHDOG_USEC', '_REDRIVE_PROCESS'} & os.environ.keys()\n"
    )
    run = start("run", "shop:app", "--processes", "1", NOTIFY_SOCKET=service.address, WATCHDOG_USEC="20000000")
    run.pids(1)
    assert run.end(signal.SIGTERM) == 0


@pytest.mark.parametrize(
    ("environ", "span"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "3000000"}, 3),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid())}, 3),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_the_watchdog_of_the_environment(environ: dict[str, str], span: int | None) -> None:
    found = Systemd.found({"NOTIFY_SOCKET": "/run/notify"} | environ)
    assert found is not None
    assert found.watchdog == (None if span is None else timedelta(seconds=span))


@pytest.mark.parametrize("address", ["", "vsock:2:1234"])
def test_where_there_is_no_socket_of_ours_nobody_is_told(address: str) -> None:
    assert Systemd.found({"NOTIFY_SOCKET": address}) is None


def test_a_manager_that_is_gone_is_no_reason_to_stop(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    Systemd(str(tmp_path / "nobody")).ready("running")
    assert "systemd was not told READY=1" in caplog.text


def test_an_abstract_socket_is_reached(tmp_path: Path) -> None:
    name = f"redrive-test-{os.getpid()}"
    with manager(Path(f"\0{name}")) as made:
        Systemd(f"@{name}").stopping()
        assert made.told(lambda told: True)[0].startswith("STOPPING=1")
