"""Waiting for a condition rather than for a while."""

import time
from collections.abc import Callable
from datetime import timedelta

INTERVAL = timedelta(milliseconds=20)


def wait_until(condition: Callable[[], bool], what: str, timeout: timedelta = timedelta(seconds=60)) -> None:
    """Return as soon as the condition holds; raise TimeoutError naming `what` when it never does."""
    deadline = time.monotonic() + timeout.total_seconds()
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout.total_seconds():.0f} s for {what}")
        time.sleep(INTERVAL.total_seconds())
