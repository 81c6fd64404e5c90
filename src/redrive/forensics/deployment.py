"""Whether a version is deployed: pure, and with the reasons if it is not."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from msgspec import Struct

from redrive.forensics.version_order import is_at_least


class Running(Struct, frozen=True):
    """What a worker says of itself."""

    worker: str
    version: str
    sources: frozenset[str]


class Deployment(Struct, frozen=True):
    """Whether every worker of some sources runs at least a version, and what keeps it if not."""

    is_complete: bool
    waits_for: tuple[str, ...]  # for people: `worker-1 runs 1.4.1`


def deployment(version: str, sources: Collection[str], workers: Iterable[Running]) -> Deployment:
    """Whether every worker of these sources reports at least that version. A source without a worker says nothing, so
    it is waited for."""
    concerned = [worker for worker in workers if worker.sources.intersection(sources)]
    idle = sorted(set(sources).difference(*(worker.sources for worker in concerned)))
    reasons = [f"{source} has no worker" for source in idle]
    verdicts = [(worker, is_at_least(worker.version, version)) for worker in sorted(concerned, key=_name)]
    reasons += [_why(worker, version, at_least) for worker, at_least in verdicts if not at_least]
    return Deployment(bool(concerned) and not reasons, tuple(reasons))


def _name(worker: Running) -> str:
    return worker.worker


def _why(worker: Running, version: str, at_least: bool | None) -> str:
    if not worker.version:
        return f"{worker.worker} says no version: give it one, as Redrive(version=…)"
    if at_least is None:
        return f"{worker.worker} runs {worker.version}, which has no order beside {version}: only the same would do"
    return f"{worker.worker} runs {worker.version}"
