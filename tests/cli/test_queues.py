"""`redrive pause`, `resume`, `workers` and `queue`, as a person types them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import Result

from redrive.upkeep.heartbeat import KIND
from tests.cli.world import Shell, World


def test_a_pause_says_who_and_why_everywhere_until_it_is_resumed(world: World) -> None:
    shell = world.shell
    done = shell("pause", "orders", "--why", "password=hunter2 is wrong\x1b[31m")
    assert "orders is paused; let it go on with: redrive resume orders" in done.stderr
    [paused] = shell.json("pause", "--list")
    assert (paused["source"], paused["transport"], paused["until"]) == ("orders", "default", None)
    assert paused["by"].endswith("(cli)")
    for words in (("pause", "--list"), ("stats",), ("queue", "orders"), ("doctor",)):
        said = _both(shell(*words, code=None))
        assert "orders" in said
        assert paused["by"] in said
        assert "is wrong" in said
        assert "hunter2" not in said
        assert "\x1b" not in said
    again = shell("pause", "orders")
    assert f"orders was paused already, by {paused['by']}" in again.stderr
    assert "orders goes on; it was paused by" in shell("resume", "orders").stderr
    assert "orders was not paused" in shell("resume", "orders", code=1).stderr
    assert "nothing is paused" in shell("pause", "--list", code=1).stderr
    assert shell.json("pause", "--list", code=1) == []


def test_a_source_that_nobody_knows_is_not_paused_but_by_force(world: World) -> None:
    done = world.shell("pause", "order", code=2)
    assert "unknown source 'order': did you mean 'orders'?" in done.stderr
    assert "--force" in done.stderr
    assert "unknown source 'order'" in world.shell("resume", "order", code=2).stderr
    assert "unknown source 'order'" in world.shell("queue", "order", code=2).stderr
    world.shell("pause", "order", "--force")
    world.shell("resume", "order")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "which source?"),
        (("orders", "--for", "0s"), "longer than nothing"),
        (("orders", "--for", "soon"), "soon"),
        (("orders", "--transport", "elsewhere"), "transport 'elsewhere' is not configured: there is default"),
    ],
)
def test_what_cannot_be_meant_is_refused(world: World, words: tuple[str, ...], said: str) -> None:
    assert said in world.shell("pause", *words, code=2).stderr
    assert world.shell.json("pause", "--list", code=1) == []


def test_in_a_directory_without_a_database_nothing_is_made(shell: Shell) -> None:
    for words in (("pause", "orders"), ("resume", "orders"), ("queue", "orders"), ("workers",), ("pause", "--list")):
        assert "no redrive.db here" in shell(*words, code=2).stderr
    assert list(shell.place.iterdir()) == []


def test_a_pause_may_end_by_itself(world: World) -> None:
    shell = world.shell
    report = shell.json("pause", "orders", "--for", "1h")
    assert report["is_new"]
    assert report["pause"]["until"] > report["pause"]["at"]
    assert "in 59m" in shell("pause", "--list").stdout or "in 60m" in shell("pause", "--list").stdout


def test_a_queue_is_shown_page_by_page(world: World) -> None:
    shell = world.shell
    for number in range(3):
        shell("send", "orders", json.dumps({"n": number, "token": "hunter2"}), "--id", f"q{number}")
    shell("send", "orders", "{}", "--id", "later", "--delay", "1h")
    first = shell("queue", "orders", "--limit", "2")
    assert "orders: 3 ready, 1 delayed, 0 leased" in first.stderr
    assert "q0" in first.stdout
    assert "q2" not in first.stdout
    assert "There may be more: redrive queue orders --limit 2 --after" in first.stderr
    [later] = _messages(shell, "--state", "delayed")
    assert later["id"] == "later"
    assert later["next_attempt_at"] is not None
    assert [message["id"] for message in _messages(shell)] == ["q0", "q1", "q2", "later"]
    assert "hunter2" not in _both(shell("queue", "orders", "--json"))
    shell("queue", "mails", code=1)
    assert "no place in this queue" in shell("queue", "orders", "--after", "x", code=2).stderr
    assert shell.queued() == {"orders": 4}


def test_without_a_worker_nobody_works(world: World) -> None:
    assert "no worker has said anything" in world.shell("workers", code=1).stderr
    assert world.shell.json("workers", code=1) == []


def test_a_document_of_a_worker_that_cannot_be_read_is_left_out(world: World) -> None:
    world.shell.ask(lambda service: service.app.store.documents.put(KIND, "x", {"worker": 7}))
    assert world.shell.json("workers", code=1) == []


def _messages(shell: Shell, *words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = shell.json("queue", "orders", *words)["messages"]
    return found


def _both(done: Result) -> str:
    return done.stdout + done.stderr
