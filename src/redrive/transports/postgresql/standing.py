"""What people see of a queue and do with it: how its messages stand, and pauses."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec

from redrive.clock import Clock, microseconds
from redrive.drivers.postgresql.link import Link
from redrive.transports.base import Listing, Paused, Queued, QueueState, number_after
from redrive.transports.postgresql.rows import Row, as_bytes, deliveries
from redrive.transports.postgresql.sending import PACKAGE

_TOKEN_BITS = 32
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Paused).decode


class Standing:
    """Looks at a queue, and pauses it. Leases nothing."""

    def __init__(self, link: Link, clock: Clock) -> None:
        self._link = link
        self._clock = clock
        self._number = secrets.randbits(30)

    @property
    def holder(self) -> str:
        """Whose leases ours are, to others."""
        return f"{self._number:08x}"

    def new_token(self) -> int:
        """For a lease of ours."""
        return self._number << _TOKEN_BITS | secrets.randbits(_TOKEN_BITS)

    async def listing(self, source: str, *, state: QueueState | None, after: str | None, limit: int) -> Listing:
        wanted = {"source": as_bytes(source), "state": state, "after": number_after(after), "limit": limit + 1}
        rows = await self._run("listing", wanted)
        more = str(rows[limit - 1][9]) if len(rows) > limit else None
        return Listing(tuple(self._queued(source, row) for row in rows[:limit]), more)

    async def pause(self, paused: Paused) -> Paused:
        span = None if paused.until is None else microseconds(paused.until) - microseconds(self._clock.now())
        wanted = {"source": as_bytes(paused.source), "pause": _encode(paused), "span": span}
        [(kept, _)] = await self._run("pause", wanted)
        return _decode(kept)

    async def resume(self, source: str) -> Paused | None:
        ended = await self._run("resume", {"source": as_bytes(source)})
        return next((_decode(pause) for pause, holds, _ in ended if holds), None)

    async def pauses(self) -> Sequence[Paused]:
        return [_decode(pause) for (pause,) in await self._run("pauses")]

    def _queued(self, source: str, row: Row) -> Queued:
        *held, stands, left, lease = row
        [delivery] = deliveries(source, 0, [tuple(held)])
        state = QueueState(stands)
        return Queued(
            delivery.message,
            state,
            delivery.failures,
            None if left is None else self._clock.now() + timedelta(microseconds=left),
            f"{lease >> _TOKEN_BITS:08x}" if state is QueueState.LEASED else "",
        )

    async def _run(self, name: str, parameters: Any = ()) -> list[tuple[Any, ...]]:
        return await self._link.fetch(self._link.sql(PACKAGE, name), parameters)
