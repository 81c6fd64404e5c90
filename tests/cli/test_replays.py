"""A replay can be looked at, stopped and gone on with, whatever happened to the process that began it."""

from __future__ import annotations

import signal
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from redrive.flow.replay import KIND, Replay, ReplayState
from redrive.model import State
from redrive.service import Service
from redrive.stores.base import EntryStatus
from tests.cli.world import SOON, Shell, World, letter
from tests.servers.waiting import wait_until

BOTH_HOMES = True

SLOW = ("replay", "--source", "orders", "--yes", "--rate", "1/m")  # one letter, then a minute of rest


def _four(shell: Shell) -> None:
    shell.keep([letter(number) for number in range(1, 5)])


def _begun(shell: Shell) -> Replay | None:
    """The replay, once its first letters are sent."""

    async def look(service: Service) -> Replay | None:
        for replay in await service.replays.list():
            if (await service.replay_report(replay.id)).entries.get(EntryStatus.SENT):
                return replay
        return None

    return shell.ask(look)


def _stopped(shell: Shell, by: signal.Signals) -> tuple[str, subprocess.Popen[bytes], str]:
    """A replay that was stopped in the middle by that signal."""
    _four(shell)
    process = shell.start(*SLOW)
    wait_until(lambda: _begun(shell) is not None, "the first letters to be sent", timedelta(seconds=SOON))
    process.send_signal(by)
    said = process.communicate(timeout=SOON)[1].decode()
    replay = _begun(shell)
    assert replay is not None
    return replay.id, process, said


def test_ctrl_c_says_how_to_go_on_and_resume_does(shell: Shell) -> None:
    id, process, said = _stopped(shell, signal.SIGINT)
    assert process.returncode == 130
    assert "Traceback" not in said
    assert f"redrive replays resume {id}" in said
    assert f"redrive replays cancel {id}" in said
    assert shell.ask(lambda service: service.replays.get(id)).runner is None
    shell.ask(lambda service: _changed(service, id, rate=None))
    report = shell.json("replays", "resume", id)
    assert (report["replay"]["state"], report["entries"]) == ("sent", {"sent": 4})
    assert shell.queued() == {"orders": 4}


def test_a_killed_replay_is_resumed_and_sends_nothing_twice(shell: Shell) -> None:
    id, process, _ = _stopped(shell, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    ended = datetime.now(UTC)  # as if the lease of the dead runner had ended
    shell.ask(lambda service: _changed(service, id, rate=None, runner_until=ended))
    assert shell.json("replays", "resume", id)["entries"] == {"sent": 4}
    assert shell.queued() == {"orders": 4}


def test_a_replay_that_somebody_runs_is_left_to_him(shell: Shell) -> None:
    id, _, _ = _stopped(shell, signal.SIGKILL)
    process = shell.start("replays", "resume", id)
    assert process.stderr is not None
    assert "runs it, or died with it" in process.stderr.readline().decode()
    shell.ask(lambda service: _changed(service, id, rate=None, runner_until=datetime.now(UTC)))
    assert process.communicate(timeout=SOON)
    assert process.returncode == 0
    assert shell.queued() == {"orders": 4}


async def _changed(service: Service, id: str, **changes: Any) -> None:
    replay = msgspec.structs.replace(await service.replays.get(id), **changes)
    await service.app.store.documents.put(KIND, id, msgspec.to_builtins(replay))


def test_a_replay_whose_broker_is_away_says_what_it_waits_for_and_until_when(shell: Shell) -> None:
    (shell.place / "redrive.toml").write_text('[transports]\nrabbit = "amqp://127.0.0.1:1/"\n')
    shell.keep([letter(1), msgspec.structs.replace(letter(2), transport="rabbit")])
    process = shell.start("replay", "--source", "orders", "--yes")
    assert process.stderr is not None
    said = process.stderr.readline().decode()
    assert said.startswith("waits for rabbit/orders: ")
    assert "Given up at " in said
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=SOON)[1].decode()
    assert "is not at its end" in said
    assert shell.queued() == {"orders": 1}
    [listed] = shell.json("replays")["replays"]
    assert (listed["replay"]["state"], listed["entries"]) == ("running", {"selected": 1, "sent": 1})
    assert "waits for rabbit/orders: " in shell("replays").stdout
    assert "asked again at " in shell("replays", "show", listed["replay"]["id"]).stdout
    assert shell.json("replays", "cancel", listed["replay"]["id"])["replay"]["state"] == "cancelled"
    assert shell.state_of("m2") is State.PENDING


def test_resuming_what_is_at_its_end_changes_nothing(world: World) -> None:
    id = world.shell.json("replay", "--source", "mails", "--yes")["replay"]["id"]
    assert world.shell.json("replays", "resume", id)["entries"] == {"sent": 1}
    assert world.shell.queued() == {"mails": 1}


def test_cancelling_lets_the_rest_wait_as_before(shell: Shell) -> None:
    id, _, _ = _stopped(shell, signal.SIGINT)
    report = shell.json("replays", "cancel", id)
    assert report["replay"]["state"] == "cancelled"
    assert report["entries"] == {"sent": 1, "selected": 3}
    assert shell.json("stats")["states"] == {"pending": 3, "replaying": 1}
    assert "cancelled" in shell("replays", "resume", id, code=1).stderr
    assert shell.queued() == {"orders": 1}


def test_the_list_and_the_ledger(world: World, home: str) -> None:
    first = world.shell.json("replay", "--source", "mails", "--yes", "--reason", "mended")["replay"]["id"]
    second = world.shell.json("retry", "m1")["replay"]["id"]
    listed = world.shell.json("replays")["replays"]
    assert [one["replay"]["id"] for one in listed] == [second, first]
    assert world.shell("replays", "--limit", "1").stdout.count("(cli)" if home == "store" else "a admin (") == 1
    shown = world.shell("replays", "show", first).stdout
    assert "mended" in shown
    assert world.id("mail") in shown
    ledger = world.shell.json("replays", "show", second, "--status", "sent")["ledger"]
    assert [line["letter"] for line in ledger] == [world.id("new")]
    assert world.shell.json("replays", "show", second, "--status", "failed")["ledger"] == []


def test_a_long_ledger_comes_in_pages(shell: Shell) -> None:
    _four(shell)
    id = shell.json("replay", "--all", "--yes")["replay"]["id"]
    page = shell("replays", "show", id, "--limit", "3")
    command = page.stderr.strip().removeprefix("There may be more: redrive ").split()
    assert len(shell.json(*command)["ledger"]) == 1


def test_ctrl_c_while_waiting_says_where_to_look(shell: Shell) -> None:
    shell.keep([letter(1)])
    process = shell.start("retry", "m1", "--wait")
    wait_until(lambda: shell.state_of("m1") is State.REPLAYING and _is_sent(shell), "it to be sent")
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=SOON)[1].decode()
    assert process.returncode == 130
    assert "redrive replays show" in said


def _is_sent(shell: Shell) -> bool:
    replay = _begun(shell)
    return replay is not None and replay.state is ReplayState.SENT


def test_a_replay_that_is_not_there_is_exit_code_1(world: World) -> None:
    for command in ("show", "resume", "cancel"):
        assert "no replay 'zzz'" in world.shell("replays", command, "zzz", code=1).stderr


def test_waiting_sees_every_outcome(shell: Shell, place: Path) -> None:
    """A worker resolves one letter and fails on the other."""
    place.joinpath("shop.py").write_text(
        "from redrive import Permanent, Policy, Redrive\n"
        "app = Redrive()\n"
        "@app.handler('orders')\n"
        "def charge(order: dict) -> None:\n"
        "    if order['n'] == 2: raise Permanent('still broken')\n"
    )
    shell.keep([letter(1), letter(2, body=b'{"n": 2}')])
    worker = shell.start("run", "shop:app")
    try:
        report = shell.json("replay", "--all", "--yes", "--wait", code=1)
        assert report["entries"] == {"resolved": 1, "failed": 1}
        assert report["replay"]["state"] == ReplayState.SENT
        shown = shell("replays", "show", report["replay"]["id"], "--status", "failed").stdout
        assert "still broken" in shown
        assert shell.json("stats")["states"] == {"resolved": 1, "exhausted": 1}
    finally:
        worker.send_signal(signal.SIGINT)
        worker.communicate(timeout=SOON)
    assert worker.returncode == 0
