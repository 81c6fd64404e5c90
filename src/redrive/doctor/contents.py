"""Checks what is in the store and the queues: what waits for nobody, what is stuck, what grows without end."""

from __future__ import annotations

import ipaddress
import shlex
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta

from redrive.access.tokens import Tokens
from redrive.app import Redrive
from redrive.doctor.cluster import cluster
from redrive.doctor.findings import Finding, failure, fine, warning
from redrive.errors import nearest
from redrive.flow.replay import Replays
from redrive.forensics.query import Query
from redrive.model import State
from redrive.stores.base import Store
from redrive.stores.paging import every_letter
from redrive.transports.base import Depth, Pausable, Transport
from redrive.upkeep.rescue import abandoned_replays

_MANY = 100_000
_FORGOTTEN = timedelta(days=1)
_STUCK = timedelta(hours=1)
_MOST_READ = 5000
_A_WHILE = 0.3  # seconds
_END_OF_TIME = datetime(9999, 1, 1, tzinfo=UTC)


async def contents(app: Redrive, store: Store, transports: Mapping[str, Transport]) -> AsyncIterator[Finding]:
    """All checks of the contents, in the order in which a person would look."""
    for rule in (cluster, _grows, _forgotten, _stuck):
        async for finding in rule(app, store):
            yield finding
    async for finding in _abandoned(app, store, transports):
        yield finding
    async for finding in _unhandled(app, transports):
        yield finding
    async for finding in _held(transports):
        yield finding
    async for finding in _open_door(app, store):
        yield finding


async def _grows(app: Redrive, store: Store) -> AsyncIterator[Finding]:
    total, kept = await store.letters.count(Query()), app.settings.retention
    if total > _MANY and kept.ttl is None and kept.max_letters is None:
        yield warning(
            "retention",
            f"there are {total:,} letters, and nothing ever removes one",
            "set `retention.ttl` (REDRIVE_RETENTION_TTL=30d) or `retention.max_letters`",
        )
    else:
        yield fine("letters", f"{total:,} kept")


async def _forgotten(app: Redrive, store: Store) -> AsyncIterator[Finding]:
    """Letters pending for long, with no retry to come: only a person can decide."""
    query = Query(states=(State.PENDING,), before=app.clock.now() - _FORGOTTEN)
    coming = Query(states=query.states, before=query.before, due=_END_OF_TIME)
    count = await store.letters.count(query) - await store.letters.count(coming)
    if count > 0:
        yield warning(
            "letters",
            f"{count:,} pending for more than a day, with no automatic retry to come",
            "`redrive groups --state pending --older-than 1d` says why; then replay or archive them",
        )


async def _stuck(app: Redrive, store: Store) -> AsyncIterator[Finding]:
    """Letters on their way for so long that nobody seems to receive them."""
    stuck: dict[str, int] = {}
    async for source, since in _on_their_way(store):
        if app.clock.now() - since > _STUCK:
            stuck[source] = stuck.get(source, 0) + 1
    for source, count in stuck.items():
        yield warning(
            "letters",
            f"{count:,} of {source} retrying or replaying for more than an hour: nobody seems to receive them",
            f"does a worker run for {source}? `redrive stats` shows its queue; if that is empty, archive them",
        )


async def _on_their_way(store: Store) -> AsyncIterator[tuple[str, datetime]]:
    """Letters that are retrying or replaying, the oldest first, up to a bound."""
    query = Query(states=(State.RETRYING, State.REPLAYING))
    async for letter in every_letter(store.letters, query, limit=_MOST_READ, oldest_first=True):
        yield letter.message.source, letter.updated_at


async def _abandoned(app: Redrive, store: Store, transports: Mapping[str, Transport]) -> AsyncIterator[Finding]:
    replays = Replays(store, transports, app.events, app.clock)
    for id in await abandoned_replays(replays, app.clock):
        yield warning("replays", f"replay {id} is not at its end, and nobody runs it", f"redrive replays resume {id}")


async def _unhandled(app: Redrive, transports: Mapping[str, Transport]) -> AsyncIterator[Finding]:
    """Queues that something was sent to and that nobody handles: not this app, or nobody at all."""
    for transport in transports.values():
        waiting = {source: depth for source, depth in (await transport.depths()).items() if depth.total}
        strange = [source for source in waiting if app.handlers and source not in app.sources]
        for source in strange:
            yield warning(
                "queues",
                f"{waiting[source].total:,} messages wait in {source!r}, which this app has no handler for",
                f"register one with @app.handler({source!r}){nearest(source, app.handlers)}",
            )
        async for source in _untouched(
            app, transport, {name: waiting[name] for name in waiting if name not in strange}
        ):
            yield warning(
                "queues",
                f"{waiting[source].total:,} messages wait in {source!r}, and nobody handles any",
                f"start its worker: `redrive run MODULE:APP`{_or_app(app)}",
            )


async def _untouched(app: Redrive, transport: Transport, waiting: Mapping[str, Depth]) -> AsyncIterator[str]:
    """Those of them that nobody takes anything of, looked at twice: a worker may be between two messages."""
    if not transport.features.counts_leased:
        return  # a worker that is at it would look like none
    idle = [source for source, depth in waiting.items() if depth.ready and not depth.leased]
    held = await transport.paused() if idle and isinstance(transport, Pausable) else ()
    idle = [source for source in idle if source not in held]
    if idle:
        await app.clock.sleep(_A_WHILE)
    later = await transport.depths() if idle else {}
    for source in idle:
        if source in later and not later[source].leased and later[source].ready >= waiting[source].ready:
            yield source


def _or_app(app: Redrive) -> str:
    return "" if app.handlers else "; `redrive doctor --app MODULE:APP` compares with the handlers of your app"


async def _held(transports: Mapping[str, Transport]) -> AsyncIterator[Finding]:
    for transport in transports.values():
        for source in await transport.paused() if isinstance(transport, Pausable) else ():
            yield warning(
                "queues",
                f"{source!r} is paused: nobody receives anything of it",
                f"redrive resume {shlex.quote(source)}",
            )


async def _open_door(app: Redrive, store: Store) -> AsyncIterator[Finding]:
    host = app.settings.admin.host
    if not _is_loopback(host) and not await Tokens(store.documents, app.clock).any():
        yield failure(
            "admin",
            f"it is to listen on {host}, and there is no token: `redrive up` will refuse",
            "redrive token create --role admin --name me",
        )


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
