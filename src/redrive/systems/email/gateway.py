"""The e-mail system, wired from the parts: a Redrive app whose one handler sends e-mail."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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
from redrive.errors import ConfigError, Unavailable, nearest
from redrive.flow.backoff import constant, exponential
from redrive.flow.classify import Classifier
from redrive.limits import Fair, Rate
from redrive.model import Message, MessageId
from redrive.policy import Again, Policy
from redrive.stores.base import Store
from redrive.systems.email.accepted import Accepted
from redrive.systems.email.dlq import dlq_url
from redrive.systems.email.job import EmailJob, read_job
from redrive.systems.email.rules import judge
from redrive.systems.email.senders import Mail, Sender, SendError, open_sender
from redrive.systems.email.settings import EmailSettings
from redrive.transports.base import KeepsLimits, Transport

_SWEEP_EVERY = timedelta(hours=1)
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
            transport=transport or self.email.redis,
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
        await self.app.send_messages(messages)
        return [message.id for message in messages]

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
        before = await accepted.of(message)
        left = tuple(recipient for recipient in job.recipients if recipient not in before)
        try:
            if left:
                await self.sender.send(Mail(job, left, self.app.clock.now()))
        except SendError as error:
            if error.accepted:
                await accepted.add(message, before | frozenset(error.accepted))
            raise
        if before:
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


def policy_of(email: EmailSettings) -> Policy:
    """Attempts, backoff and cool-down as they are set."""
    backoff = exponential(email.base_delay, cap=email.max_delay, jitter=email.jitter / 100)
    again = None if email.cooldown is None else Again(email.cooldown_times, constant(email.cooldown))
    return Policy(email.attempts, backoff, timeout=email.timeout, ttl=email.dlq_ttl, again=again)


def rate_of(email: EmailSettings) -> Rate | None:
    return None if email.rate is None else Rate(email.rate, email.rate_per, adaptive=email.adaptive)


def fair_of(email: EmailSettings) -> Fair | None:
    """Fair turns by company; a company that is named has the weight of its tier, or its own."""
    if not email.fair:
        return None
    tiers = {name: _weight("email.tiers", text, {}) for name, text in _pairs("email.tiers", email.tiers)}
    weights = {name: _weight("email.weights", text, tiers) for name, text in _pairs("email.weights", email.weights)}
    return Fair(in_a_row=email.batch, weights=weights)


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
