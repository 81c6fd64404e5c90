"""The way back to Dramatiq's queues on Redis, `dramatiq+redis://`, and its dead-letter queues for `redrive collect`.

    {namespace}:{queue}           a list of ids: what waits
    {namespace}:{queue}.msgs      id -> message: what waits, and what a worker has
    {namespace}:{queue}.XQ        the ids of dead messages, by when they died
    {namespace}:{queue}.XQ.msgs   id -> dead message

`?namespace=` is that of the RedisBroker. A dead message stays where it lies until its letter is durable, so whoever
reads it beside us reads the same, and no lease is needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from msgspec import Struct

from redrive.clock import Clock, microseconds
from redrive.drivers.redis import Link, Script, script
from redrive.drivers.redis import doubts as doubts_of
from redrive.errors import ConfigError, TransportUnavailable
from redrive.flow.lineage import LETTER, REPLAY, named
from redrive.integrations.dramatiq.envelope import REDIS_ID, UNFIT, fields_in, sent_body
from redrive.integrations.dramatiq.over_amqp import DEAD, unfit
from redrive.model import Done, Message
from redrive.transports.base import ACCEPTED, Delivery, Depth, Features, SendResult, Settlement, refused

_SCHEME, _NAMESPACE = "dramatiq+", "dramatiq"
_DELAYED = ".DQ"
_POLL = 0.5  # seconds between looks at a dead-letter queue that is empty
_AT_ONCE = 500


class Place(Struct, frozen=True):
    """Where a dead message lies, and since when."""

    id: bytes
    at: datetime


class Doubt(Struct, frozen=True):
    """What is wrong with the server."""

    text: str
    mend: str
    is_failure: bool = False


class DramatiqOverRedis:
    """Queues of Dramatiq on Redis."""

    features = Features(
        durable=True,
        native_delay=False,
        counts_attempts=False,
        keeps_history=False,
        ordered_by="none",
        idempotent_send=False,
        shared=True,
        urgent_first=False,
    )

    def __init__(self, url: str, *, namespace: str, clock: Clock) -> None:
        self.namespace = namespace
        self._link = Link(url, unavailable=TransportUnavailable)
        self._clock = clock
        self._held: dict[str, set[bytes]] = {}  # what was received and not settled, by dead-letter queue
        self._sent: set[str] = set()

    # -- sending ------------------------------------------------------------------------------------------------------

    async def send(self, messages: Sequence[Message]) -> Sequence[SendResult]:
        answers = [_refusal(message) for message in messages]
        fit = [message for message, answer in zip(messages, answers, strict=True) if answer is None]
        for first in range(0, len(fit), _AT_ONCE):
            calls = [self._call(message) for message in fit[first : first + _AT_ONCE]]
            await self._link.run_all(_enqueue(), calls)
        self._sent |= {message.source for message in fit}
        return [answer or ACCEPTED for answer in answers]

    def _call(self, message: Message) -> tuple[list[str], list[str | bytes]]:
        id = _redis_id(message)
        queue = self.key(message.source)
        return [queue, f"{queue}.msgs"], [id, sent_body(message, {"redis_message_id": id})]

    # -- collecting ---------------------------------------------------------------------------------------------------

    async def receive(self, source: str, limit: int) -> Sequence[Delivery]:
        if not source.endswith(DEAD):
            raise ConfigError(f"Dramatiq runs the messages of {source!r} itself: collect from {source}{DEAD}")
        held = self._held.setdefault(source, set())
        while True:
            found = [(id, at, body) for id, at, body in await self._dead(source, limit + len(held)) if id not in held]
            if found:
                held |= {id for id, _, _ in found}
                return [self._delivery(source, id, at, body) for id, at, body in found]
            await asyncio.sleep(_POLL)

    async def _dead(self, source: str, limit: int) -> list[tuple[bytes, float, bytes]]:
        listed = await self._link.command("ZRANGE", self.key(source), 0, limit - 1, "WITHSCORES")
        if not listed:
            return []
        ids, scores = listed[::2], listed[1::2]
        bodies = await self._link.command("HMGET", f"{self.key(source)}.msgs", *ids)
        gone = [id for id, body in zip(ids, bodies, strict=True) if body is None]
        if gone:
            await self._link.command("ZREM", self.key(source), *gone)
        found = zip(ids, scores, bodies, strict=True)
        return [(id, float(score), body) for id, score, body in found if body is not None]

    def _delivery(self, source: str, id: bytes, score: float, body: bytes) -> Delivery:
        at = datetime.fromtimestamp(score / 1000, UTC) if 0 < score < 1 << 47 else self._clock.now()
        message = Message(id.decode("utf-8", "replace"), source, body, at)
        return Delivery(message, Place(id, at))

    async def extend(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        return ()

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Delivery]:
        """What is done goes; everything else is received again."""
        commands: list[tuple[str, str, bytes]] = []
        for settlement in settlements:
            source, place = settlement.delivery.message.source, settlement.delivery.token
            if isinstance(settlement.outcome, Done):
                key = self.key(source)
                commands += [("ZREM", key, place.id), ("HDEL", f"{key}.msgs", place.id)]
        if commands:
            await self._link.commands(commands)
        for settlement in settlements:
            self._held.get(settlement.delivery.message.source, set()).discard(settlement.delivery.token.id)
        return ()

    # -- the rest -----------------------------------------------------------------------------------------------------

    def key(self, queue: str) -> str:
        return f"{self.namespace}:{queue}"

    async def depths(self) -> dict[str, Depth]:
        """Of what was sent to or received from by this instance."""
        found: dict[str, Depth] = {}
        for source in self._held:
            dead = int(await self._link.command("ZCARD", self.key(source)))
            found[source] = Depth(ready=dead, delayed=0, leased=0)
        for source in self._sent:
            key = self.key(source)
            asked = [("LLEN", key), ("HLEN", f"{key}.msgs"), ("HLEN", f"{key}{_DELAYED}.msgs")]
            waiting, all_of_it, delayed = map(int, await self._link.commands(asked))
            found[source] = Depth(ready=waiting, delayed=delayed, leased=max(all_of_it - waiting, 0))
        return found

    async def dead(self) -> dict[str, int]:
        """How many dead messages lie in each dead-letter queue."""
        found: dict[str, int] = {}
        cursor = b"0"
        while True:
            cursor, keys = await self._link.command("SCAN", cursor, "MATCH", f"{self.namespace}:*{DEAD}")
            for key in keys:
                name = key.decode("utf-8", "replace").removeprefix(f"{self.namespace}:")
                found[name] = int(await self._link.command("ZCARD", key))
            if int(cursor) == 0:
                return found

    async def check(self) -> None:
        await self._link.command("PING")

    async def doubts(self) -> Sequence[Doubt]:
        """How its server could lose messages of Dramatiq."""
        infos = await self._link.infos()
        return [Doubt(doubt.text, doubt.mend) for info in infos.values() for doubt in doubts_of(info)]

    async def aclose(self) -> None:
        await self._link.aclose()


def _enqueue() -> Script:
    return script("redrive.integrations.dramatiq", "enqueue")


def _refusal(message: Message) -> SendResult | None:
    """Why it is not sent. Bytes that Dramatiq cannot decode would end its consumer on Redis, with all that it holds."""
    if (why := message.header(UNFIT)) is not None:
        return unfit(why)
    is_pickle = message.body[:1] == b"\x80" and message.body[-1:] == b"."
    if fields_in(message.body) is None and not is_pickle and message.header(REDIS_ID) is None:
        return refused("it is neither JSON nor a pickle: a worker of Dramatiq could not get past it")
    return None


def _redis_id(message: Message) -> str:
    """What it is called in Redis: the same for the same replay, so that one which is sent again while it is queued is
    one message. What we cannot read has its name within."""
    if fields_in(message.body) is None:
        return (message.header(REDIS_ID) or message.id.encode()).decode("utf-8", "replace")
    letter, replay = message.header(LETTER), message.header(REPLAY)
    if letter is None:
        return message.id
    sent = str(microseconds(message.enqueued_at)) if replay is None else replay.decode("ascii", "replace")
    return f"{named(letter)}-{sent}"


def open_transport(url: str, *, clock: Clock, lease: timedelta) -> DramatiqOverRedis:
    """`dramatiq+redis://user:password@host/0?namespace=dramatiq`."""
    parts = urlsplit(url.removeprefix(_SCHEME))
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    namespace = options.pop("namespace", _NAMESPACE)
    if not namespace:
        raise ConfigError("namespace= in a URL of Dramatiq's Redis is empty: it is that of the RedisBroker")
    return DramatiqOverRedis(urlunsplit(parts._replace(query=urlencode(options))), namespace=namespace, clock=clock)
