"""Commands that ask several backends show what answers, and name what does not."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.world import Shell, World, letter


@pytest.fixture
def nobody() -> Iterator[int]:
    """A port where nobody listens, for as long as the test lasts."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@pytest.fixture
def away(world: World, place: Path, nobody: int) -> World:
    """One queue that answers, a Redis and a RabbitMQ that are down."""
    place.joinpath("redrive.toml").write_text(
        f"""
        [transports]
        default = "sqlite:///redrive.db"
        redis = "redis://:hunter2@127.0.0.1:{nobody}"
        rabbitmq = "amqp://guest:hunter2@127.0.0.1:{nobody}/"
        """
    )
    return world


def test_stats_show_what_answers_and_warn_of_what_does_not(away: World) -> None:
    done = away.shell("stats")
    assert "6 letters, 4 open" in done.stdout
    assert "warning" not in done.stdout
    warnings = done.stderr.splitlines()
    assert warnings[0].startswith("warning: transports.redis does not answer: redis://127.0.0.1:")
    assert warnings[1].startswith("warning: transports.rabbitmq does not answer: ")
    assert "hunter2" not in done.stderr
    assert "?" in done.stdout, "of a source whose queue could not be asked, nobody says 0"


def test_stats_for_programs_have_what_did_not_answer(away: World) -> None:
    found = away.shell.json("stats")
    assert (found["total"], found["open"]) == (6, 4)
    assert [each["backend"] for each in found["unanswered"]] == ["transports.redis", "transports.rabbitmq"]


def test_stats_without_the_store_are_the_queues_and_exit_code_3(shell: Shell, place: Path, nobody: int) -> None:
    shell("send", "orders", "{}")
    place.joinpath("redrive.toml").write_text(
        f'store = "redis://127.0.0.1:{nobody}"\n[transports]\ndefault = "sqlite:///redrive.db"\n'
    )
    done = shell("stats", code=3)
    assert "letters: not known, the store does not answer" in done.stdout
    assert "orders" in done.stdout
    assert "warning: store does not answer" in done.stderr
    found = json.loads(shell("stats", "--json", code=3).stdout)
    assert (found["total"], found["sources"][0]["queued"]["ready"]) == (None, 1)


def test_letters_of_a_source_are_listed_while_a_broker_is_down(away: World) -> None:
    assert "m4" in away.shell("letters", "--source", "mails", "--json").stdout
    done = away.shell("letters", "--source", "payments", code=1)
    assert "no letter matches" in done.stderr
    assert "warning: transports.redis does not answer" in done.stderr


def test_the_doctor_looks_at_everything_else(away: World) -> None:
    found = away.shell.json("doctor", code=2)["findings"]
    levels = [(each["about"], each["level"]) for each in found]
    assert ("transports.redis", "failure") in levels
    assert ("transports.rabbitmq", "failure") in levels
    assert ("transports.default", "fine") in levels
    assert ("letters", "fine") in levels


def test_a_letter_without_a_way_back_is_said_by_doctor_plan_and_retry(world: World) -> None:
    lost = letter(7, transport="kafka")
    world.shell.keep([lost])
    doctor = world.shell("doctor").stdout
    assert "1 go back through the transport 'kafka', which is not configured here" in doctor.replace("\n", " ")
    plan = world.shell("replay", "--source", "orders", "--dry-run").stdout
    assert "1 letter will be skipped: the transport 'kafka' is not configured here" in plan
    assert world.shell.json("replay", "--source", "orders", "--dry-run")["not_configured"] == {"kafka": 1}
    done = world.shell("retry", world.id("new"), lost.id, code=1)
    assert f"letter {lost.id} goes back through the transport 'kafka', which is not configured here" in done.stderr
    assert world.shell.queued() == {}
    assert world.shell.json("replays") == {"replays": []}


def test_a_queue_that_was_never_used_is_a_way_back(world: World, place: Path) -> None:
    place.joinpath("redrive.toml").write_text(
        'store = "sqlite:///redrive.db"\n[transports]\ndefault = "sqlite:///q.db"\n'
    )
    assert world.shell.json("replay", "--source", "orders", "--dry-run")["not_configured"] == {}
    assert not place.joinpath("q.db").exists(), "a plan makes no file"
