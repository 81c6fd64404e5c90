"""The command line on letters in PostgreSQL: brought in, looked at, replayed, taken out to the byte."""

from __future__ import annotations

import pytest

from tests.cli.world import World


@pytest.fixture
def there(world: World, postgresql_url: str) -> str:
    """The letters of the world, imported into PostgreSQL."""
    world.shell("export", "letters.jsonl")
    assert world.shell("import", "letters.jsonl", "--store", postgresql_url).stderr == "6 letters imported\n"
    return postgresql_url


def test_an_export_of_it_is_what_was_imported(world: World, there: str) -> None:
    world.shell("import", "letters.jsonl", "--store", there)
    world.shell("export", "again.jsonl", "--store", there)
    place = world.shell.place
    assert place.joinpath("again.jsonl").read_bytes() == place.joinpath("letters.jsonl").read_bytes()


def test_what_is_seen_is_what_sqlite_shows(world: World, there: str) -> None:
    for words in (("letters",), ("groups",), ("letters", "--tenant", "acme"), ("letters", "--text", "refused")):
        assert world.shell.json(*words, "--store", there) == world.shell.json(*words), words
    assert world.shell.json("show", "m2", "--store", there) == world.shell.json("show", "m2")
    assert world.shell.json("stats", "--store", there)["total"] == 6


def test_a_replay_sends_back_exactly_what_was_chosen(world: World, there: str) -> None:
    before = sum(world.shell.queued().values())
    world.shell("replay", "--source", "orders", "--state", "pending", "--yes", "--store", there)
    sent = world.shell.json("letters", "--state", "replaying", "--store", there)["letters"]
    assert len(sent) == sum(world.shell.queued().values()) - before > 0
    assert len(world.shell.json("replays", "--store", there)["replays"]) == 1


def test_letters_are_archived_and_pruned(world: World, there: str) -> None:
    world.shell("archive", "--state", "pending", "--yes", "--store", there)
    archived = len(world.shell.json("letters", "--state", "archived", "--store", there)["letters"])
    assert archived > 0
    world.shell("purge", "--state", "archived", "--yes", "--store", there)
    assert world.shell.json("stats", "--store", there)["total"] == 6 - archived


def test_the_doctor_has_nothing_to_say(world: World, there: str) -> None:
    found = world.shell.json("doctor", "--store", there)["findings"]
    assert [one for one in found if one["about"] == "store" and one["level"] != "fine"] == []


def test_a_server_that_is_away_is_one_line(world: World) -> None:
    done = world.shell("letters", "--store", "postgresql://127.0.0.1:1/x", code=None)
    assert done.exit_code != 0
    assert "is unavailable" in done.stderr
    assert "Traceback" not in done.stderr
