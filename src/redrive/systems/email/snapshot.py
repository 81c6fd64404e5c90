"""What is in Redis now, for metrics, alerts and the runbook: dead letters, turns, memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct, field

from redrive.app import Redrive
from redrive.clock import Clock
from redrive.errors import UsageError
from redrive.forensics.turns import shown_name
from redrive.model import Letter
from redrive.systems.email.entry import iso
from redrive.systems.email.settings import EmailSettings
from redrive.transports.base import TakesTurns, Transport
from redrive.untrusted import UNREADABLE

if TYPE_CHECKING:
    from redrive.drivers.redis import Link

_PAGE = 500
_KEPT = 10.0  # seconds for which a snapshot serves: scrapes of several kinds look at one
NO_CODE = "none"


class Turn(Struct, frozen=True, rename="camel", omit_defaults=True):
    """How one company fares: the contract's TenantFairnessMetrics."""

    company_id: str
    rounds_without_processing: int
    current_priority: int
    total_processed: int
    consecutive_batch_count: int
    last_processed_at: str | None = None


class Memory(Struct, frozen=True):
    """What Redis says of itself; of a cluster, its fullest node."""

    used: int
    most: int  # 0: no bound
    rejected_connections: int
    oom_errors: int

    @property
    def share(self) -> float | None:
        return self.used / self.most if self.most else None


class Snapshot(Struct, frozen=True):
    """The DLQ, the turns and the memory at one moment."""

    codes: dict[str, int]  # dead letters by the code of their last failure
    companies: dict[str, int]
    ages: tuple[float, ...]  # of each dead letter, in seconds
    turns: tuple[Turn, ...] = ()
    memory: Memory | None = None

    @property
    def size(self) -> int:
        return len(self.ages)


class _Counted(Struct, frozen=True):
    """The fields of an entry that are counted."""

    company: str = field(name="companyId")
    code: str = field(name="lastFailureCode", default=NO_CODE)


_decode = msgspec.json.Decoder(_Counted).decode


class Watch:
    """Takes snapshots, at most one in ten seconds."""

    def __init__(self, app: Redrive, email: EmailSettings) -> None:
        self._app = app
        self._email = email
        self._link = _link(email.redis)
        self._clock: Clock = app.clock
        self._taken = float("-inf")
        self._snapshot: Snapshot | None = None

    async def snapshot(self) -> Snapshot:
        if self._snapshot is None or self._clock.elapsed() - self._taken > _KEPT:
            self._snapshot = await take(self._app, self._email, self._link)
            self._taken = self._clock.elapsed()
        return self._snapshot

    async def aclose(self) -> None:
        await self._link.aclose()


async def take(app: Redrive, email: EmailSettings, link: Link) -> Snapshot:
    """A snapshot of the queue, its DLQ and its Redis. Entries are read from the DLQ itself, and of each only what is
    counted: 10,000 of them must not hold up a worker."""
    codes, companies = Counter[str](), Counter[str]()
    ages, now = list[float](), app.clock.now().timestamp()
    async for data, moved_at in _entries(link, email.dlq):
        entry = _counted(data)
        codes[entry.code] += 1
        companies[shown_name(entry.company)] += 1
        ages.append(max(0.0, now - float(moved_at) / 1000))
    turns = await turns_of(app.transport(), email.queue, limit=1000)
    return Snapshot(dict(codes), dict(companies), tuple(ages), turns, await memory_of(link))


async def turns_of(transport: Transport, queue: str, limit: int = 100) -> tuple[Turn, ...]:
    """How each company fares; UsageError for a transport without turns."""
    if not isinstance(transport, TakesTurns):
        raise UsageError("only the queue in Redis knows turns")
    return tuple(
        Turn(
            company_id=shown_name(tenant.name) or "(none)",
            rounds_without_processing=tenant.rounds_without_processing,
            current_priority=tenant.current_priority,
            total_processed=tenant.total_processed,
            consecutive_batch_count=tenant.consecutive_batch_count,
            last_processed_at=_moment(tenant.last_processed_at),
        )
        for tenant in await transport.tenants(queue, limit)
    )


async def memory_of(link: Link) -> Memory:
    found = [
        Memory(
            used=int(info.get("used_memory", 0)),
            most=int(info.get("maxmemory", 0)),
            rejected_connections=int(info.get("rejected_connections", 0)),
            oom_errors=_oom(info.get("errorstat_OOM")),
        )
        for info in (await link.infos()).values()
    ]
    return max(found, key=lambda memory: memory.share or 0.0)


def company_of(letter: Letter) -> str:
    """The company of a letter, as it fits on a line and into a label."""
    return shown_name(letter.message.tenant or "unknown")


async def _entries(link: Link, dlq: str) -> AsyncIterator[tuple[bytes, bytes]]:
    """Each entry of the DLQ with its score; one that comes or goes meanwhile may be counted or not."""
    start = 0
    while found := await link.command("ZRANGE", dlq, start, start + _PAGE - 1, "WITHSCORES"):
        for pair in zip(found[::2], found[1::2], strict=True):
            yield pair
        start += _PAGE


def _counted(data: bytes) -> _Counted:
    """The fields of an entry; one that somebody else wrote is counted as unknown."""
    try:
        return _decode(data)
    except UNREADABLE:
        return _Counted("unknown")


def _link(url: str) -> Link:
    from redrive.drivers.redis import Link

    return Link(url)


def _oom(stat: object) -> int:
    return int(stat.get("count", 0)) if isinstance(stat, dict) else 0


def _moment(at: datetime | None) -> str | None:
    return None if at is None else iso(at)
