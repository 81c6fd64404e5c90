"""`--processes auto` counts the CPUs that are ours, not those of the machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from redrive.processes import cpus
from redrive.processes.cpus import available, cpu_quota


def laid(root: Path, files: dict[str, str], own: str) -> float | None:
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    membership = root / "own"
    membership.write_text(own)
    return cpu_quota(root, membership)


@pytest.mark.parametrize(
    ("files", "own", "quota"),
    [
        ({"cpu.max": "150000 100000\n"}, "0::/\n", 1.5),
        ({"cpu.max": "max 100000\n"}, "0::/\n", None),
        ({"a/b/cpu.max": "max 100000\n", "a/cpu.max": "200000 100000\n"}, "0::/a/b\n", 2.0),
        ({"a/b/cpu.max": "50000 100000\n", "a/cpu.max": "200000 100000\n"}, "0::/a/b\n", 0.5),
        ({"a/cpu.max": "200000 100000\n"}, "0::/elsewhere\n", None),
        ({"cpu/cpu.cfs_quota_us": "300000\n", "cpu/cpu.cfs_period_us": "100000\n"}, "4:memory:/\n", 3.0),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, "", None),
        (
            {"cpu,cpuacct/d/cpu.cfs_quota_us": "400000\n", "cpu,cpuacct/d/cpu.cfs_period_us": "100000\n"},
            "3:cpu,cpuacct:/d\n",
            4.0,
        ),
        ({"cpu.max": "nonsense\n"}, "nonsense\n", None),
        ({"cpu.max": "1 0\n"}, "0::/\n", None),
        ({}, "", None),
    ],
)
def test_the_quota_of_a_cgroup(tmp_path: Path, files: dict[str, str], own: str, quota: float | None) -> None:
    assert laid(tmp_path, files, own) == quota


@pytest.mark.parametrize(("quota", "count"), [(None, 3), (0.2, 1), (1.0, 1), (1.5, 2), (2.0, 2), (64.0, 3)])
def test_the_least_of_what_binds_us(monkeypatch: pytest.MonkeyPatch, quota: float | None, count: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 4, 7})
    monkeypatch.setattr(cpus, "cpu_quota", lambda: quota)
    assert available() == count
