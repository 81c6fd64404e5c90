"""What a process died of, in words that tell what to do."""

from __future__ import annotations

import signal

from redrive.processes.cpus import OWN, ROOT

WRONG = 2
"""The exit code of wrong usage or configuration (cli/exits.py): starting again does not help."""
_CODES = {
    0: "it ended by itself",
    1: "an error that nobody foresaw, its traceback is above",
    WRONG: "wrong usage or configuration",
    3: "a database or broker is unavailable",
    130: "it was told twice to stop",
}
_SIGNALS = {
    signal.SIGKILL: "killed from outside, or by a system that is out of memory",
    signal.SIGSEGV: "a crash in native code",
    signal.SIGABRT: "it aborted itself, or did not answer its watchdog",
    signal.SIGBUS: "a crash in native code, or a full disk behind a mapped file",
    signal.SIGILL: "a crash in native code, built for another CPU",
}


def cause(code: int, *, out_of_memory: bool = False) -> str:
    """`SIGKILL: out of memory`, `exit code 3: a database or broker is unavailable`."""
    if code >= 0:
        return _joined(f"exit code {code}", _CODES.get(code, ""))
    if out_of_memory and -code == signal.SIGKILL:
        return "SIGKILL: the system was out of memory"
    return _joined(_name(-code), _SIGNALS.get(signal.Signals(-code), "") if _is_known(-code) else "")


def _joined(name: str, words: str) -> str:
    return f"{name}: {words}" if words else name


def _name(number: int) -> str:
    return signal.Signals(number).name if _is_known(number) else f"signal {number}"


def _is_known(number: int) -> bool:
    return number in set(signal.Signals)


def out_of_memory_kills() -> int:
    """How often the system killed a process of this cgroup for want of memory; 0 where it does not tell."""
    try:
        inside = next(line.split(":", 2)[2] for line in OWN.read_text().splitlines() if line.startswith("0::"))
        words = (ROOT / inside.lstrip("/") / "memory.events").read_text().split()
    except (OSError, StopIteration):
        return 0
    counts = dict(zip(words[::2], words[1::2], strict=False))
    return int(counts.get("oom_kill", 0))
