"""Checks what is in the store and the queues: what waits for nobody, what is stuck, what grows without end."""

from __future__ import annotations

import ipaddress
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from redrive.access.tokens import Tokens
from redrive.answers import ask_each
from redrive.app import Redrive
from redrive.doctor.cluster import cluster
from redrive.doctor.findings import Finding, failure, fine, warning
from redrive.errors import NOT_ALLOWED, nearest
from redrive.flow.pauses import pauses_of
from redrive.flow.replay import Replays
from redrive.flow.storms import storms
from redrive.forensics.marks import GroupState, Marks
from redrive.forensics.query import Query
from redrive.forensics.redact import Redactor
from redrive.forensics.ways_back import not_configured
from redrive.model import State
from redrive.stores.base import IndexesTexts, Store
from redrive.stores.paging import every_letter
from redrive.transports.base import Depth, Transport
from redrive.upkeep.rescue import abandoned_replays

_PATIENCE = 10.0  # seconds: to count many letters takes its time
_MANY = 100_000
_BEHIND = 1000  # letters: so many one search makes up for
_FORGOTTEN = timedelta(days=1)
_STUCK = timedelta(hours=1)
_MOST_READ = 5000
_A_WHILE = 0.3  # seconds
_END_OF_TIME = datetime(9999, 1, 1, tzinfo=UTC)


async def contents(app: Redrive, store: Store, transports: Mapping[str, Transport]) -> list[Finding]:
    """All checks of the contents, in the order in which a person would look. They are made at the same time: one that
    cannot be made is a finding, and takes no other with it."""
    rules: list[tuple[str, AsyncIterator[Finding]]] = []
    rules += [("store", rule(app, store)) for rule in (cluster, _grows, _forgotten, _stuck, _no_way_back, _marked)]
    rules += [("store", _abandoned(app, store, transports))]
    for name, transport in transports.items():
        alone = {name: transport}
        rules += [(f"transports.{name}", rule) for rule in (_unhandled(app, alone), _paused(app, store, alone))]
    rules += [("store", _not_indexed(store)), ("store", _stormed(store)), ("store", _open_door(app, store))]
    return await _found_by(rules)


async def _found_by(rules: Sequence[tuple[str, AsyncIterator[Finding]]]) -> list[Finding]:
    def made(rule: AsyncIterator[Finding]) -> Callable[[], Awaitable[list[Finding]]]:
        return lambda: _listed(rule)

    asked = {str(number): made(rule) for number, (_, rule) in enumerate(rules)}
    answers = await ask_each(asked, patience=_PATIENCE)
    silent = {rules[int(each.backend)][0]: each.why for each in answers.unanswered}  # each backend once
    found = [finding for some in answers.found.values() for finding in some]
    return found + [failure(about, why, "look again: it answered a moment ago") for about, why in silent.items()]


async def _listed(rule: AsyncIterator[Finding]) -> list[Finding]:
    return [finding async for finding in rule]


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


async def _marked(app: Redrive, store: Store) -> AsyncIterator[Finding]:
    """Groups that are fixed, and wait for a person."""
    for mark in (await Marks(store.documents).all()).values():
        fix = mark.fix
        if fix is None:
            continue
        if fix.state is GroupState.REGRESSED:
            yield warning(
                "groups",
                f"{mark.group} has regressed: fixed in {fix.version}, letter {fix.letter} died on {fix.regressed_in}",
                f"`redrive show {fix.letter}` says how; then fix it in a newer version, or `redrive fix --undo`",
            )
        elif fix.state is GroupState.DEPLOYED and fix.replay is None:
            waiting = await store.letters.count(Query(groups=(mark.group,), states=(State.PENDING, State.EXHAUSTED)))
            if waiting:
                yield warning(
                    "groups",
                    f"{mark.group} is fixed in {fix.version}, which runs everywhere: {waiting:,} of its letters wait",
                    f"redrive replay --group {mark.group}",
                )


async def _on_their_way(store: Store) -> AsyncIterator[tuple[str, datetime]]:
    """Letters that are retrying or replaying, the oldest first, up to a bound."""
    query = Query(states=(State.RETRYING, State.REPLAYING))
    async for letter in every_letter(store.letters, query, limit=_MOST_READ, oldest_first=True):
        yield letter.message.source, letter.updated_at


async def _no_way_back(app: Redrive, store: Store) -> AsyncIterator[Finding]:
    """Letters that nobody can send back from here: their transport is not configured."""
    waiting = Query(states=(State.PENDING, State.EXHAUSTED))
    total = await store.letters.count(waiting)
    for name, count in (await not_configured(store.letters, waiting, total, app.transport_names)).items():
        if name.startswith(NOT_ALLOWED):
            said = f"{count:,} cannot be sent back: their dead records name a source that nobody has allowed"
            mend = "`redrive collect --allow-source` of where they lay allows it; archive them otherwise"
        else:
            said = (
                f"{count:,} go back through the transport {name!r}, which is not configured here: a replay skips them"
            )
            mend = f"set `transports.{name}`, or retry and replay them where it is configured"
        yield warning("letters", said, mend)


async def _abandoned(app: Redrive, store: Store, transports: Mapping[str, Transport]) -> AsyncIterator[Finding]:
    replays = Replays(store, transports, app.events, app.clock)
    for id in await abandoned_replays(replays, app.clock):
        yield warning("replays", f"replay {id} is not at its end, and nobody runs it", f"redrive replays resume {id}")


async def _unhandled(app: Redrive, transports: Mapping[str, Transport]) -> AsyncIterator[Finding]:
    """Queues that something was sent to and that nobody handles: not this app, or nobody at all."""
    for name, transport in transports.items():
        waiting = {source: depth for source, depth in (await transport.depths()).items() if depth.total}
        strange = [source for source in waiting if app.handlers and source not in app.sources]
        for source in strange:
            yield warning(
                "queues",
                f"{waiting[source].total:,} messages wait in {source!r}, which this app has no handler for",
                f"register one with @app.handler({source!r}){nearest(source, app.handlers)}",
            )
        others = {source: depth for source, depth in waiting.items() if source not in strange}
        async for source in _untouched(app, name, transport, others):
            yield warning(
                "queues",
                f"{waiting[source].total:,} messages wait in {source!r}, and nobody handles any",
                f"start its worker: `redrive run MODULE:APP`{_or_app(app)}",
            )


async def _untouched(app: Redrive, name: str, transport: Transport, waiting: Mapping[str, Depth]) -> AsyncIterator[str]:
    """Those of them that nobody takes anything of, looked at twice: a worker may be between two messages."""
    if not transport.features.counts_leased:
        return  # a worker that is at it would look like none
    idle = [source for source, depth in waiting.items() if depth.ready and not depth.leased]
    kept = pauses_of(transport, name, app.store.documents, app.clock) if idle else None
    paused = set() if kept is None else {pause.source for pause in await kept.pauses()}
    paused |= {state.source for _, state in await storms(app.store.documents, transport=name)} if idle else set()
    idle = [source for source in idle if source not in paused]
    if idle:
        await app.clock.sleep(_A_WHILE)
    later = await transport.depths() if idle else {}
    for source in idle:
        if source in later and not later[source].leased and later[source].ready >= waiting[source].ready:
            yield source


def _or_app(app: Redrive) -> str:
    return "" if app.handlers else "; `redrive doctor --app MODULE:APP` compares with the handlers of your app"


async def _paused(app: Redrive, store: Store, transports: Mapping[str, Transport]) -> AsyncIterator[Finding]:
    for name, transport in transports.items():
        kept = pauses_of(transport, name, store.documents, app.clock)
        for paused in () if kept is None else await kept.pauses():
            why = f" ({Redactor.of(app.settings.redact).text(paused.why)})" if paused.why else ""
            since = f"{paused.at:%Y-%m-%d %H:%M} UTC"
            yield warning(
                "queues",
                f"{paused.source!r} is paused by {paused.by} since {since}{why}: nobody receives anything of it",
                f"redrive resume {shlex.quote(paused.source)}",
            )


async def _not_indexed(store: Store) -> AsyncIterator[Finding]:
    left = await store.index_texts(0) if isinstance(store, IndexesTexts) else 0
    if left > _BEHIND:
        yield warning(
            "store",
            f"{left:,} letters are not in the index of texts yet: a search for a text does not find them",
            "let `redrive up` or a worker run: upkeep indexes them, the newest first",
        )


async def _stormed(store: Store) -> AsyncIterator[Finding]:
    for _, storm in await storms(store.documents):
        since = f"{storm.at:%Y-%m-%d %H:%M} UTC"
        yield warning(
            "queues",
            f"{storm.source!r} is in a storm since {since} ({storm.why}): it is paused, and tried with one message "
            f"at a time; {storm.failed:,} of these have failed",
            f"mend what fails, and it goes on by itself; or: redrive resume {shlex.quote(storm.source)}",
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
