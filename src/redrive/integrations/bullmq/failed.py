"""The failed jobs of a queue, in the order in which they failed, each once."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from redrive.drivers.redis import Command, Link
from redrive.integrations.bullmq.jobs import Job, children_said
from redrive.integrations.bullmq.keys import Keys, fields_of

_OVERLAP = 1_000  # milliseconds: clocks of workers differ, and what failed before the last may come after it


class FailedJobs:
    """A walk through the set of failed jobs that goes on as it grows."""

    def __init__(self, link: Link, keys: Keys) -> None:
        self._link = link
        self._keys = keys
        self._waiting: deque[str] = deque()
        self._latest = 0.0
        self._near: dict[str, float] = {}  # those that failed within the overlap, which are seen again

    @property
    def left(self) -> int:
        """How many are known, and not yet handed out."""
        return len(self._waiting)

    async def next(self, limit: int) -> list[Job]:
        """Up to so many that were not handed out before; none, if there are none now."""
        if not self._waiting:
            await self._look()
        ids = [self._waiting.popleft() for _ in range(min(limit, len(self._waiting)))]
        return [job for job in await jobs_of(self._link, self._keys, ids) if job.fields]

    async def _look(self) -> None:
        since = max(self._latest - _OVERLAP, 0)
        answer = await self._link.command("ZRANGEBYSCORE", self._keys.failed, since, "+inf", "WITHSCORES")
        scores = {
            id.decode("utf-8", "replace"): float(score) for id, score in zip(answer[::2], answer[1::2], strict=True)
        }
        self._waiting.extend(id for id, score in scores.items() if self._near.get(id) != score)
        self._latest = max([self._latest, *scores.values()])
        self._near = {id: score for id, score in scores.items() if score >= self._latest - _OVERLAP}


async def jobs_of(link: Link, keys: Keys, ids: Sequence[str], reasons: Mapping[str, str] | None = None) -> list[Job]:
    """These jobs as they are now, read in two round trips."""
    if not ids:
        return []
    hashes = await link.commands([("HGETALL", keys.job(id)) for id in ids])
    sent = await link.command("HMGET", keys.sent, *ids)
    fields = [fields_of(answer) for answer in hashes]
    children = await _children(link, keys, [id for id, its in zip(ids, fields, strict=True) if its])
    reasons = reasons or {}
    return [
        Job(keys.queue, id, its, children.get(id, ""), note, reasons.get(id, ""))
        for id, its, note in zip(ids, fields, sent, strict=True)
    ]


async def _children(link: Link, keys: Keys, ids: Sequence[str]) -> dict[str, str]:
    commands: list[Command] = []
    for id in ids:
        key = keys.job(id)
        commands += [("HLEN", f"{key}:processed"), ("SCARD", f"{key}:dependencies"), ("ZCARD", f"{key}:unsuccessful")]
    counts = [int(count) for count in await link.commands(commands)] if commands else []
    return {id: children_said(*counts[3 * number : 3 * number + 3]) for number, id in enumerate(ids)}
