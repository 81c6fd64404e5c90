"""Rescues what a dead processor left behind: its claims are given back, and its replays found for somebody to run."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime

from redrive.clock import Clock
from redrive.errors import UnknownReplay
from redrive.flow.replay import Replay, Replays, ReplayState
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


async def rescue_stopped(store: Store, replays: Replays, clock: Clock, *, owner: str = "rescue") -> None:
    """Give back letters of a replay that was paused or cancelled, if who had them died before giving them back."""
    query = Query(states=(State.REPLAYING,), lapsed=clock.now())
    page = await store.letters.search(query, limit=_BATCH)
    found = {letter.replay for letter in page.letters if letter.replay}
    if page.after is not None:  # those of one that runs may hide the others
        found |= {replay.id for replay in await replays.open() if replay.state is ReplayState.PAUSED}
    for id in sorted(found):
        with suppress(UnknownReplay):
            await replays.give_back(id, actor=owner)


async def abandoned_replays(replays: Replays, clock: Clock, *, owner: str = "") -> list[str]:
    """Replays that have something to send and that nobody runs, newest first; and those that this owner runs, or was
    running when the store went away."""
    return [replay.id for replay in abandoned(await replays.open(), clock.now(), owner=owner)]


def abandoned(replays: Iterable[Replay], now: datetime, *, owner: str = "") -> list[Replay]:
    """Of these, the ones that have something to send and that nobody runs, by our clock."""
    return [
        replay
        for replay in replays
        if replay.is_due(now)
        and (replay.runner_until is None or replay.runner_until < now or (owner and replay.runner == owner))
    ]
