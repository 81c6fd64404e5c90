"""How many CPUs this process may use: fewer than the machine has, where it is bound to some or has a quota."""

from __future__ import annotations

import math
import os
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")


def available() -> int:
    """At least 1. A quota of one and a half CPUs counts as two, since one process could not use it up."""
    quota = cpu_quota()
    return max(1, min(_bound(), _bound() if quota is None else math.ceil(quota)))


def _bound() -> int:
    """The CPUs that it may run on; all of them, where the system knows no such bounds."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_quota(root: Path = ROOT, own: Path = OWN) -> float | None:
    """The least quota of this process' cgroup and those it lies in, in CPUs; None: there is none."""
    quotas = [quota for place in _places(root, own) if (quota := _quota(place)) is not None]
    return min(quotas, default=None)


def _places(root: Path, own: Path) -> list[Path]:
    """Its cgroup and every one above it, of version 2 and of version 1. In a container its own is often the root."""
    found = {root, root / "cpu"}
    for number, controllers, path in _lines(own):
        hierarchy = root if number == "0" else root / controllers
        if number == "0" or "cpu" in controllers.split(","):
            inside = hierarchy / path.lstrip("/")
            found |= {inside, *(place for place in inside.parents if place.is_relative_to(root))}
    return sorted(found)


def _lines(own: Path) -> list[tuple[str, str, str]]:
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return []
    return [(parts[0], parts[1], parts[2]) for line in lines if len(parts := line.split(":", 2)) == 3]


def _quota(place: Path) -> float | None:
    """`cpu.max` has it in version 2 (`150000 100000`, or `max 100000`), two files in version 1 (-1: none)."""
    words = _words(place / "cpu.max") or [
        *_words(place / "cpu.cfs_quota_us"),
        *_words(place / "cpu.cfs_period_us"),
    ]
    if len(words) != 2 or not all(word.isdigit() for word in words) or not int(words[1]):
        return None
    return int(words[0]) / int(words[1])


def _words(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:
        return []
