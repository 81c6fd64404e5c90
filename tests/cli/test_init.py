"""`redrive init` writes what runs: its own test, a worker, a doctor that finds nothing broken. It replaces nothing."""

from __future__ import annotations

import itertools
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cli.world import SOON, Shell
from tests.servers.kafka import Kafka
from tests.servers.rabbitmq import RabbitMQ
from tests.servers.redis import Redis

FILES = {"shop.py", "redrive.toml", "test_shop.py"}


def steps_of(said: str) -> list[list[str]]:
    """The commands that it says are next."""
    return [shlex.split(line) for line in said.splitlines()[1:]]


def make_topic(words: list[str]) -> None:
    """Do what that command of Kafka's does, without starting Java for it."""
    assert words[0] == "kafka-topics.sh"
    said = dict(itertools.pairwise(words))
    admin = AdminClient({"bootstrap.servers": said["--bootstrap-server"]})
    admin.create_topics([NewTopic(said["--topic"], 1, 1)])[said["--topic"]].result(SOON)


def run_steps(shell: Shell, *options: str) -> None:
    """Do what it says is next, word for word: send, run, doctor, pytest."""
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    said = shell("init", "my shop", *options).stderr
    (_, place), *before, send, run, doctor, test = steps_of(said)
    for words in before:
        make_topic(words)
    there = shell.place / place
    assert {file.name for file in there.iterdir()} == FILES

    def done(words: list[str]) -> str:
        ended = subprocess.run(words, cwd=there, env=environ, capture_output=True, text=True, timeout=SOON)
        assert ended.returncode == 0, (words, ended.stdout, ended.stderr)
        return ended.stdout

    assert "2 passed" in done([*test, "-p", "no:cacheprovider"])
    done(send)
    worker = subprocess.Popen(run, cwd=there, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "charged 20 for order 1\n"
        assert "failure" not in done(doctor).replace("0 failures", "")
    finally:
        worker.send_signal(signal.SIGINT)
        worker.communicate(timeout=SOON)
    assert worker.returncode == 0


def test_on_sqlite(shell: Shell) -> None:
    run_steps(shell)


def test_on_redis(shell: Shell, redis_server: Redis) -> None:
    run_steps(shell, "--transport", "redis", "--url", f"{redis_server.url}?prefix=init-{os.getpid()}")


def test_on_rabbitmq(shell: Shell, rabbitmq_server: RabbitMQ) -> None:
    run_steps(shell, "--transport", "rabbitmq", "--url", rabbitmq_server.url)


def test_on_kafka(shell: Shell, kafka_server: Kafka) -> None:
    counted = "counters=sqlite:///redrive.db"
    run_steps(shell, "--transport", "kafka", "--url", f"kafka://{kafka_server.bootstrap}/?group=shop&{counted}")


@pytest.mark.parametrize("transport", ["sqlite", "redis", "kafka", "rabbitmq"])
def test_the_url_of_each_choice_is_one_that_can_be_used(shell: Shell, transport: str) -> None:
    shell("init", ".", "--transport", transport)
    settings = {setting["path"]: setting for setting in shell.json("config")["settings"]}
    assert settings["transports.default"]["source"] == "redrive.toml"
    assert transport.replace("rabbitmq", "amqp") in settings["transports.default"]["value"]


@pytest.mark.parametrize("name", [*sorted(FILES), "redrive.yaml", "redrive.db"])
def test_what_is_in_the_way_is_named_and_nothing_is_written(shell: Shell, place: Path, name: str) -> None:
    place.joinpath(name).write_text("precious")
    assert f"nothing was written: {name} here" in shell("init", code=2).stderr
    assert [(file.name, file.read_text()) for file in place.iterdir()] == [(name, "precious")]


def test_beside_other_files_it_writes_and_leaves_them(shell: Shell, place: Path) -> None:
    place.joinpath("notes.txt").write_text("mine")
    shell("init")
    assert {file.name for file in place.iterdir()} == {*FILES, "notes.txt"}
    assert shell("init", code=2)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--url", "foo://x"), "--url: no transport speaks 'foo'"),
        (("--url", 'redis://"x'), "a quote"),
        (("--transport", "zeromq"), "'rabbitmq'"),
        (("notes.txt",), "is a file"),
    ],
)
def test_a_wrong_word_writes_nothing(shell: Shell, place: Path, words: tuple[str, ...], says: str) -> None:
    place.joinpath("notes.txt").write_text("mine")
    assert says in shell("init", *words, code=2).stderr
    assert [file.name for file in place.iterdir()] == ["notes.txt"]
