"""`redrive pause`, `resume`, `workers` and `queue`, as a person types them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from click.testing import Result

from redrive.flow.held import KIND as HELD
from redrive.flow.held import HeldKey, held_id
from redrive.flow.held import body_of as held_body
from redrive.flow.storm import StormState
from redrive.flow.storms import KIND as STORM
from redrive.flow.storms import body_of as storm_body
from redrive.model import letter_id
from redrive.upkeep.heartbeat import KIND
from tests.cli.served import on_a_store
from tests.cli.world import Shell, World

BOTH_HOMES = True


def test_a_pause_says_who_and_why_everywhere_until_it_is_resumed(world: World, home: str) -> None:
    shell = world.shell
    done = shell("pause", "orders", "--why", "password=hunter2 is wrong\x1b[31m")
    assert "orders is paused; let it go on with: redrive resume orders" in done.stderr
    [paused] = shell.json("pause", "--list")
    assert (paused["source"], paused["transport"], paused["until"]) == ("orders", "default", None)
    assert ("(cli)" if home == "store" else "a admin (") in paused["by"]
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


def test_a_storm_is_shown_as_one_and_becomes_a_pause_or_ends(world: World, home: str) -> None:
    shell, name = world.shell, letter_id("default", "orders")
    state = StormState(
        transport="default",
        source="orders",
        by="w-1",
        at=datetime.now(UTC),
        finished=120,
        buried=99,
        over=timedelta(minutes=1),
    )
    for ends in (("resume", "orders"), ("pause", "orders")):
        shell.ask(lambda service: service.app.store.documents.put(STORM, name, storm_body(state)))
        [paused] = shell.json("pause", "--list")
        assert (paused["by"], paused["storm"]) == ("the storm guard", True)
        for words in (("pause", "--list"), ("stats",), ("queue", "orders"), ("doctor",)):
            said = _both(shell(*words, code=None))
            assert "storm" in said, words
            assert "99 of 120" in " ".join(said.split()), words
        shell(*ends)
    [paused] = shell.json("pause", "--list")
    assert ("(cli)" if home == "store" else "a admin (") in paused["by"]
    assert not paused["storm"]
    shell("resume", "orders")


def test_held_keys_are_shown_as_bundles(world: World) -> None:
    shell = world.shell
    assert "no key is held" in shell("held", code=1).stderr
    first = shell.json("letters")["letters"][0]
    detail = shell.json("show", first["id"])
    key = HeldKey(
        transport=first["transport"],
        source=first["source"],
        key=(detail["key"] or "ann").encode(),
        members=(first["message_id"], "m-behind", "m-last"),
        since=datetime.now(UTC),
        longest=timedelta(days=7),
    )
    name = held_id(key.transport, key.source, key.key)
    shell.ask(lambda service: service.app.store.documents.put(HELD, name, held_body(key)))
    [held] = shell.json("held")
    assert (held["letter"], held["behind"], held["error_type"]) == (first["id"], 2, first["error_type"])
    assert first["id"] in shell("held").stdout
    assert shell.json("held", "--limit", "5", first["source"])[0]["key"] == held["key"]
    assert shell.json("held", "nothing", code=1) == []


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


@on_a_store
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
