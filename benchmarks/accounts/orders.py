"""What a worker of the accounts is told, and the messages it handles: which succeed, fail once, or never succeed."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from msgspec import Struct

SOURCE = "accounts"
LEASE = timedelta(seconds=6)
"""What a killed worker held comes back after that; the shortest session that brokers of Kafka allow."""
EFFECTS = "accounts_done"
"""The table in which an exactly-once handler leaves the number of each message."""
LINE = 14
"""Bytes of a line in the log of runs: the number of a message and the life of its worker."""
LIVES = 10_000
"""Lives that have a number of their own in it."""


class Orders(Struct, frozen=True):
    """One worker process."""

    url: str  # of the transport
    directory: str  # letters and the log of runs
    life: int  # how many workers there were before
    batch: int
    concurrency: int = 50
    source: str = SOURCE
    seconds: float = 0.0  # that a run takes
    exactly_once: bool = False  # the handler writes to the database of the queue, in one transaction with its ack

    @property
    def store(self) -> str:
        return f"sqlite:///{self.directory}/letters.db"

    @property
    def log(self) -> Path:
        return Path(self.directory) / "runs.log"


def is_hopeless(number: int) -> bool:
    """One in a hundred never succeeds."""
    return number % 100 == 7


def fails_once(number: int) -> bool:
    """One in fifty succeeds the second time."""
    return number % 50 == 3


def expected_runs(number: int) -> int:
    """How often its handler runs, if nobody is killed."""
    return 2 if fails_once(number) else 1


def line(number: int, life: int) -> bytes:
    return b"%08d %04d\n" % (number, life)
