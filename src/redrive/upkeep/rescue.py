"""Rescues what a dead processor left behind: its claims are given back, and its replays found for somebody to run."""

from __future__ import annotations

from redrive.clock import Clock
from redrive.flow.replay import Replays, ReplayState
from redrive.forensics.query import Query
from redrive.model import State
from redrive.stores.base import Store
from redrive.telemetry.events import Events, LettersMoved

_BATCH = 500


async def rescue_claims(store: Store, events: Events, clock: Clock) -> int:
    """Give back letters that were claimed for a retry and never sent: their owner's lease ended.

    One that was sent has no owner any more, so it is never taken from here. A replay's claims stay: the replay is
    run on, and claims them again.
    """
    rescued = 0
    now = clock.now()
    query = Query(states=(State.RETRYING,), lapsed=now)
    while letters := (await store.letters.search(query, limit=_BATCH)).letters:
        moved = 0
        for letter in letters:
            won = await store.letters.move(
                [letter.id], expect=[State.RETRYING], to=State.PENDING, owner=letter.owner, now=now
            )
            moved += len(won)
        rescued += moved
        if not moved:
            break
    if rescued:
        events.emit(LettersMoved(to=State.PENDING, count=rescued, actor="rescue"))
    return rescued


async def rescue_cancelled(store: Store, replays: Replays, clock: Clock) -> None:
    """Give back letters of a replay that was cancelled by somebody who died before giving them back."""
    page = await store.letters.search(Query(states=(State.REPLAYING,), lapsed=clock.now()), limit=_BATCH)
    for id in sorted({letter.replay for letter in page.letters if letter.replay}):
        if (await replays.get(id)).state is ReplayState.CANCELLED:
            await replays.cancel(id, actor="rescue")


async def abandoned_replays(replays: Replays, clock: Clock, *, owner: str = "") -> list[str]:
    """Replays that have something to send and that nobody runs, newest first; and those that this owner runs, or was
    running when the store went away."""
    now = clock.now()
    return [
        replay.id
        for replay in await replays.list(limit=1000)
        if replay.is_due(now)
        and (replay.runner_until is None or replay.runner_until < now or (owner and replay.runner == owner))
    ]
