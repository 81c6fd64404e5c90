"""A replay on the command line: paused, gone on with, made faster or slower; and what is wrong with an option."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from redrive.flow.guard import Guard
from redrive.forensics.query import Query
from redrive.model import State
from tests.actors import acting
from tests.cli.world import Shell, World, letter

BOTH_HOMES = True


@pytest.fixture
def begun(shell: Shell) -> Shell:
    """Four letters, and a slow replay `r1` of them that nobody runs yet."""
    shell.keep([letter(number) for number in range(1, 5)])
    shell.ask(lambda service: service.replay(Query(), every=True, actor=acting("ann"), rate=0.5, id="r1"))
    return shell


def _replay(shell: Shell) -> dict[str, Any]:
    found: dict[str, Any] = shell.json("replays", "show", "r1")["replay"]
    return found


def test_it_is_paused_shown_so_and_gone_on_with(begun: Shell) -> None:
    said = begun("replays", "pause", "r1", "--reason", "lunch").stderr
    assert "replay r1 is paused" in said
    assert "redrive replays resume r1" in said
    shown = begun("replays", "show", "r1").stdout
    assert "paused by" in shown
    assert "lunch" in shown
    assert "paused" in begun("replays").stdout
    begun("replays", "pace", "r1", "--unlimited")
    report = begun.json("replays", "resume", "r1")
    assert (report["replay"]["state"], report["entries"]) == ("sent", {"sent": 4})
    assert begun.queued() == {"orders": 4}


def test_pausing_twice_is_pausing_once(begun: Shell) -> None:
    first = begun.json("replays", "pause", "r1", "--reason", "lunch")["replay"]
    assert first["paused"]["why"] == "lunch"
    assert begun.json("replays", "pause", "r1", "--reason", "tea")["replay"]["paused"] == first["paused"]


def test_its_pace_and_its_care_change(begun: Shell) -> None:
    changed = begun.json("replays", "pace", "r1", "--rate", "300/m", "--guard", "20%")["replay"]
    assert (changed["rate"], changed["guard"]["share"], changed["guard"]["canary"]) == (5, 0.2, Guard().canary)
    assert "at most 5 a second, guarded at 20%" in begun("replays", "show", "r1").stdout
    changed = begun.json("replays", "pace", "r1", "--no-guard")["replay"]
    assert (changed["rate"], changed["guard"]) == (5, None)


def test_a_paused_one_can_be_cancelled_and_its_letters_wait_as_before(begun: Shell) -> None:
    begun("replays", "pause", "r1")
    assert begun.json("replays", "cancel", "r1")["replay"]["state"] == "cancelled"
    assert begun.state_of("m1") is State.PENDING
    for words in (("pause", "r1"), ("pace", "r1", "--rate", "1")):
        assert "replay r1 is cancelled: it cannot be" in begun("replays", *words, code=2).stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "what is to change?"),
        (("--rate", "1", "--unlimited"), "but not both"),
        (("--guard", "10%", "--no-guard"), "but not both"),
        (("--rate", "0"), "is not a rate"),
        (("--rate", "fast"), "is not a rate"),
        (("--guard", "101%"), "is not a share"),
        (("--guard", "nan"), "is not a share"),
    ],
)
def test_a_pace_that_makes_no_sense_changes_nothing(begun: Shell, words: tuple[str, ...], says: str) -> None:
    assert says in begun("replays", "pace", "r1", *words, code=2).stderr
    assert (_replay(begun)["rate"], _replay(begun)["guard"]) == (0.5, None)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--canary", "0"), "at least 1 letter goes first"),
        (("--canary", "five"), "not a valid integer"),
        (("--canary", "1" + 20 * "0"), "at most 1,000,000"),
        (("--ramp", "20,5"), "each more than the one before"),
        (("--ramp", "5,,100"), "is not a ramp"),
        (("--ramp", "0,100"), "percent of the selection"),
        (("--ramp", "nan"), "percent of the selection"),
        (("--guard", "110%"), "is not a share"),
        (("--guard", "many"), "is not a share"),
        (("--no-guard", "--canary", "3"), "goes with none of"),
        (("--no-guard", "--guard", "5%"), "goes with none of"),
        (("--deadline", "soon"), "soon"),
        (("--deadline", "0s"), "it has to be some time"),
    ],
)
def test_care_that_makes_no_sense_is_said_and_starts_nothing(world: World, words: tuple[str, ...], says: str) -> None:
    said = world.shell("replay", "--all", "--yes", *words, code=2).stderr
    assert says in said
    assert world.shell.json("replays") == {"replays": []}


def test_how_carefully_it_would_go_is_part_of_the_plan(world: World) -> None:
    words = ("replay", "--all", "--dry-run")
    said = world.shell(*words, "--canary", "1", "--ramp", "50", "--guard", "20%").stdout
    assert "1 letter first, then up to 2, 4" in said
    assert "more than 20% of a step" in said
    assert "first" not in world.shell(*words).stdout.splitlines()[1], "so few go without a guard"


def test_care_is_kept_with_the_replay(shell: Shell) -> None:
    shell.keep([letter(1)])
    words = ("--canary", "2", "--ramp", "100", "--deadline", "2m", "--no-order")
    id = shell.json("replay", "--all", "--yes", *words)["replay"]["id"]
    replay = shell.ask(lambda service: service.replays.get(id))
    assert (replay.guard, replay.ordered) == (Guard(canary=2, ramp=(100,)), False)
    assert replay.deadline == timedelta(minutes=2)
