"""Redrive on Redis beside BullMQ, taskiq, dramatiq and arq: one producer process, one worker process."""

from __future__ import annotations

import shutil
import statistics
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from benchmarks.harness import (
    Cell,
    Contender,
    Measured,
    Numbers,
    Scale,
    Target,
    percentiles,
    rounded,
    side_by_side,
)
from benchmarks.peers import (
    PeerMissing,
    arq_redis,
    bare_redis,
    bullmq_python,
    dramatiq_redis,
    needed,
    own_python,
    taskiq_redis,
)
from benchmarks.redis_child import ATTEMPTS, BULK, CONCURRENCY
from benchmarks.redis_field import ROOT, Entrant, Field, Passage
from benchmarks.samples import BODY_SIZE

_OURS, _FAIR, _BARE, _NODE = "redrive", "redrive, fair", "bare Lua, lease 500 and delete", "BullMQ (Node)"
_TENANTS = 200
_PEERS = Path(__file__).parent.parent / "peers"
Figure = Callable[[Passage], float]


# -- the cells -------------------------------------------------------------------------------------------------------


def enqueue(scale: Scale) -> Measured:
    """Bulk add, until Redis has all of it."""
    return _best(_passages(scale), lambda one: one.enqueued)


def drain(scale: Scale) -> Measured:
    """Handle what waits, until nothing is unsettled."""
    return _best(_passages(scale), lambda one: one.settled)


def drain_python(scale: Scale) -> Measured:
    """The same beside those written in Python: another target."""
    found = {name: rounds for name, rounds in _passages(scale).items() if name != _NODE}
    return _best(found, lambda one: one.settled)


def drain_fair(scale: Scale) -> Measured:
    """Fairness over 200 tenants, beside ourselves without. None of the peers has it."""
    return _beside(_alone(scale), _FAIR, "redrive, not fair", _OURS, tenants=_TENANTS)


def drain_bare(scale: Scale) -> Measured:
    """Beside two bare scripts that lease 500 and delete them, and a loop that handles them one after the other."""
    return _beside(_alone(scale), _OURS, _BARE, _BARE)


def failing(scale: Scale) -> Measured:
    """One job in a hundred always fails, ten in a hundred fail once: until all is settled or given up."""
    return _best(_failing(scale), lambda one: one.settled)


def memory(scale: Scale) -> Measured:
    """Bytes of Redis for each job that waits."""
    return _measured(_passages(scale), lambda one: one.memory, statistics.median)


def latency(scale: Scale) -> Measured:
    """From adding a job to the start of its handler in an idle worker, half of them."""
    return _waited(scale, "p50")


def latency_p99(scale: Scale) -> Measured:
    """The same, all but one in a hundred."""
    return _waited(scale, "p99")


# -- measuring -------------------------------------------------------------------------------------------------------


@cache
def _passages(scale: Scale) -> dict[str, list[Passage]]:
    """Adding, weighing and handling are one passage, so that four cells cost one."""
    return _run(scale, _entrants(), failing=False)


@cache
def _alone(scale: Scale) -> dict[str, list[Passage]]:
    """Those that need no peer to be installed."""
    bare = Entrant(name=_BARE, command=_python("redis", bare_redis), unsettled=bare_redis.unsettled, fast=True)
    return _run(scale, [_redrive(_OURS, tenants=0), _redrive(_FAIR, _TENANTS), bare], failing=False)


@cache
def _failing(scale: Scale) -> dict[str, list[Passage]]:
    return _run(scale, _entrants(), failing=True)


def _run(scale: Scale, entrants: Sequence[Entrant], *, failing: bool) -> dict[str, list[Passage]]:
    found: dict[str, list[Passage]] = {one.name: [] for one in entrants}

    def contender(entrant: Entrant) -> Contender:
        def once() -> float:
            found[entrant.name].append(field.passage(entrant, scale, failing=failing))
            return found[entrant.name][-1].settled

        return once

    with Field() as field:
        side_by_side({one.name: contender(one) for one in entrants}, scale.rounds)
    return found


@cache
def _waits(scale: Scale) -> dict[str, list[Numbers]]:
    found: dict[str, list[Numbers]] = {one.name: [] for one in _entrants()}
    count = scale.of(300, 20)

    def contender(entrant: Entrant) -> Contender:
        def once() -> float:
            found[entrant.name].append(percentiles(field.waits(entrant, count)))
            return found[entrant.name][-1]["p99"]

        return once

    with Field() as field:
        side_by_side({one.name: contender(one) for one in _entrants()}, scale.rounds)
    return found


def _waited(scale: Scale, percentile: str) -> Measured:
    """The calmest round: a neighbour's work is not in our answer."""
    found = {name: min(one[percentile] for one in rounds) for name, rounds in _waits(scale).items()}
    return Measured(redrive=found.pop(_OURS), peers=found, details={"rounds": _waits(scale)}, settings=_settings())


def _beside(found: dict[str, list[Passage]], ours: str, called: str, theirs: str, **settings: int) -> Measured:
    """The best round of each: a neighbour's work is in neither."""
    rounds = {name: [rounded(one.settled) for one in passages] for name, passages in found.items()}
    return Measured(
        redrive=max(rounds[ours]),
        peers={called: max(rounds[theirs])},
        details={"rounds": rounds},
        settings=_settings() | settings,
    )


def _best(found: dict[str, list[Passage]], figure: Figure) -> Measured:
    return _measured(found, figure, max)


def _measured(found: dict[str, list[Passage]], figure: Figure, of: Callable[[Sequence[float]], float]) -> Measured:
    rounds = {name: [figure(one) for one in passages] for name, passages in found.items()}
    figures = {name: of(seen) for name, seen in rounds.items()}
    return Measured(
        redrive=figures.pop(_OURS),
        peers=figures,
        details={"rounds": {name: [rounded(one) for one in seen] for name, seen in rounds.items()}},
        settings=_settings(),
    )


def _settings() -> dict[str, Any]:
    return {
        "body_bytes": BODY_SIZE,
        "bulk": BULK,
        "concurrency": CONCURRENCY,
        "attempts": ATTEMPTS,
        "redis": "appendonly yes, appendfsync everysec",
        "peers": _pinned(),
    }


def _pinned() -> dict[str, str]:
    """The versions of those that are no packages of this environment."""
    node: dict[str, Any] = msgspec.json.decode((_PEERS / "bullmq_node" / "package.json").read_bytes())
    versions = {_NODE: node["dependencies"]["bullmq"], "ioredis": node["dependencies"]["ioredis"]}
    return versions | {name: _pin(name) for name in ("arq", "bullmq")}


def _pin(name: str) -> str:
    """The version of a peer that has an environment of its own."""
    text = (ROOT / f"requirements-bench-{name}.txt").read_text()
    return text.split(f"\n{name}==")[1].split()[0]


# -- the entrants ----------------------------------------------------------------------------------------------------


@cache
def _entrants() -> list[Entrant]:
    return [
        _redrive(_OURS, tenants=0),
        Entrant(name=_NODE, command=_node(), unsettled=bullmq_python.unsettled, fast=True),
        Entrant(name="bullmq (Python)", command=_own("bullmq", bullmq_python), unsettled=bullmq_python.unsettled),
        Entrant(name="taskiq-redis", command=_python("taskiq_redis", taskiq_redis), unsettled=taskiq_redis.unsettled),
        Entrant(name="dramatiq", command=_python("dramatiq", dramatiq_redis), unsettled=dramatiq_redis.unsettled),
        Entrant(name="arq", command=_own("arq", arq_redis), unsettled=arq_redis.unsettled),
    ]


def _redrive(name: str, tenants: int) -> Entrant:
    command = (sys.executable, "-m", "benchmarks.redis_redrive")
    return Entrant(name=name, command=command, unsettled=_ours, fast=True, tenants=tenants)


def _python(package: str, peer: ModuleType) -> tuple[str, ...]:
    needed(package)
    return sys.executable, "-m", peer.__name__


def _node() -> tuple[str, ...]:
    program, node = _PEERS / "bullmq_node" / "bullmq.mjs", shutil.which("node")
    if node is None or not (program.parent / "node_modules" / "bullmq").exists():
        raise PeerMissing("the benchmarks need Node 20 or newer with npm, and BullMQ on it: run `make bench`")
    return node, str(program)


def _own(name: str, peer: ModuleType) -> tuple[str, ...]:
    return own_python(name), "-m", peer.__name__


def _ours(redis: Any) -> int:
    return int(redis.hlen("redrive:{jobs}:jobs"))


CELLS = (
    Cell(name="redis/enqueue", unit="messages/s", measure=enqueue, target=Target(ratio=2)),
    Cell(name="redis/drain", unit="messages/s", measure=drain, target=Target(ratio=3)),
    Cell(name="redis/drain-python", unit="messages/s", measure=drain_python, target=Target(ratio=10)),
    Cell(name="redis/drain-fair", unit="messages/s", measure=drain_fair, target=Target(ratio=0.9)),
    Cell(name="redis/drain-bare", unit="messages/s", measure=drain_bare, target=Target(ratio=0.6)),
    Cell(name="redis/failing", unit="messages/s", measure=failing, target=Target(ratio=3)),
    Cell(name="redis/memory", unit="bytes", measure=memory, target=Target(most=600), less_is_better=True),
    Cell(name="redis/latency", unit="ms p50", measure=latency, target=Target(ratio=1, most=3), less_is_better=True),
    Cell(name="redis/latency-p99", unit="ms p99", measure=latency_p99, target=Target(most=20), less_is_better=True),
)
