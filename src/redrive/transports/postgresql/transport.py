"""The queue in PostgreSQL: leases, settles and sends in batches, each in one round trip."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Collection, Coroutine, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from redrive.clock import Clock, microseconds, moment
from redrive.drivers.postgresql.link import Link
from redrive.drivers.postgresql.migrations import Migrations
from redrive.drivers.postgresql.trust import Doubt
from redrive.errors import ConfigError, TransportUnavailable
from redrive.limits import Fair, Limits, TenantMetrics
from redrive.model import Done, Holds, Message, MessageId, Release
from redrive.transports.base import Delivery, Depth, Features, Listing, Paused, QueueState, SendResult, Settlement
from redrive.transports.postgresql.acks import CommittedAcks
from redrive.transports.postgresql.bell import Bell
from redrive.transports.postgresql.borrowed import send_on
from redrive.transports.postgresql.cursors import Cursors
from redrive.transports.postgresql.leases import Held, by_source, decided, micros, slices
from redrive.transports.postgresql.rows import as_bytes, as_text, deliveries, digest, row
from redrive.transports.postgresql.sending import PACKAGE, Sending, delay_of
from redrive.transports.postgresql.standing import Standing
from redrive.transports.postgresql.work import Work

_MOST_AT_ONCE = 1000  # messages of one fetch
_NO_LIMITS, _USUAL = Limits(), Fair()


class PostgresqlTransport:
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
        sends_within=True,
        exactly_once=True,
    )

    def __init__(self, url: str, *, clock: Clock, lease: timedelta) -> None:
        self._link = Link(url, migrations=Migrations("queue", PACKAGE), unavailable=TransportUnavailable)
        self._clock = clock
        self._lease = micros(lease)
        self._sending = Sending(self._link, clock)
        self._bell = Bell(self._link, clock)
        self._standing = Standing(self._link, clock)
        self._cursors = Cursors(clock)
        self._limits: dict[str, Limits] = {}
        self._by_key: set[str] = set()  # sources of which one of each key is handed out at a time
        self._at_once: set[str] = set()  # sources whose attempts begin when they are received
        self._numbers: dict[str, int] = {}  # of sources that the server knows, with our limits
        self._unanswered: set[Held] = set()  # settlements that may have been carried out
        self._acks = CommittedAcks(self._link)
        self._identity = ""
        self._background: set[asyncio.Task[None]] = set()

    # -- the seam ------------------------------------------------------------------------------------------------

    async def receive(self, source: str, limit: int) -> Sequence[Delivery]:
        """Lease messages, the most urgent first; where the source is fair, tenants take turns."""
        try:
            while True:
                number = await self._introduce(source)
                self._bell.event(number).clear()
                if taken := await self._fetch(source, min(limit, _MOST_AT_ONCE)):
                    return taken
                await self._bell.wait(number, await self._pause_of(source))
        except TransportUnavailable:
            self._forget(source)
            raise

    async def extend(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        return await self._lost("extend", deliveries, self._lease)

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Delivery]:
        groups: dict[str, list[Settlement]] = defaultdict(list)
        for settlement in settlements:
            groups[settlement.delivery.message.source].append(settlement)
        lost: set[Held] = set()
        for source, some in groups.items():
            lost |= await self._settle(source, some)
        return [item.delivery for item in settlements if item.delivery.token in lost] if lost else []

    async def send(self, messages: Sequence[Message]) -> Sequence[SendResult]:
        """Source by source, each together."""
        groups: dict[str, list[int]] = defaultdict(list)
        for number, message in enumerate(messages):
            groups[message.source].append(number)
        answers: dict[int, SendResult] = {}
        for source, numbers in groups.items():
            if source in self._limits:
                await self._introduce(source)  # what is added before the server knows the limits has no turn
            answers.update(zip(numbers, await self._sending.send(source, [messages[n] for n in numbers]), strict=True))
            if source in self._numbers:
                self._bell.ring(self._numbers[source])
        return [answers[number] for number in range(len(messages))]

    async def depths(self) -> dict[str, Depth]:
        return {as_text(name): Depth(*counts) for name, *counts in await self._run("depths")}

    async def check(self) -> None:
        """Check by writing, where our tables are: a standby can be read, and takes nothing. Makes none."""
        if await self._link.check():
            await self._run("check")

    async def doubts(self) -> Sequence[Doubt]:
        """What is wrong with the server, for `redrive doctor`."""
        return await self._link.doubts()

    async def aclose(self) -> None:
        """Close the connections, after what a cancelled receive had taken is given back."""
        await asyncio.gather(*self._background, return_exceptions=True)
        await self._bell.silence()
        await self._acks.aclose()
        await self._link.aclose()

    # -- in transactions of others ------------------------------------------------------------------------------

    async def send_within(self, connection: Any, message: Message) -> None:
        await self._introduce(message.source)  # a source that is new is made outside of that transaction
        if not self._identity:
            [(self._identity,)] = await self._run("identity")
        made = row(message, delay_of(self._clock, message))
        await send_on(connection, self._link.schema, message, (self._identity, as_bytes(message.source), *made))

    def commit_work(self, source: str) -> None:
        self._acks.watch(source)

    def work(self, message: Message) -> Work:
        return self._acks.work(message)

    # -- counting attempts ---------------------------------------------------------------------------------------

    async def begin(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        return await self._lost("begin", deliveries)

    def begin_at_once(self, source: str, at_once: bool) -> None:
        (self._at_once.add if at_once else self._at_once.discard)(source)

    # -- order, limits, pauses -----------------------------------------------------------------------------------

    def keep_order(self, source: str, holds: Holds) -> None:
        """With `Holds.KEY`, a message of a key is handed out when the one before it is done with."""
        if holds is Holds.PARTITION:
            raise ConfigError(
                f"{source!r}: a queue in PostgreSQL has no partitions: holds='key' keeps each key in order"
            )
        if holds is Holds.KEY and source in self._limits and self._limits[source].fair:
            raise ConfigError(f"{source!r}: fair tenants and holds='key' exclude each other on PostgreSQL")
        (self._by_key.add if holds is Holds.KEY else self._by_key.discard)(source)

    def is_ours(self, delivery: Delivery) -> bool:
        return True

    def limit(self, source: str, limits: Limits) -> None:
        """Keep these limits from the next receive on, for every worker of that source."""
        self._limits[source] = limits
        self._forget(source)

    async def pause(self, paused: Paused) -> Paused:
        return await self._standing.pause(paused)

    async def resume(self, source: str) -> Paused | None:
        return await self._standing.resume(source)

    async def pauses(self) -> Sequence[Paused]:
        return await self._standing.pauses()

    @property
    def holder(self) -> str:
        return self._standing.holder

    async def listing(
        self, source: str, *, state: QueueState | None = None, after: str | None = None, limit: int = 100
    ) -> Listing:
        return await self._standing.listing(source, state=state, after=after, limit=limit)

    async def tenants(self, source: str, limit: int = 1000) -> list[TenantMetrics]:
        found = await self._run("tenants", {"source": as_bytes(source), "limit": limit})
        return [
            TenantMetrics(as_text(name), moment(at) if at else None, rounds, priority, total, in_a_row, waiting)
            for name, total, at, rounds, priority, in_a_row, waiting in found
        ]

    async def find(
        self,
        source: str,
        *,
        ids: Collection[MessageId] | None = None,
        containing: bytes | None = None,
        since: datetime | None = None,
        limit: int = 1000,
    ) -> Sequence[Message]:
        wanted = {
            "source": as_bytes(source),
            "ids": None if ids is None else [as_bytes(id) for id in ids],
            "containing": containing,
            "since": None if since is None else microseconds(since),
            "limit": limit,
        }
        return [delivery.message for delivery in deliveries(source, 0, await self._run("find", wanted))]

    # -- inside --------------------------------------------------------------------------------------------------

    async def _run(self, name: str, parameters: Any = ()) -> list[tuple[Any, ...]]:
        return await self._link.fetch(self._link.sql(PACKAGE, name), parameters)

    async def _introduce(self, source: str) -> int:
        """The number of a source, after the server was given our limits, once."""
        if source in self._numbers:
            return self._numbers[source]
        limits = self._limits.get(source)
        if limits is not None:
            fair = limits.fair or _USUAL
            weights = {str(digest(as_bytes(tenant))): weight for tenant, weight in fair.weights.items()}
            await self._run(
                "govern",
                {
                    "source": as_bytes(source),
                    "fair": limits.fair is not None,
                    "weights": json.dumps(weights),
                    "base": fair.base_priority,
                    "increment": fair.increment,
                    "urgent": fair.most_urgent,
                },
            )
        [(number,)] = await self._run("source", (as_bytes(source),))
        self._numbers[source] = number
        return int(number)

    def _forget(self, source: str) -> None:
        """What comes back may be another server."""
        self._numbers.pop(source, None)
        self._cursors.reset(source)

    async def _fetch(self, source: str, limit: int) -> Sequence[Delivery]:
        """Lease what is there. Gives back what it has leased if it is cancelled."""
        token = self._standing.new_token()
        cursor = self._cursors.next(source)
        wanted = {
            "source": as_bytes(source),
            "wanted": limit,
            "token": token,
            "lease": self._lease,
            "at_once": source in self._at_once,
            "by_key": source in self._by_key,
            "priority": cursor[0],
            "place": cursor[1],
            **self._rate_of(source),
        }
        fetching = asyncio.ensure_future(self._run("fetch", wanted))
        try:
            found = await asyncio.shield(fetching)
        except asyncio.CancelledError:
            self._later(self._give_back(source, token, fetching))
            raise
        ordered = self._cursors.seen(source, cursor, found, limit)
        if not ordered and cursor[1] is not None:
            return await self._fetch(source, limit)  # nothing is behind the cursor: look at everything
        taken = deliveries(source, token, ordered)
        self._acks.add(source, taken)
        return taken

    def _rate_of(self, source: str) -> dict[str, Any]:
        limits = self._limits.get(source, _NO_LIMITS)
        rate = limits.rate
        return {
            "in_a_row": (limits.fair or _USUAL).in_a_row,
            "most": 0 if rate is None else rate.limit,
            "span": 0 if rate is None else micros(rate.per),
            "adapts": rate is not None and rate.adaptive,
            "to_the_end": rate is not None and rate.to_the_end,
        }

    async def _pause_of(self, source: str) -> float:
        """Seconds until something is due, or the rate allows more."""
        [(pause,)] = await self._run("pause_of", {"source": as_bytes(source), **self._rate_of(source)})
        return float(pause) / 1e6

    async def _give_back(self, source: str, token: int, fetching: asyncio.Future[Any]) -> None:
        taken = deliveries(source, token, await fetching)
        await self.settle([Settlement(item, Release()) for item in taken])

    def _later(self, work: Coroutine[Any, Any, Any]) -> None:
        """Do that in the background; if the server is away it is dropped, and the end of the lease does the rest."""

        async def quietly() -> None:
            with suppress(TransportUnavailable):
                await work

        task = asyncio.ensure_future(quietly())
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _lost(self, name: str, deliveries: Sequence[Delivery], *more: Any) -> list[Delivery]:
        """Run that for their leases; returns those whose lease is lost."""
        lost: set[Held] = set()
        for source, some in by_source(deliveries).items():
            ids, tokens, ends = slices(delivery.token for delivery in some)
            held = [(token, id) for token, id in _pairs(ids, tokens, ends)]
            [(numbers,)] = await self._run(name, (as_bytes(source), ids, tokens, ends, *more))
            lost |= self._acks.not_committed({held[number - 1] for number in numbers})
        return [delivery for delivery in deliveries if delivery.token in lost] if lost else []

    async def _settle(self, source: str, settlements: Sequence[Settlement]) -> set[Held]:
        if self._acks.watches(source):
            settlements = self._acks.left(source, settlements)
            if not settlements:
                return set()
        held = [item.delivery.token for item in settlements]
        arguments = decided(settlements, self._limits.get(source, _NO_LIMITS))
        try:
            found = await self._run("settle", (as_bytes(source), *arguments))
        except TransportUnavailable:
            self._unanswered.update(held)
            raise
        goes_back = any(not isinstance(item.outcome, Done) for item in settlements)
        if goes_back:
            self._cursors.reset(source)
        if (goes_back or source in self._by_key) and source in self._numbers:
            self._bell.ring(self._numbers[source])
        return self._really_lost(settlements, {(token, id): instead for id, token, instead in found})

    def _really_lost(self, settlements: Sequence[Settlement], lost: dict[Held, str]) -> set[Held]:
        """Those whose lease another has. What is settled a second time, because the answer to the first did not come,
        is not lost if the first can have done it: then it is gone or, put back, is there for anybody."""
        if not self._unanswered:
            return set(lost)
        for item in settlements:
            held: Held = item.delivery.token
            if held in self._unanswered:
                self._unanswered.discard(held)
                if lost.get(held) == "gone" or not isinstance(item.outcome, Done):
                    lost.pop(held, None)
        return set(lost)


def _pairs(ids: Sequence[bytes], tokens: Sequence[int], ends: Sequence[int]) -> list[Held]:
    """The token of each id."""
    found: list[Held] = []
    for token, end in zip(tokens, ends, strict=True):
        found += [(token, id) for id in ids[len(found) : end]]
    return found


def open_transport(url: str, *, clock: Clock, lease: timedelta) -> PostgresqlTransport:
    """`postgresql://user@host:5432/database`."""
    return PostgresqlTransport(url, clock=clock, lease=lease)
