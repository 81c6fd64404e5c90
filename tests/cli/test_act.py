"""Nothing is sent, put away or deleted that nobody agreed to; what is done is done to exactly what was shown."""

from __future__ import annotations

from datetime import timedelta

import pytest

from redrive.forensics.query import Query
from redrive.model import State
from tests.cli.world import World, letter

BOTH_HOMES = True

ORDERS = ("--source", "orders", "--state", "pending")


# -- replay ------------------------------------------------------------------------------------------------------


def test_a_dry_run_shows_the_plan_and_sends_nothing(world: World) -> None:
    done = world.shell("replay", "--source", "mails", "--dry-run")
    assert "1 letter to send back" in done.stdout
    assert "1 letter left out: resolved, archived, sent or on their way already" in done.stdout
    assert "groupbbbbbbb" in done.stdout
    assert "Nothing was sent" in done.stderr
    plan = world.shell.json("replay", "--source", "mails", "--dry-run")
    assert (plan["total"], plan["left_out"], plan["sources"]) == (1, 1, {"mails": 1})
    assert plan["groups"][0]["count"] == 1
    assert world.shell.queued() == {}
    assert world.shell.json("replays") == {"replays": []}


def test_a_replay_shows_its_plan_and_asks(world: World) -> None:
    done = world.shell("replay", *ORDERS, input="y\n")
    assert "2 letters to send back" in done.stderr
    assert "Send 2 letters back? [y/N]" in done.stderr
    assert done.stdout == ""
    assert world.shell.queued() == {"orders": 2}
    assert world.shell.state_of("m1") is State.REPLAYING


def test_no_is_no(world: World) -> None:
    assert "nothing was done" in world.shell("replay", *ORDERS, input="n\n", code=1).stderr
    assert world.shell.queued() == {}


def test_where_nobody_can_answer_only_yes_is_an_answer(world: World) -> None:
    assert "say --yes" in world.shell.process("replay", *ORDERS, code=2).stderr.decode()
    assert world.shell.queued() == {}
    world.shell.process("replay", *ORDERS, "--yes")
    assert world.shell.queued() == {"orders": 2}


def test_an_empty_filter_is_refused_unless_all_is_meant(world: World) -> None:
    assert "--all" in world.shell("replay", "--yes", code=2).stderr
    world.shell("replay", "--all", "--yes")
    assert world.shell.queued() == {"orders": 3, "mails": 1}


def test_nothing_to_replay_is_exit_code_1(world: World) -> None:
    assert "nothing was sent" in world.shell("replay", "--state", "resolved", "--yes", code=1).stderr
    assert "no letter matches" in world.shell("replay", "--tenant", "nobody", "--yes", code=1).stderr


def test_a_replay_tells_programs_what_it_did(world: World, home: str) -> None:
    report = world.shell.json("replay", *ORDERS, "--yes", "--rate", "6000/m", "--reason", "gateway is back")
    assert report["entries"] == {"sent": 2}
    assert (report["replay"]["rate"], report["replay"]["reason"]) == (100.0, "gateway is back")
    assert ("(cli)" if home == "store" else "a admin (") in report["replay"]["actor"]


def test_what_came_after_the_plan_is_not_sent(world: World) -> None:
    world.shell.keep([letter(7, age=timedelta(hours=-1))])  # by a worker whose clock is an hour ahead
    report = world.shell.json("replay", *ORDERS, "--yes")
    assert report["replay"]["total"] == 2


@pytest.mark.parametrize("rate", ["fast", "0", "0/s", "-1", "5/day"])
def test_a_rate_that_makes_no_sense_is_wrong_usage(world: World, rate: str) -> None:
    assert "Invalid value" in world.shell("replay", *ORDERS, f"--rate={rate}", code=2).stderr


def test_what_cannot_be_sent_is_skipped_and_exit_code_1(world: World) -> None:
    world.shell.keep([letter(8, transport="gone"), letter(9, depends_on=("m1",))])
    report = world.shell.json("replay", "--text", "m8", "--yes", code=1)
    assert report["entries"] == {"skipped": 1}
    shown = world.shell("replays", "show", report["replay"]["id"]).stdout
    assert "no transport 'gone'" in shown
    assert world.shell.json("replay", "--text", "m9", "--yes", code=1)["entries"] == {"skipped": 1}


# -- retry -------------------------------------------------------------------------------------------------------


def test_letters_are_retried_by_id_by_beginning_or_by_message(world: World) -> None:
    world.shell("retry", world.id("new"), world.id("raw")[:8], "m4")
    assert world.shell.queued() == {"orders": 2, "mails": 1}


def test_one_that_cannot_be_retried_stops_all(world: World) -> None:
    assert "is resolved" in world.shell("retry", "m1", "m5", code=1).stderr
    assert "no letter" in world.shell("retry", "m1", "zzz", code=1).stderr
    assert world.shell.queued() == {}


def test_waiting_ends_when_patience_does(world: World) -> None:
    report = world.shell.json("retry", "m1", "--timeout", "0s", code=1)
    assert report["entries"] == {"sent": 1}


# -- archive -----------------------------------------------------------------------------------------------------


def test_letters_are_archived_by_id_without_asking(world: World) -> None:
    assert world.shell("archive", "m1", world.id("old")).stderr == "2 letters archived\n"
    assert world.shell.state_of("m1") is State.ARCHIVED


def test_a_wrong_id_archives_nothing(world: World) -> None:
    world.shell("archive", "m1", "zzz", code=1)
    assert world.shell.state_of("m1") is State.PENDING


def test_archiving_by_filter_asks(world: World) -> None:
    assert "Archive 2 letters?" in world.shell("archive", *ORDERS, input="n\n", code=1).stderr
    assert world.shell.json("archive", *ORDERS, "--yes") == {"archived": 2}
    assert world.count(Query(states=(State.ARCHIVED,))) == 3


def test_archiving_needs_to_know_which(world: World) -> None:
    assert "which letters?" in world.shell("archive", "--yes", code=2).stderr
    assert "not both" in world.shell("archive", "m1", "--source", "orders", code=2).stderr
    assert "no letter matches" in world.shell("archive", "--tenant", "nobody", "--yes", code=1).stderr
    assert world.shell.json("archive", "--all", "--yes") == {"archived": 5}


def test_what_is_archived_already_is_not_archived_again(world: World) -> None:
    assert world.shell.json("archive", "m6", code=1) == {"archived": 0}


# -- purge -------------------------------------------------------------------------------------------------------


def test_purge_refuses_an_empty_filter_whatever_else_is_said(world: World) -> None:
    assert "say which letters" in world.shell("purge", "--yes", code=2).stderr
    assert world.count() == 6


def test_purge_asks_and_deletes_only_what_it_named(world: World) -> None:
    assert "Delete 1 letter for good?" in world.shell("purge", "--older-than", "1d", input="\n", code=1).stderr
    assert world.count() == 6
    world.shell("purge", "--older-than", "1d", input="y\n")
    assert world.count() == 5
    assert world.shell.json("purge", "--source", "mails", "--yes") == {"purged": 2, "kept": 0}
    assert world.count() == 3


def test_purge_leaves_what_is_on_its_way(world: World) -> None:
    world.shell("retry", "m1")
    done = world.shell("purge", *("--source", "orders", "--yes"), code=1)
    assert "2 letters deleted" in done.stderr
    assert "1 letter kept" in done.stderr
    assert world.shell.state_of("m1") is State.REPLAYING


def test_purging_nothing_is_exit_code_1(world: World) -> None:
    assert "nothing was deleted" in world.shell("purge", "--tenant", "nobody", "--yes", code=1).stderr


def test_what_was_done_is_in_the_audit_trail(world: World, home: str) -> None:
    world.shell("replay", *ORDERS, "--yes")
    world.shell("archive", "m4")
    world.shell("purge", "--state", "resolved", "--yes")
    trail = world.shell.ask(lambda service: service.audit())
    assert [one["action"] for one in trail] == ["purge", "archive", "replay"]
    assert all(("(cli)" if home == "store" else "a admin (") in one["actor"] for one in trail)
