"""What a process died of, in words."""

from __future__ import annotations

import signal

import pytest

from redrive.processes.causes import cause


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (-signal.SIGKILL, "SIGKILL: killed from outside, or by a system that is out of memory"),
        (-signal.SIGSEGV, "SIGSEGV: a crash in native code"),
        (-signal.SIGTERM, "SIGTERM"),
        (-63, "signal 63"),
        (0, "exit code 0: it ended by itself"),
        (1, "exit code 1: an error that nobody foresaw, its traceback is above"),
        (2, "exit code 2: wrong usage or configuration"),
        (3, "exit code 3: a database or broker is unavailable"),
        (77, "exit code 77"),
    ],
)
def test_a_cause(code: int, said: str) -> None:
    assert cause(code) == said


def test_a_system_that_says_it_was_out_of_memory_is_believed() -> None:
    assert cause(-signal.SIGKILL, out_of_memory=True) == "SIGKILL: the system was out of memory"
    assert cause(-signal.SIGSEGV, out_of_memory=True) == "SIGSEGV: a crash in native code"
