"""Looking changes nothing, finds what was asked for, and shows no secret."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import termios
from datetime import UTC, datetime, timedelta

import pytest

from redrive.model import State
from redrive.systems.pipeline import PipeStream
from tests.cli.served import on_a_store
from tests.cli.world import RAW, Shell, World, letter

BOTH_HOMES = True


def _ago(**span: int) -> str:
    return (datetime.now(UTC) - timedelta(**span)).isoformat()


FILTERS = [
    ((), {"new", "raw", "old", "mail", "done", "away"}),
    (("--source", "orders"), {"new", "raw", "old"}),
    (("--source", "orders", "--source", "files"), {"new", "raw", "old", "away"}),
    (("--state", "exhausted", "--state", "resolved"), {"old", "done"}),
    (("--category", "permanent"), {"mail", "done"}),
    (("--group", "groupccccccc"), {"away"}),
    (("--tenant", "acme"), {"new", "raw"}),
    (("--error-type", "ValueError"), {"mail", "done"}),
    (("--code", "550", "--state", "pending"), {"mail"}),
    (("--older-than", "2h"), {"old"}),
    (("--newer-than", "1d", "--source", "orders"), {"new", "raw"}),
    (("--since", _ago(days=5), "--before", _ago(days=1)), {"old"}),
    (("--since", "2020-01-01", "--older-than", "1d"), {"old"}),
    (("--text", "MAILBOX"), {"mail", "done"}),
    (("--text", "22 6e 6f 74 22"), {"raw"}),  # bytes that are no text, as they are shown
]  # fmt: skip


@pytest.mark.parametrize(("words", "expected"), FILTERS, ids=[f"filter-{number}" for number in range(len(FILTERS))])
def test_a_filter_selects(world: World, words: tuple[str, ...], expected: set[str]) -> None:
    found = world.shell.json("letters", *words)
    assert world.names([one["id"] for one in found["letters"]]) == expected


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("Declined", {"m1", "m2", "m3"}),
        ("shop.errors.Declined", {"m1"}),
        ("errors.Declined", set()),
        ("clined", set()),
        ("TimeoutError", {"m4"}),
    ],
)
def test_an_error_type_is_found_by_its_short_name_and_a_full_name_is_exact(
    shell: Shell, name: str, found: set[str]
) -> None:
    types = ("shop.errors.Declined", "cards.Declined", "Declined", "asyncio.TimeoutError")
    shell.keep([letter(number, error=error) for number, error in enumerate(types, start=1)])
    listed = shell.json("letters", "--error-type", name, code=0 if found else 1)["letters"]
    assert {letter["message_id"] for letter in listed} == found


def test_filters_mean_the_same_to_every_command(world: World) -> None:
    words = ("--source", "orders", "--state", "pending")
    assert [group["count"] for group in world.shell.json("groups", *words)["groups"]] == [2]
    assert world.shell.json("replay", *words, "--dry-run")["total"] == 2
    assert len(world.shell("export", *words).stdout.splitlines()) == 2


def test_nothing_that_matches_is_exit_code_1(world: World) -> None:
    done = world.shell("letters", "--tenant", "nobody", code=1)
    assert (done.stdout, done.stderr) == ("", "no letter matches\n")
    assert world.shell.json("letters", "--tenant", "nobody", code=1) == {"letters": [], "after": None}
    assert world.shell("groups", "--tenant", "nobody", code=1).stdout == ""


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("--source", "oders"), "did you mean 'orders'?"),
        (("--state", "dead"), "'exhausted'"),
        (("--older-than", "2"), "write it with a unit"),
        (("--since", "yesterday"), "is not a time"),
        (("--after", "nonsense"), "is not a cursor"),
        (("--limit", "0"), "1<=x<=1000"),
    ],
)
def test_a_filter_that_makes_no_sense_is_wrong_usage(world: World, words: tuple[str, ...], hint: str) -> None:
    assert hint in world.shell("letters", *words, code=2).stderr


def test_pages_follow_each_other_and_say_how(world: World) -> None:
    first = world.shell("letters", "--limit", "4", "--source", "orders", "--source", "mails")
    command = first.stderr.strip().removeprefix("There may be more: redrive ").split()
    second = world.shell(*command)
    ids = [line.split()[0] for page in (first, second) for line in page.stdout.splitlines()[2:]]
    assert world.names(ids) == {"new", "raw", "old", "mail", "done"}
    assert len(ids) == 5


@on_a_store
def test_the_next_page_keeps_global_options(world: World) -> None:
    url = f"sqlite:///{world.shell.place}/redrive.db"
    page = world.shell("--store", url, "letters", "--limit=2", "--after", "9999999999999999.1")
    assert f"redrive --store {url} letters --limit=2 --after " in page.stderr
    assert page.stderr.count("--after") == 1


@pytest.mark.parametrize("by", ["id", "prefix", "message"])
def test_a_letter_is_found_by_its_id_its_beginning_or_its_message(world: World, by: str) -> None:
    id = world.id("raw")
    wanted = {"id": id, "prefix": id[:6], "message": "m2"}[by]
    assert world.shell.json("show", wanted)["id"] == id


@on_a_store
def test_an_id_that_means_two_letters_names_them(world: World) -> None:
    twins = [letter(9, source="orders"), letter(9, source="mails")]
    world.shell.keep(twins)
    said = world.shell("show", "m9", code=2).stderr
    assert all(one.id in said for one in twins)
    assert "more than one letter" in world.shell("show", "", code=2).stderr


def test_a_letter_that_is_not_there_is_exit_code_1(world: World) -> None:
    assert "no letter 'zzz'" in world.shell("show", "zzz", code=1).stderr


def test_everything_about_a_letter_is_shown_but_its_secrets(world: World) -> None:
    shown = world.shell("show", world.id("raw")).stdout
    for part in ("Attempt 1", "Attempt 2", "shop.py", "trace", "authorization", "m2", "acme", "groupaaaaaaa", "w:1"):
        assert part in shown
    for secret in ("hunter2", "s3cr3t"):
        assert secret not in shown
        assert secret not in json.dumps(world.shell.json("show", world.id("raw")))
    assert f"redrive retry {world.id('raw')}" in shown


def test_the_raw_body_is_written_to_the_byte(world: World) -> None:
    world.shell("show", "m2", "--raw-body", "body.bin")
    assert (world.shell.place / "body.bin").read_bytes() == RAW
    assert world.shell.process("show", "m2", "--raw-body", "-").stdout == RAW


def test_the_bytes_are_written_as_they_are_and_nothing_else(world: World) -> None:
    assert world.shell.process("show", "m2", "--raw").stdout == RAW
    assert "--raw" in world.shell("show", "m2", "--raw", "--json", code=2).stderr


@pytest.mark.parametrize("body", [RAW, b"a\x1b[2Jb", "\u202e".encode()])
def test_bytes_that_could_drive_a_terminal_are_not_written_to_one(world: World, body: bytes) -> None:
    world.shell.keep([letter(8, body=body)])
    code, shown = on_a_terminal(world, "show", "m8", "--raw")
    assert (code, body in shown) == (2, False)
    assert b"--raw-body" in shown
    assert on_a_terminal(world, "show", "m8", "--raw-body", "-") == (0, body)


def test_a_text_is_written_to_a_terminal(world: World) -> None:
    world.shell.keep([letter(8, body=b'{"n": 1.0}')])
    code, shown = on_a_terminal(world, "show", "m8", "--raw")
    assert (code, shown.strip()) == (0, b'{"n": 1.0}')


def on_a_terminal(world: World, *words: str) -> tuple[int, bytes]:
    """The exit code of a command whose stdout and stderr are a terminal, and what the terminal got."""
    ours, its = pty.openpty()
    mode = termios.tcgetattr(its)
    mode[1] &= ~termios.OPOST  # line ends as they are
    termios.tcsetattr(its, termios.TCSANOW, mode)
    command = [sys.executable, "-m", "redrive", *words]
    with subprocess.Popen(command, cwd=world.shell.place, stdout=its, stderr=its) as process:
        os.close(its)
        shown = b"".join(iter(lambda: _read(ours), b""))
    os.close(ours)
    return process.returncode, shown


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # how a terminal ends
        return b""


@pytest.mark.parametrize("levels", [900, 997, 100_000])
def test_a_letter_of_any_depth_is_shown_and_listed(world: World, levels: int) -> None:
    secret = b'{"password": "hunter2", "a": 1.0, "a": 12345678901234567890123, "deep": '
    world.shell.keep([letter(8, body=secret + b"[" * levels + b"]" * levels + b"}", text="x" * 10)])
    shown = world.shell("show", "m8").stdout
    assert '"a": 1.0, "a": 12345678901234567890123' in shown
    assert "hunter2" not in shown
    assert world.shell.json("show", "m8")["body_size"] > 2 * levels
    assert world.shell.json("letters", "--text", "12345678901234567890123")["letters"][0]["message_id"] == "m8"
    assert world.shell.json("groups")["groups"]


def test_json_is_shown_as_it_was_written(world: World) -> None:
    body = '{"b": 1.0, "a": 1e400, "a": [12345678901234567890123, -0], "é": "\\u00e9\\/", "b": {}}'
    world.shell.keep([letter(8, body=body.encode())])
    assert world.shell.json("show", "m8")["body"] == body
    shown = world.shell("show", "m8").stdout
    for line in ('"b": 1.0,', '"a": 1e400,', "12345678901234567890123,", "-0", '"é": "\\u00e9\\/",', '"b": {}'):
        assert f"{line}\n" in shown


def test_a_body_in_a_known_schema_is_shown_in_it(world: World) -> None:
    body = PipeStream(stream_id="s-1", metadata={"password": "hunter2"}).SerializeToString()
    world.shell.keep([letter(8, source="docs.ocr", body=body, transport="pipeline")])
    shown = world.shell("show", "m8").stdout
    assert "Body as redrive.pipeline.PipeStream (Protobuf)" in shown
    for line in ('"stream_id": "s-1",', '"password": "[redacted]"'):
        assert f"{line}\n" in shown
    decoded = world.shell.json("show", "m8")["decoded"]
    assert (decoded["format"], decoded["schema"]) == ("Protobuf", "redrive.pipeline.PipeStream")
    assert world.shell.json("show", "m1")["decoded"] is None
    assert "Body as" not in world.shell("show", "m1").stdout


def test_what_a_letter_waits_for_is_shown(world: World) -> None:
    world.shell.keep([letter(8, depends_on=("m1", "m2"))])
    assert "m1, m2" in world.shell("show", "m8").stdout


def test_groups_say_what_to_type_next(world: World) -> None:
    shown = world.shell("groups", "--source", "orders").stdout
    assert "3 letters  network  ConnectionError: gateway refused, password=[redacted]" in shown
    assert "\n    steady  exhausted 1 · pending 2" in shown
    assert "\n    tenants acme\n" in shown
    assert "pending 2" in shown
    assert "exhausted 1" in shown
    commands = [line.split("redrive ")[1].split() for line in shown.splitlines() if "redrive " in line]
    assert [words[0] for words in commands] == ["letters", "replay"]
    for words in commands:
        world.shell(*words, *(["--dry-run"] if words[0] == "replay" else []))


@on_a_store
def test_groups_repeat_the_database_in_their_commands(world: World) -> None:
    url = f"sqlite:///{world.shell.place}/redrive.db"
    assert f"redrive --store {url} letters --group" in world.shell("groups", "--store", url).stdout


def test_groups_come_largest_first_and_say_when_there_may_be_more(world: World) -> None:
    assert [one["count"] for one in world.shell.json("groups", "--closed")["groups"]] == [3, 2, 1]
    assert "--limit shows more" in world.shell("groups", "--limit", "1").stderr
    second = world.shell.json("groups", "--closed", "--limit", "1", "--skip", "1")["groups"]
    assert [one["count"] for one in second] == [2]
    newest = world.shell.json("groups", "--closed", "--sort", "first_seen")["groups"]
    assert [one["first_at"] for one in newest] == sorted((one["first_at"] for one in newest), reverse=True)


def test_groups_are_of_open_letters_unless_asked_otherwise(world: World) -> None:
    def states(*words: str) -> set[str]:
        return {state for one in world.shell.json("groups", *words)["groups"] for state in one["states"]}

    assert states() <= {"pending", "retrying", "replaying", "exhausted"}
    assert states("--closed") > states()
    assert states("--state", "resolved") == {"resolved"}


@on_a_store
def test_stats_count_letters_and_queues(world: World) -> None:
    world.shell("send", "orders", "x")
    found = world.shell.json("stats")
    assert (found["total"], found["open"]) == (6, 4)
    assert found["states"] == {"pending": 3, "exhausted": 1, "resolved": 1, "archived": 1}
    orders = next(one for one in found["sources"] if one["source"] == "orders")
    assert orders["queued"] == {"ready": 1, "delayed": 0, "leased": 0}
    shown = world.shell("stats").stdout
    assert shown.startswith("6 letters, 4 open\n")
    assert "READY" in shown


@pytest.mark.parametrize(
    "command", ["letters", "groups", "stats", "replays", "export", "show m1", "purge --state resolved"]
)
def test_looking_where_nothing_is_creates_nothing(shell: Shell, command: str) -> None:
    said = shell(*command.split(), code=2).stderr
    assert "no redrive.db here" in said
    assert "--store" in said
    assert list(shell.place.iterdir()) == []


def test_a_queue_that_was_never_used_is_not_created_by_looking(world: World) -> None:
    world.shell.process("letters", REDRIVE_TRANSPORTS_DEFAULT="sqlite:///queue.db")
    assert not (world.shell.place / "queue.db").exists()


def test_a_store_in_memory_cannot_be_looked_into(shell: Shell) -> None:
    assert "lives and dies inside one process" in shell("--store", "memory://", "letters", code=2).stderr


def test_times_are_ages_for_people_and_iso_for_programs(world: World) -> None:
    assert re.search(r"\b\d+m ago", world.shell("letters", "--tenant", "acme").stdout)
    at = world.shell.json("letters", "--tenant", "acme", "--text", "m1")["letters"][0]["created_at"]
    assert datetime.fromisoformat(at) == world.letters["new"].created_at


def test_an_empty_database_says_so(shell: Shell) -> None:
    shell("send", "orders", "x")
    assert shell("letters", code=1).stderr == "no letters\n"
    assert shell("replays").stderr.startswith("no replays yet")
    assert shell.json("replays") == {"replays": []}
    assert State.PENDING not in shell.json("stats")["states"]
