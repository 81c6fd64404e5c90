"""Several worker processes under one supervisor: who dies is started again, who stops loses nothing."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes.conftest import Start
from tests.processes.world import SOON, handled, is_alive, send
from tests.servers.waiting import wait_until


def test_two_processes_share_the_work_and_stop_together(shop: Path, start: Start) -> None:
    run = start("run", "shop:app", "--processes", "2")
    first, second = run.pids(2)
    assert len({first, second, run.process.pid}) == 3
    send(shop, "orders", *range(50))
    wait_until(lambda: len(handled(shop)) == 50, "every order", SOON)
    assert run.end(signal.SIGTERM) == 0
    assert len(run.seen("worker_stopped")) == 2
    assert not is_alive(first)
    assert not is_alive(second)
    assert run.seen("process_died") == []
    assert all(len(pids) == 1 for pids in handled(shop).values())


def test_auto_is_a_process_on_each_cpu_that_is_ours(start: Start) -> None:
    run = start("run", "shop:app", "--processes", "auto")
    run.pids(len(os.sched_getaffinity(0)))
    assert run.end(signal.SIGINT) == 0


@pytest.mark.parametrize("words", ["0", "-1", "two", "1001", "1.5", ""])
def test_a_number_that_is_none_is_refused(start: Start, words: str) -> None:
    run = start("run", "shop:app", "--processes", words)
    assert run.end() == 2
    assert "a number from 1 to 1,000, or auto" in run.other


def test_a_process_that_is_killed_is_said_and_started_again(shop: Path, start: Start) -> None:
    run = start("run", "shop:app", "--processes", "2")
    first, second = run.pids(2)
    os.kill(second, signal.SIGKILL)
    died = run.wait("process_died")
    assert (died["process"], died["pid"]) == (2, second)
    assert died["cause"].startswith("SIGKILL")
    assert died["next_start_in"] > 0
    new = run.wait("process_started", times=2, process=2)["pid"]
    assert new not in (first, second)
    assert run.end(signal.SIGTERM) == 0
    assert len(run.seen("process_died")) == 1


def test_all_of_them_killed_at_once_come_back(shop: Path, start: Start) -> None:
    run = start("run", "shop:app", "--processes", "3")
    for pid in run.pids(3):
        os.kill(pid, signal.SIGKILL)
    for number in (1, 2, 3):
        run.wait("process_started", times=2, process=number)
    send(shop, "orders", 1)
    wait_until(lambda: 1 in handled(shop), "an order handled by who came back", SOON)
    assert run.end(signal.SIGTERM) == 0


def test_a_process_that_is_stopped_by_hand_ends_cleanly_and_is_replaced(start: Start) -> None:
    run = start("run", "shop:app", "--processes", "2")
    _, second = run.pids(2)
    os.kill(second, signal.SIGTERM)
    assert run.wait("process_died", process=2)["cause"] == "exit code 0: it ended by itself"
    run.wait("process_started", times=2, process=2)
    assert run.end(signal.SIGTERM) == 0


def test_a_wrong_import_is_said_once_and_ends_it(shop: Path, start: Start) -> None:
    shop.joinpath("shop.py").write_text("import os\n\nraise RuntimeError('no key')\n")
    run = start("run", "shop:app", "--processes", "3")
    assert run.end() == 2
    assert len(run.other.splitlines()) == 1
    assert "cannot be imported: RuntimeError: no key" in run.other
    assert run.lines == []


def test_wrong_settings_are_said_once_and_start_nothing(start: Start) -> None:
    run = start("run", "shop:app", "--processes", "2", REDRIVE_CONCURRENCY="many")
    assert run.end() == 2
    assert len(run.other.splitlines()) == 1


def test_what_dies_again_and_again_is_given_up(shop: Path, start: Start) -> None:
    shop.joinpath("shop.py").write_text("import os\n\nos._exit(7)\n")
    run = start("run", "shop:app", "--processes", "2", REDRIVE_PROCESSES_DEATHS="3")
    assert run.end() == 7
    pauses = [line.get("next_start_in") for line in run.seen("process_died", cause="exit code 7")]
    assert pauses == [0.01, 0.02, None]
    assert len(run.seen("giving up")) == 1


def test_who_gives_up_stops_the_others_cleanly(shop: Path, start: Start) -> None:
    run = start("run", "shop:app", "--processes", "2", REDRIVE_PROCESSES_DEATHS="1")
    first, second = run.pids(2)
    send(shop, "slow", 1)
    wait_until(lambda: (shop / "begun-1").exists(), "an order begun", SOON)
    busy = int((shop / "begun-1").read_text())
    os.kill(second if busy == first else first, signal.SIGKILL)
    run.wait("giving up")
    shop.joinpath("go").touch()
    assert run.end() == 1
    assert (shop / "ended-1").exists()
    assert len(run.seen("worker_stopped")) == 1


def test_what_is_being_handled_finishes_when_all_are_stopped(shop: Path, start: Start) -> None:
    run = start("run", "shop:app", "--processes", "2")
    run.pids(2)
    send(shop, "slow", *range(4))
    wait_until(lambda: len(list(shop.glob("begun-*"))) == 4, "orders begun", SOON)
    run.process.send_signal(signal.SIGTERM)
    run.wait("stopping")
    shop.joinpath("go").touch()
    assert run.end() == 0
    assert len(list(shop.glob("ended-*"))) == 4


def test_a_manager_that_signals_every_process_of_a_service_is_heard_once(shop: Path, start: Start) -> None:
    """As systemd does by default. To a worker, a second signal would mean `at once`."""
    run = start("run", "shop:app", "--processes", "2")
    pids = run.pids(2)
    send(shop, "slow", 1)
    wait_until(lambda: (shop / "begun-1").exists(), "an order begun", SOON)
    for pid in (*pids, run.process.pid):
        os.kill(pid, signal.SIGTERM)
    run.wait("stopping", times=2)
    shop.joinpath("go").touch()
    assert run.end() == 0
    assert (shop / "ended-1").exists()
    assert run.seen("stopped at once") == []


def test_the_second_signal_ends_all_at_once(shop: Path, start: Start) -> None:
    run = start("run", "shop:app", "--processes", "2")
    pids = run.pids(2)
    send(shop, "slow", 1)
    wait_until(lambda: (shop / "begun-1").exists(), "an order begun", SOON)
    run.process.send_signal(signal.SIGINT)
    run.wait("stopping")
    assert run.end(signal.SIGINT) == 130
    wait_until(lambda: not any(map(is_alive, pids)), "the end of its processes", SOON)
    assert not (shop / "ended-1").exists()


def test_when_the_supervisor_is_killed_its_processes_notice_and_drain(shop: Path, start: Start) -> None:
    run = start("run", "shop:app", "--processes", "2")
    pids = run.pids(2)
    send(shop, "slow", 1)
    wait_until(lambda: (shop / "begun-1").exists(), "an order begun", SOON)
    run.process.kill()
    run.process.wait()
    run.wait("the supervisor is gone", times=2)
    shop.joinpath("go").touch()
    wait_until(lambda: not any(map(is_alive, pids)), "the end of its processes", SOON)
    assert (shop / "ended-1").exists()
    assert len(run.seen("worker_stopped")) == 2


def test_ctrl_c_in_a_terminal_counts_once(shop: Path) -> None:
    """A terminal signals every process that is in front; the second signal would end at once."""
    send(shop, "slow", 1)
    main, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "redrive", "run", "shop:app", "--processes", "2"],
        cwd=shop,
        env=os.environ | {"REDRIVE_LOGS_FORMAT": "json"},
        stdin=terminal,
        stdout=terminal,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=_take_terminal,
    )
    os.close(terminal)
    try:
        wait_until(lambda: (shop / "begun-1").exists(), "an order begun", SOON)
        os.write(main, b"\x03")
        assert process.stderr is not None
        said = b""
        while b"once more to stop at once" not in said:
            said += process.stderr.readline()
        shop.joinpath("go").touch()
        assert process.wait(SOON.total_seconds()) == 0
        assert (shop / "ended-1").exists()
        assert b"stopped at once" not in said + process.stderr.read()
    finally:
        process.kill()
        process.communicate()
        os.close(main)


def _take_terminal() -> None:
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def test_one_process_that_is_asked_for_none_has_no_supervisor(shop: Path, start: Start) -> None:
    run = start("run", "shop:app")
    worker = run.wait("worker_started")["worker"]
    assert worker.endswith(f":{run.process.pid}")
    assert run.end(signal.SIGTERM) == 0
    assert run.seen("process_") == []


def test_each_has_a_name_of_its_own_and_keeps_it(start: Start) -> None:
    run = start("run", "shop:app", "--processes", "2", REDRIVE_WORKER="till")
    _, second = run.pids(2)
    assert {line["worker"] for line in run.seen("worker_started")} == {"till-1", "till-2"}
    os.kill(second, signal.SIGKILL)
    assert run.wait("worker_started", times=2, process=2)["worker"] == "till-2"
    assert run.end(signal.SIGTERM) == 0


def test_the_upkeep_is_that_of_the_first(shop: Path, start: Start) -> None:
    shop.joinpath("shop.py").write_text(
        "from redrive import Redrive\nfrom redrive.upkeep.loop import Upkeep\nimport logging\n"
        "app = Redrive()\nrun = Upkeep.run\n"
        "async def told(self):\n    logging.getLogger('shop').warning('upkeep runs')\n    await run(self)\n"
        "Upkeep.run = told\n"
        "@app.handler('orders')\nasync def charge(order: dict) -> None: ...\n"
    )
    run = start("run", "shop:app", "--processes", "3")
    run.pids(3)
    assert run.end(signal.SIGTERM) == 0
    assert [line["process"] for line in run.seen("upkeep runs")] == [1]
