"""The queue in Redis: leases, settles and sends in batches, each in one round trip."""

from __future__ import annotations

import asyncio
import secrets
from collections import defaultdict
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import msgspec

from redrive.clock import Clock, moment
from redrive.drivers.redis import Link, Value
from redrive.errors import TransportUnavailable
from redrive.limits import Fair, Limits
from redrive.model import Category, Done, Message, Release, Retry
from redrive.transports.base import (
    ACCEPTED,
    Delivery,
    Depth,
    Features,
    Listing,
    Paused,
    QueueState,
    SendResult,
    Settlement,
    number_after,
    unknown,
)
from redrive.transports.redis import scripts
from redrive.transports.redis.fetching import Fetch
from redrive.transports.redis.packing import Group, delivered, digest, history, packed, queued
from redrive.transports.redis.tenants import TenantMetrics, metrics

_MOST_AT_ONCE, _LARGEST = 500, 1 << 20  # jobs and bytes that one script is given
_CALLS_AT_ONCE = 16  # scripts in one round trip: more would make a server that is busy look like one that is away
_NAMED_FOR = 60.0
_NO_LIMITS, _USUAL = Limits(), Fair()


class RedisTransport:
    """Leases messages by the server's own clock: what a dead worker held comes back by itself."""

    features = Features(
        durable=True,
        native_delay=True,
        counts_attempts=True,
        keeps_history=True,
        ordered_by="source",
        idempotent_send=True,
        shared=True,
        delays_sends=True,
    )

    def __init__(self, url: str, *, clock: Clock, lease: timedelta) -> None:
        self._link = Link(url, unavailable=TransportUnavailable)
        self._clock = clock
        self._lease = _milliseconds(lease)
        self._limits: dict[str, Limits] = {}
        self._at_once: set[str] = set()  # sources whose attempts begin when they are received
        self._unanswered: set[tuple[bytes, bytes]] = set()  # settlements that may have been carried out
        self._governed: set[str] = set()  # sources whose limits the server knows
        self._named: dict[str, float] = {}  # source -> when we last wrote it down
        self._holder = secrets.token_hex(4)  # our tokens begin so
        self._background: set[asyncio.Task[None]] = set()
        self._sources = f"{self._link.address.prefix}:sources"

    # -- the seam ------------------------------------------------------------------------------------------------

    async def receive(self, source: str, limit: int) -> Sequence[Delivery]:
        """Lease messages, the most urgent first; where the source is fair, tenants take turns."""
        try:
            await self._introduce(source)
            wait: float | None = None
            while True:
                wait, deliveries = await self._fetch(source, min(limit, _MOST_AT_ONCE), wait)
                if deliveries:
                    return deliveries
                if wait < 0:  # somebody has emptied the server
                    await self._introduce(source, again=True)
                    wait = None
        except TransportUnavailable:
            self._governed.discard(source)  # what comes back may be another server
            raise

    async def extend(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        lost: set[tuple[bytes, bytes]] = set()
        for source, some in _by_source(deliveries).items():
            arguments: list[Value] = [self._lease]
            for token, ids in _by_token(some).items():
                arguments += (token, len(ids), *ids)
            lost |= _pairs(await self._link.run(scripts.EXTEND, [self.queue(source)], arguments))
        return _those(deliveries, lost)

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Delivery]:
        by_source: dict[str, list[Settlement]] = defaultdict(list)
        for settlement in settlements:
            by_source[settlement.delivery.message.source].append(settlement)
        lost: set[tuple[bytes, bytes]] = set()
        for source, some in by_source.items():
            arguments = self._decided(source, some)
            try:
                found = await self._link.run(scripts.SETTLE, [self.queue(source)], arguments)
            except TransportUnavailable:
                self._unanswered.update(map(_pair, some))
                raise
            lost |= self._really_lost(some, found)
        return _those([settlement.delivery for settlement in settlements], lost)

    def _really_lost(self, settlements: Sequence[Settlement], found: Sequence[bytes]) -> set[tuple[bytes, bytes]]:
        """Those whose lease another has. What is settled a second time, because the answer to the first did not come,
        is not lost if the first can have done it: then it is gone or, put back, is there for anybody."""
        lost = {(token, id): instead for token, id, instead in zip(found[::3], found[1::3], found[2::3], strict=True)}
        if not self._unanswered:
            return set(lost)
        for settlement in settlements:
            pair = _pair(settlement)
            if pair in self._unanswered:
                self._unanswered.discard(pair)
                if lost.get(pair) == b"gone" or not isinstance(settlement.outcome, Done):
                    lost.pop(pair, None)
        return set(lost)

    # -- counting attempts ---------------------------------------------------------------------------------------

    async def begin(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        lost: set[tuple[bytes, bytes]] = set()
        for source, some in _by_source(deliveries).items():
            arguments: list[Value] = []
            for token, ids in _by_token(some).items():
                arguments += (token, len(ids), *ids)
            lost |= _pairs(await self._link.run(scripts.BEGIN, [self.queue(source)], arguments))
        return _those(deliveries, lost)

    def begin_at_once(self, source: str, at_once: bool) -> None:
        (self._at_once.add if at_once else self._at_once.discard)(source)

    async def send(self, messages: Sequence[Message]) -> Sequence[SendResult]:
        """Together. Where that fails on a cluster, of which a part may be away, source by source: an id that is queued
        already stays one message."""
        if not messages:
            return []
        await self._link.trust()
        by_source: dict[str, list[Message]] = defaultdict(list)
        for message in messages:
            by_source[message.source].append(message)
        try:
            await self._add(by_source)
        except TransportUnavailable:
            if len(by_source) == 1 or not self._link.address.cluster:
                raise
            results = await asyncio.gather(*(self._added(source, some) for source, some in by_source.items()))
            by_name = dict(zip(by_source, results, strict=True))
            return [by_name[message.source] for message in messages]
        return [ACCEPTED] * len(messages)

    async def _added(self, source: str, messages: list[Message]) -> SendResult:
        try:
            await self._add({source: messages})
        except TransportUnavailable as error:
            return unknown(error)
        return ACCEPTED

    async def _add(self, by_source: Mapping[str, Sequence[Message]]) -> None:
        for source in by_source.keys() & self._limits.keys():
            await self._introduce(source)  # what is added before the server knows the limits is in no tenant's turn
        await self._name(by_source)
        calls = [
            (source, [self.queue(source)], (int(source in self._limits), *self._groups(chunk)))
            for source, some in by_source.items()
            for chunk in _chunks(some)
        ]
        for start in range(0, len(calls), _CALLS_AT_ONCE):
            await self._add_some(calls[start : start + _CALLS_AT_ONCE])

    async def _add_some(self, calls: Sequence[tuple[str, Sequence[Value], Sequence[Value]]]) -> None:
        """Add; where the server has forgotten the terms of a source, it is told them before."""
        while calls:
            answers = await self._link.run_all(scripts.ADD, [call[1:] for call in calls])
            calls = [call for call, answer in zip(calls, answers, strict=True) if answer < 0]
            for source in {call[0] for call in calls}:
                await self._introduce(source, again=True)

    async def depths(self) -> dict[str, Depth]:
        names = await self._names()
        if not names:
            return {}
        counts = await self._link.run_all(scripts.DEPTH, [([self.queue(name)], ()) for name in names])
        depths = {name: Depth(*numbers) for name, numbers in zip(names, counts, strict=True)}
        return {name: depth for name, depth in depths.items() if depth.total}

    async def check(self) -> None:
        """Check by writing: a replica, or a server whose disk is full, can be read and takes nothing."""
        await self._link.command("SREM", f"{self._sources}:check", "")
        await self._link.trust()

    async def aclose(self) -> None:
        """Close the connections, after what a cancelled receive had taken is given back."""
        await asyncio.gather(*self._background, return_exceptions=True)
        await self._link.aclose()

    # -- more than the seam asks for -----------------------------------------------------------------------------

    def limit(self, source: str, limits: Limits) -> None:
        """Keep these limits from the next receive on, for every worker of that source."""
        self._limits[source] = limits
        self._governed.discard(source)

    @property
    def holder(self) -> str:
        return self._holder

    async def listing(
        self, source: str, *, state: QueueState | None = None, after: str | None = None, limit: int = 100
    ) -> Listing:
        """How the messages of that source stand: in hand, delayed, ready. It is counted from the front."""
        start = number_after(after)
        arguments = [state or "", start, min(limit, _MOST_AT_ONCE) + 1]
        flat = await self._link.run(scripts.LISTING, [self.queue(source)], arguments)
        rows = [flat[number : number + 5] for number in range(0, len(flat), 5)]
        some, now = rows[:limit], self._clock.now()
        more = str(start + len(some)) if len(rows) > len(some) else None
        return Listing(tuple(queued(source, now, *row) for row in some), more)

    async def pause(self, paused: Paused) -> Paused:
        """Let nobody receive from that source until it is resumed. What runs may end; sending goes on."""
        await self._name([paused.source])
        span = "" if paused.until is None else max(0, _milliseconds(paused.until - self._clock.now()))
        arguments = ["pause", msgspec.json.encode(paused), span]
        return _paused(paused.source, await self._link.run(scripts.PAUSE, [self.queue(paused.source)], arguments))

    async def resume(self, source: str) -> Paused | None:
        """Undo `pause`."""
        ended = await self._link.run(scripts.PAUSE, [self.queue(source)], ["resume"])
        return None if ended is None else _paused(source, ended)

    async def pauses(self) -> Sequence[Paused]:
        """The sources that are paused now."""
        names = await self._names()
        kept = await self._link.commands([("HGET", f"{self.queue(name)}:terms", "paused") for name in names])
        found = [_paused(name, value) for name, value in zip(names, kept, strict=True) if value is not None]
        return [paused for paused in found if not paused.is_over(self._clock.now())]

    async def tenants(self, source: str, limit: int = 1000) -> list[TenantMetrics]:
        """How each tenant of a fair source fares, the last served first."""
        return metrics(await self._link.run(scripts.TENANTS, [self.queue(source)], [limit]))

    def queue(self, source: str) -> str:
        """The name that every key of that source begins with, its hash tag in it."""
        tag = source.replace("%", "%25").replace("{", "%7B").replace("}", "%7D")
        return f"{self._link.address.prefix}:{{{tag}}}"

    async def _name(self, sources: Iterable[str]) -> None:
        """Write down that these sources exist: once a minute, in case somebody has emptied the server."""
        now = self._clock.elapsed()
        unnamed = [source for source in sources if self._named.get(source, -_NAMED_FOR) + _NAMED_FOR <= now]
        if unnamed:
            await self._link.command("SADD", self._sources, *(source.encode() for source in unnamed))
            self._named.update(dict.fromkeys(unnamed, now))

    async def _names(self) -> list[str]:
        """Every source that something was ever sent to."""
        return sorted(name.decode() for name in await self._link.command("SMEMBERS", self._sources))

    # -- receiving -----------------------------------------------------------------------------------------------

    async def _introduce(self, source: str, *, again: bool = False) -> None:
        """Check once that the server is to be trusted, and give it our limits; again, if it has forgotten them."""
        await self._link.trust()
        if source in self._governed and not again:
            return
        limits = self._limits.get(source, _NO_LIMITS)
        fair = limits.fair or _USUAL
        named = [part for tenant, weight in fair.weights.items() for part in (digest(tenant), weight)]
        priorities = fair.base_priority, fair.increment, fair.most_urgent
        arguments = int(limits.fair is not None), self._mirror(source), *priorities, *named
        await self._link.run(scripts.GOVERN, [self.queue(source)], arguments)
        self._governed.add(source)
        self._named.pop(source, None)

    def _mirror(self, source: str) -> str:
        """The name that mirrors the queue; `-`: as it is."""
        prefix = self._link.address.mirror
        return "-" if prefix is None else f"{prefix}:{source}" if prefix else ""

    async def _fetch(self, source: str, limit: int, wait: float | None) -> tuple[float, Sequence[Delivery]]:
        """Lease what is there, at once or after waiting for it for at most so many seconds; returns the seconds until
        there may be more, and the leased. Gives back if cancelled."""
        token = f"{self._holder}{secrets.token_hex(4)}".encode()
        arguments = (limit, token, self._lease, *self._arguments_of(source))
        fetch = Fetch(self._link, self.queue(source), token, arguments, waits=wait is not None)
        try:
            if wait is not None:
                await fetch.wait_at_most(self._clock, wait)
            milliseconds, *leased = await asyncio.shield(fetch.answer)
        except asyncio.CancelledError:
            self._later(self._give_back(source, token, fetch))
            raise
        more_in = milliseconds if milliseconds < 0 else milliseconds / 1000
        return more_in, delivered(source, token, *leased) if leased else ()

    def _arguments_of(self, source: str) -> tuple[Value, ...]:
        limits, begins = self._limits.get(source, _NO_LIMITS), int(source in self._at_once)
        in_a_row = limits.fair.in_a_row if limits.fair else 3
        if limits.rate is None:
            return 0, 0, 0, in_a_row, 0, begins
        rate = limits.rate
        return rate.limit, _milliseconds(rate.per), int(rate.adaptive), in_a_row, int(rate.to_the_end), begins

    async def _give_back(self, source: str, token: bytes, fetch: Fetch) -> None:
        await fetch.end_wait()
        _, *leased = await fetch.answer
        if leased:
            ids = leased[0]
            released = (0, 0, token, 0, 0, len(ids), *(part for id in ids for part in (id, 0)))
            await self._link.run(scripts.SETTLE, [self.queue(source)], released)

    def _later(self, work: Coroutine[Any, Any, Any]) -> None:
        """Do that in the background; if the server is away it is dropped, and the end of the lease does the rest."""

        async def quietly() -> None:
            with suppress(TransportUnavailable):
                await work

        task = asyncio.ensure_future(quietly())
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    # -- settling and sending ------------------------------------------------------------------------------------

    def _decided(self, source: str, settlements: Sequence[Settlement]) -> list[Value]:
        """The settlements as arguments of `settle.lua`."""
        rate = self._limits.get(source, _NO_LIMITS).rate
        arguments: list[Value] = [self._throttled(source, settlements), int(rate is not None and rate.to_the_end)]
        by_token: dict[bytes, list[Settlement]] = defaultdict(list)
        for settlement in settlements:
            by_token[settlement.delivery.token].append(settlement)
        for token, some in by_token.items():
            done: list[Value] = []
            retried: list[Value] = []
            released: list[Value] = []
            for settlement in some:
                id = _bytes(settlement.delivery.message.id)
                match settlement.outcome:
                    case Done():
                        done.append(id)
                    case Retry(after):
                        retried += (id, _milliseconds(after), history(settlement))
                    case Release(pause):
                        released += (id, _milliseconds(pause))
            arguments += (token, len(done), len(retried) // 3, len(released) // 2, *done, *retried, *released)
        return arguments

    def _throttled(self, source: str, settlements: Iterable[Settlement]) -> int:
        """The window of a rate that has to give way, in milliseconds; 0 if none has."""
        rate = self._limits.get(source, _NO_LIMITS).rate
        if rate is None or not rate.adaptive:
            return 0
        throttled = any(
            settlement.failure is not None and settlement.failure.category is Category.RESOURCE
            for settlement in settlements
        )
        return _milliseconds(rate.per) if throttled else 0

    def _groups(self, messages: Sequence[Message]) -> list[Value]:
        """The messages as arguments of `add.lua`: those that go the same way together, in their order."""
        groups: dict[Group, list[Value]] = defaultdict(list)
        for message in messages:
            group = message.was_sent_back, message.tenant, message.priority, self._delay(message), message.attempt - 1
            groups[group] += (_bytes(message.id), packed(message))
        arguments: list[Value] = []
        for (back, tenant, priority, delay, tried), jobs in groups.items():
            name = _bytes(tenant or "")
            arguments += (int(back), digest(tenant), name, priority, delay, tried, len(jobs) // 2, *jobs)
        return arguments

    def _delay(self, message: Message) -> int:
        if message.not_before is None:
            return 0
        return max(0, _milliseconds(message.not_before - self._clock.now()))


def _chunks(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """Messages in parts that are not too large for one script: while it runs, nobody else is served."""
    chunk: list[Message] = []
    size = 0
    for message in messages:
        if chunk and (len(chunk) == _MOST_AT_ONCE or size + len(message.body) > _LARGEST):
            yield chunk
            chunk, size = [], 0
        chunk.append(message)
        size += len(message.body)
    yield chunk


def _by_source(deliveries: Iterable[Delivery]) -> dict[str, list[Delivery]]:
    by_source: dict[str, list[Delivery]] = defaultdict(list)
    for delivery in deliveries:
        by_source[delivery.message.source].append(delivery)
    return by_source


def _by_token(deliveries: Iterable[Delivery]) -> dict[bytes, list[bytes]]:
    by_token: dict[bytes, list[bytes]] = defaultdict(list)
    for delivery in deliveries:
        by_token[delivery.token].append(_bytes(delivery.message.id))
    return by_token


def _pairs(flat: Sequence[bytes]) -> set[tuple[bytes, bytes]]:
    return set(zip(flat[::2], flat[1::2], strict=True))


def _pair(settlement: Settlement) -> tuple[bytes, bytes]:
    return settlement.delivery.token, _bytes(settlement.delivery.message.id)


def _those(deliveries: Sequence[Delivery], lost: set[tuple[bytes, bytes]]) -> list[Delivery]:
    return (
        [delivery for delivery in deliveries if (delivery.token, _bytes(delivery.message.id)) in lost] if lost else []
    )


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _paused(source: str, kept: bytes) -> Paused:
    """What is kept of a pause; a version before this one wrote down no more than that there is one."""
    try:
        return msgspec.json.decode(kept, type=Paused)
    except msgspec.DecodeError:
        return Paused(source, by="somebody", at=moment(0), why="paused by an earlier version, which did not ask")


def _milliseconds(span: timedelta) -> int:
    """A duration in milliseconds, rounded up, so that nothing comes before its time."""
    return -(-span // timedelta(milliseconds=1))


def open_transport(url: str, *, clock: Clock, lease: timedelta) -> RedisTransport:
    """`redis://host:6379/0`, `rediss://…`, `redis+cluster://…`."""
    return RedisTransport(url, clock=clock, lease=lease)
