"""The ticket worker, wired from the parts: Kafka in order for each key, retries counted in Redis, a DLQ topic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import structlog
from msgspec.structs import replace

from redrive.app import Redrive
from redrive.clock import Clock, SystemClock
from redrive.config.load import load
from redrive.config.settings import Settings
from redrive.errors import ConfigError, TransportUnavailable, Unavailable
from redrive.flow.around import Call
from redrive.flow.backoff import Backoff, exponential
from redrive.flow.decode import Decoder, signature_of
from redrive.model import Category, Letter, Message
from redrive.policy import Policy
from redrive.stores.base import Store
from redrive.systems.tickets.config import with_values
from redrive.systems.tickets.settings import TicketSettings
from redrive.systems.tickets.store import store_url
from redrive.systems.tickets.ticket import (
    COUNTER,
    NoTicket,
    counted_as,
    dead_ticket,
    fields_of,
    named,
    task_type,
    ticket_id,
)
from redrive.transports.base import ACCEPTED, Delivery, SendResult, SendStatus
from redrive.transports.kafka.counters import open_counters
from redrive.transports.kafka.dlq import DeadLetterTopic
from redrive.transports.kafka.options import Options, options_of
from redrive.transports.kafka.transport import KafkaTransport
from redrive.untrusted import DEEPEST, is_too_deep

log = structlog.get_logger("redrive.tickets")


class TicketWorker:
    """Handles tickets: those of one key in order, others meanwhile. One that fails `max_retries` times is published to
    the DLQ topic, its counter is cleared, and its offset is committed: in that order.

    handle   your function: sync or async, with the ticket (by its annotation) and, if it wants it, the Message
    store    where what is too large for the DLQ topic is kept, and replays are resolved; by default the MongoDB of
             the dead tickets
    """

    def __init__(
        self,
        handle: Callable[..., Any],
        settings: Settings | None = None,
        *,
        store: str | Store | None = None,
        backoff: Backoff | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.settings = with_values(load()) if settings is None else settings
        tickets, clock = self.settings.of(TicketSettings), clock or SystemClock()
        self.transport = TicketTransport(self.settings, clock)
        store = store_url(tickets) if store is None else store
        self.app = Redrive(settings=self.settings, transport=self.transport, store=store, clock=clock)
        policy = policy_of(tickets, backoff or exponential("1s", cap="30s", jitter=0.25))
        decode = _checked(signature_of(handle).decode)
        self.done: list[Callable[[Message], None]] = []  # told of each ticket that its handler has done
        handler = self.app.handler(
            tickets.topic, policy=policy, concurrency=tickets.concurrency, decode=decode, around=self._tell_done
        )
        handler(handle)

    async def _tell_done(self, message: Message, call: Call) -> Any:
        result = await call()
        for told in self.done:
            told(message)
        return result


class TicketTransport(KafkaTransport):
    """The topic of tickets: retries are counted under the ticket's id, dead tickets go to the DLQ topic."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        tickets = settings.of(TicketSettings)
        super().__init__(
            kafka_options(tickets),
            clock=clock,
            lease=settings.lease,
            counters=open_counters(tickets.redis, pattern=COUNTER),
            name=counted_as,
        )
        self.published: list[Callable[[Letter], None]] = []  # told of each dead ticket that the DLQ has taken
        self.refused: list[Callable[[Unavailable], None]] = []  # and when it did not take some

    async def receive(self, source: str, limit: int) -> Sequence[Delivery]:
        deliveries = await super().receive(source, limit)
        return [replace(delivery, message=named(delivery.message)) for delivery in deliveries]

    def dead_letter_place(self, source: str) -> TicketTopic | None:
        dlq = self.options.dlq
        return None if dlq is None else TicketTopic(self, dlq)

    async def count(self, letters: Sequence[Letter]) -> None:
        """Count the last failure as the others, though its counter is cleared at once when the DLQ has it."""
        counts = {counted_as(letter.message): letter.last.attempt for letter in letters if letter.last.attempt > 1}
        if counts:
            await self.counters.put(counts)


class TicketTopic(DeadLetterTopic):
    """The DLQ topic of the tickets, instead of the store: counts last failures, publishes and logs dead tickets."""

    def __init__(self, transport: TicketTransport, topic: str) -> None:
        super().__init__(transport.writer, topic, form=dead_ticket, replaces_store=True)
        self._transport = transport

    async def bury(self, letters: Sequence[Letter]) -> Sequence[SendResult]:
        await self._transport.count(letters)
        answers = await super().bury(letters)
        late = [answer for answer in answers if answer.status in (SendStatus.BUSY, SendStatus.UNKNOWN)]
        if late:
            self._say_refused(TransportUnavailable(self.name, late[0].why), len(late))
        self._say_published([pair[0] for pair in zip(letters, answers, strict=True) if pair[1] == ACCEPTED])
        return answers

    async def refer(self, letters: Sequence[Letter]) -> None:
        """They were too large for the topic, and are in the store."""
        try:
            await super().refer(letters)
        except Unavailable as error:
            self._say_refused(error, len(letters))
            raise
        self._say_published(letters)

    def _say_refused(self, error: Unavailable, number: int) -> None:
        log.error("dlq_publish_failed", topic=self.topic, tickets=number, error=str(error))
        for told in self._transport.refused:
            told(error)

    def _say_published(self, letters: Sequence[Letter]) -> None:
        for letter in letters:
            log.warning(
                "dlq_publish",
                topic=self.topic,
                ticket_id=letter.message.id,
                task_type=task_type(fields_of(letter.message.body)),
                retry_count=letter.last.attempt,
                error_type=letter.last.type,
            )
            for told in self._transport.published:
                told(letter)


def kafka_options(tickets: TicketSettings, group: str | None = None) -> Options:
    """The cluster of the setting, with our group; with the DLQ topic where it is in use."""
    options = replace(options_of(tickets.kafka), group=group or tickets.group)
    if group is not None:
        return replace(options, driver={**options.driver, "consumer.enable.partition.eof": "true"})
    if not tickets.dlq_enabled:
        return options
    if tickets.dlq_topic == tickets.topic:
        raise ConfigError("tickets.dlq_topic is the topic of the tickets itself: dead ones would come back at once")
    return replace(options, dlq=tickets.dlq_topic, dlq_only=True)


def policy_of(tickets: TicketSettings, backoff: Backoff) -> Policy:
    """So many attempts, whatever the error is: the contract knows no error that is final at once."""
    same = Policy(attempts=tickets.max_retries, backoff=backoff)
    return Policy(attempts=tickets.max_retries, backoff=backoff, categories=dict.fromkeys(Category, same))


def _checked(decode: Decoder) -> Decoder:
    """The decoder, wrapped: a value that is JSON and no ticket is buried at once, since no retry would mend it."""

    def checked(body: bytes) -> Any:
        value = decode(body)
        if ticket_id(body) is None:
            said = "is too deep to be read" if is_too_deep(body) else "has no `ticket_id`"
            raise NoTicket(f"the value {said}: a ticket is a JSON object with one, of at most {DEEPEST} levels")
        return value

    return checked
