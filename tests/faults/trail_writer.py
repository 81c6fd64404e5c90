"""Appends lines to the trail of a store until it has written so many, or is killed; says each on stdout."""

from __future__ import annotations

import asyncio
import sys

from redrive.access.actors import Actor, Role, Via
from redrive.access.trail import Phase, said
from redrive.access.trail_store import Trail
from redrive.clock import SystemClock
from redrive.registry import open_store


async def main(url: str, name: str, count: int) -> None:
    store, clock = open_store(url), SystemClock()
    trail = Trail(store.documents, clock)
    actor = Actor(id=name, name=name, role=Role.OPERATOR, via=Via.TOKEN)

    async def act(number: int) -> None:
        line = said(actor, "purge", Phase.BEGAN, at=clock.now().isoformat(), detail=str(number))
        seq = await trail.append(line)
        print(seq, flush=True)

    for first in range(0, count, 5):
        await asyncio.gather(*(act(number) for number in range(first, min(first + 5, count))))
        await asyncio.sleep(0.01)  # SQLite has no queue: who never lets go of it starves the others
    await store.aclose()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
