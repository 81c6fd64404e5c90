"""The e-mail system, wired from the parts: a Redrive app whose one handler sends e-mail."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from types import TracebackType
from typing import Any

import msgspec
from msgspec.structs import replace

from redrive.app import Redrive
from redrive.clock import Clock
from redrive.config.load import load
from redrive.config.settings import Retention, Settings
from redrive.errors import ConfigError, NotNow, StoreUnavailable, Unavailable, nearest
from redrive.flow.backoff import constant, exponential
from redrive.flow.classify import Classifier
from redrive.flow.lineage import sent_back
from redrive.flow.signing import load_keys
from redrive.forensics.query import Query
from redrive.limits import Fair, Rate
from redrive.model import Letter, Message, MessageId, State, letter_id
from redrive.policy import Again, Policy
from redrive.stores.base import Store
from redrive.systems.email.accepted import Accepted
from redrive.systems.email.dlq import dlq_url, queue_url
from redrive.systems.email.job import EmailJob, read_job
from redrive.systems.email.rules import judge
from redrive.systems.email.senders import Mail, Sender, SendError, open_sender
from redrive.systems.email.settings import EmailSettings
from redrive.transports.base import KeepsLimits, Transport

_SWEEP_EVERY = timedelta(hours=1)
_PAUSE = timedelta(seconds=1)
_PAGE = 500
_OWNER = "email-add"
_AT_REST = (State.PENDING, State.EXHAUSTED)
Job = EmailJob | Mapping[str, Any] | bytes


class EmailGateway:
    """Sends the jobs of one queue, fairly, at a bounded rate, with retries; what cannot be sent is in the DLQ.

    sender      where e-mail goes: a URL, or any object with `send`, `check` and `aclose`; the setting `email.sender`
    transport   the queue, if it is not the Redis of the setting `email.redis`
    store       the dead letters, if they are not in that Redis
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        sender: Sender | str | None = None,
        transport: str | Transport | None = None,
        store: str | Store | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.settings = settings or load()
        self.email: EmailSettings = self.settings.of(EmailSettings)
        self._sender = sender
        self.app = Redrive(
            settings=replace(self.settings, retention=_retention(self.email)),
            transport=transport or queue_url(self.email),
            store=store or dlq_url(self.email),
            clock=clock,
            classifier=Classifier([judge]),
        )
        self.app.handler(
            self.email.queue,
            policy=policy_of(self.email),
            concurrency=self.email.concurrency,
            rate=rate_of(self.email),
            fair=fair_of(self.email) or False,
        )(self._send)
        self._is_governed = False
        self.on_sent: Callable[[int], None] = lambda attempt: None  # told of each success, with its attempt

    @property
    def sender(self) -> Sender:
        """The sender; opened when the first e-mail goes out, or when it is asked for."""
        if self._sender is None or isinstance(self._sender, str):
            self._sender = open_sender(self._sender or self.email.sender)
        return self._sender

    async def add(self, job: Job) -> MessageId:
        """Queue one job; durable when it returns. Its outboxId is its id: while it is queued, adding it again changes
        nothing."""
        return (await self.add_all([job]))[0]

    async def add_all(self, jobs: Iterable[Job]) -> list[MessageId]:
        """Queue many in one round trip; if one of them is no e-mail job, none is queued."""
        messages = [self._message(job) for job in jobs]
        self._limit()
        dead = await self._dead(messages)
        await self.app.send_messages([_again(message, dead.get(message.id)) for message in messages])
        if dead:
            await self._on_their_way(list(dead.values()))
        return [message.id for message in messages]

    async def _dead(self, messages: Sequence[Message]) -> dict[MessageId, Letter]:
        """The letters of jobs that are in the DLQ: added again, each goes on as its letter, which leaves when it is
        sent. Otherwise who reprocesses the DLQ would send it a second time."""
        found: dict[MessageId, Letter] = {}
        with suppress(StoreUnavailable):  # a queue does not wait for its DLQ
            await load_keys(self.app.store, self.app.clock.now())
            for start in range(0, len(messages), _PAGE):
                ids = tuple(letter_id(message.source, message.id) for message in messages[start : start + _PAGE])
                page = await self.app.store.letters.search(Query(ids=ids, states=_AT_REST), limit=_PAGE)
                found |= {letter.message.id: letter for letter in page.letters}
        return found

    async def _on_their_way(self, letters: Sequence[Letter]) -> None:
        """Note that these are queued, so that no replay sends them as well. What is sent by now stays as it is."""
        now, ids = self.app.clock.now(), tuple(letter.id for letter in letters)
        with suppress(StoreUnavailable):
            claimed = await self.app.store.letters.claim(
                Query(ids=ids, states=_AT_REST), to=State.REPLAYING, owner=_OWNER, now=now, until=now, limit=len(ids)
            )
            mine = [letter.id for letter in claimed]
            await self.app.store.letters.move(mine, expect=[State.REPLAYING], to=State.REPLAYING, owner=_OWNER, now=now)

    def _limit(self) -> None:
        """Set the limits of the queue, so that companies take turns also where no worker has ever run."""
        transport = self.app.transport()
        if not self._is_governed and isinstance(transport, KeepsLimits):
            transport.limit(self.email.queue, self.app.handlers[self.email.queue].limits)
        self._is_governed = True

    def _message(self, job: Job) -> Message:
        body = job if isinstance(job, bytes) else msgspec.json.encode(job)
        read = read_job(body)
        return self.app.message(self.email.queue, body, id=read.outbox_id, tenant=read.company_id, ttl=self.email.ttl)

    async def _send(self, job: EmailJob, message: Message) -> None:
        """Make one attempt, without recipients who have it already; if a part was accepted now, it is noted first."""
        accepted = Accepted(self.app.store, self.app.clock)
        try:
            before = await accepted.of(message)
        except Unavailable as error:  # nobody has seen this attempt
            raise NotNow(f"who has it already is not known: {error}", pause=_PAUSE) from error
        left = tuple(recipient for recipient in job.recipients if recipient not in before)
        try:
            if left:
                await self.sender.send(Mail(job, left, self.app.clock.now()))
        except SendError as error:
            if error.accepted:
                await accepted.add(message, before | frozenset(error.accepted))
            raise
        if before:
            with suppress(Unavailable):  # it is sent: what is left behind is swept away
                await accepted.forget(message)
        self.on_sent(message.attempt)

    async def sweep(self) -> None:
        """Runs beside a worker: deletes notes of e-mail whose letters are long gone."""
        while True:
            with suppress(Unavailable):
                await Accepted(self.app.store, self.app.clock).sweep()
            await self.app.clock.sleep(_SWEEP_EVERY.total_seconds())

    async def aclose(self) -> None:
        await self.app.aclose()
        if self._sender is not None and not isinstance(self._sender, str):
            await self._sender.aclose()

    async def __aenter__(self) -> EmailGateway:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _again(message: Message, letter: Letter | None) -> Message:
    """The job as it is queued: where it has a letter, its outcome finds it."""
    if letter is None:
        return message
    known = sent_back(letter, now=message.enqueued_at)
    return replace(message, headers=known.headers)


def policy_of(email: EmailSettings) -> Policy:
    """Attempts, backoff and cool-down as they are set."""
    backoff = exponential(email.base_delay, cap=email.max_delay, jitter=email.jitter / 100)
    again = None if email.cooldown is None else Again(email.cooldown_times, constant(email.cooldown))
    return Policy(email.attempts, backoff, timeout=email.timeout, ttl=email.dlq_ttl, again=again)


def rate_of(email: EmailSettings) -> Rate | None:
    """The rate as it holds at the server that takes the e-mail, however slow it or a worker is."""
    if email.rate is None:
        return None
    return Rate(email.rate, email.rate_per, adaptive=email.adaptive, to_the_end=True)


def fair_of(email: EmailSettings) -> Fair | None:
    """Fair turns by company; a company that is named has the weight of its tier, or its own."""
    if not email.fair:
        return None
    tiers = {name: _weight("email.tiers", text, {}) for name, text in _pairs("email.tiers", email.tiers)}
    weights = {name: _weight("email.weights", text, tiers) for name, text in _pairs("email.weights", email.weights)}
    try:
        return Fair(
            in_a_row=email.batch,
            weights=weights,
            base_priority=email.base_priority,
            increment=email.priority_increment,
            most_urgent=email.max_priority,
        )
    except ConfigError as error:
        raise ConfigError(f"email.base_priority, email.max_priority: {error}") from None


def _pairs(key: str, items: Iterable[str]) -> list[tuple[str, str]]:
    pairs = [item.rpartition("=")[::2] for item in items]
    for name, text in pairs:
        if not name or not text:
            raise ConfigError(f"{key}: {'='.join((name, text))!r} is no pair: write it like acme=3")
    return pairs


def _weight(key: str, text: str, tiers: Mapping[str, float]) -> float:
    try:
        return tiers[text] if text in tiers else float(text)
    except ValueError:
        raise ConfigError(f"{key}: {text!r} is neither a number nor a tier{nearest(text, tiers)}") from None


def _retention(email: EmailSettings) -> Retention:
    """The retention of the DLQ; what is trimmed, for its age or its number, is exported before."""
    return Retention(max_letters=email.dlq_max_size, export=email.dlq_export)
