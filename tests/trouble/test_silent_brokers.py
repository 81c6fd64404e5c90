"""Real brokers that hang, or are gone: every command that looks at them comes to its end, and names them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.fixtures import StartsServer
from tests.servers.kafka import Kafka
from tests.servers.rabbitmq import RabbitMQ
from tests.servers.redis import Redis

NAMES = ("kafka", "rabbit", "redis")
HANGS = ("no answer within 5 s", "takes connections and does not answer as")  # whichever is known first
UNRESOLVED = "no.such.host.invalid"


def redrive(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("REDRIVE_")}
    command = [sys.executable, "-m", "redrive", *words]
    done = subprocess.run(command, cwd=place, env=environ, capture_output=True, text=True, timeout=120)
    assert "Traceback" not in done.stdout + done.stderr
    assert "nobody foresaw" not in done.stdout + done.stderr
    return done


def configured(place: Path, kafka: str, rabbit: str, redis: str) -> Path:
    place.joinpath("redrive.toml").write_text(
        f"""
        store = "sqlite:///redrive.db"
        [transports]
        default = "sqlite:///redrive.db"
        kafka = "kafka://{kafka}"
        rabbit = "amqp://guest:guest@{rabbit}/"
        redis = "redis://{redis}/0?checks=off"
        """
    )
    assert redrive(place, "send", "orders", "{}").returncode == 0
    return place


@pytest.fixture
def hanging(tmp_path: Path, start_server: StartsServer) -> Iterator[Path]:
    """A directory whose brokers take connections, and say nothing."""
    brokers = (start_server(Kafka), start_server(RabbitMQ), start_server(Redis))
    kafka, rabbit, redis = brokers
    place = configured(tmp_path, kafka.bootstrap, rabbit.address, redis.address)
    assert redrive(place, "stats").stderr == "", "all of them answer before they are stopped"
    pids = [node.pid for node in kafka.nodes] + [rabbit.pid, redis.pid]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    yield place
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


def test_brokers_that_hang_are_named_beside_what_answers(hanging: Path) -> None:
    stats = redrive(hanging, "stats")
    assert stats.returncode == 0
    for line, name in zip(stats.stderr.splitlines(), NAMES, strict=True):
        assert line.startswith(f"warning: transports.{name} does not answer: ")
        assert any(hint in line for hint in HANGS)
    assert "orders      1" in stats.stdout
    doctor = redrive(hanging, "doctor")
    assert doctor.returncode == 2
    assert "3 failures" in doctor.stdout
    assert redrive(hanging, "letters", "--source", "payments").returncode == 1


def test_hosts_that_cannot_be_found_are_named_with_the_reason(tmp_path: Path) -> None:
    place = configured(tmp_path, f"{UNRESOLVED}:9092", UNRESOLVED, UNRESOLVED)
    stats = redrive(place, "stats")
    assert stats.returncode == 0
    for line, name in zip(stats.stderr.splitlines(), NAMES, strict=True):
        assert line.startswith(f"warning: transports.{name} does not answer: ")
        assert "ame or service not known" in line or "emporary failure in name resolution" in line
    assert "3 failures" in redrive(place, "doctor").stdout
