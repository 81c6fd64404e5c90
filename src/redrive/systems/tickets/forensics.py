"""Dead tickets from the DLQ topic into MongoDB, and to whom it may concern."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import structlog
from msgspec.structs import replace

from redrive.alerts import Alert, Alerts, Severity
from redrive.app import Redrive
from redrive.clock import Clock, SystemClock
from redrive.collect.collector import Collector
from redrive.collect.kafka import KafkaReader
from redrive.config import Settings
from redrive.model import Letter
from redrive.stores.base import Store
from redrive.systems.tickets.store import store_url
from redrive.systems.tickets.ticket import as_ticket, fields_of, task_type
from redrive.systems.tickets.worker import kafka_options
from redrive.transports.base import Delivery
from redrive.transports.kafka.transport import KafkaTransport

log = structlog.get_logger("redrive.tickets")


class DlqConsumer:
    """Reads the DLQ topic under `{group}-dlq`. An offset becomes committable when its ticket is in MongoDB."""

    def __init__(self, settings: Settings, *, store: str | Store | None = None, clock: Clock | None = None) -> None:
        tickets = settings.tickets
        self.settings = settings
        self.clock = clock or SystemClock()
        self.group = f"{tickets.group}-dlq"
        self.transport = KafkaTransport(kafka_options(tickets, self.group), clock=self.clock, lease=settings.lease)
        store = store_url(tickets) if store is None else store
        self.app = Redrive(settings=settings, transport=self.transport, store=store, clock=self.clock)
        self._read = KafkaReader(tickets.dlq_topic, source=tickets.topic)
        self._alerts: Alerts | None = None
        self._collector = Collector(
            self.transport,
            tickets.dlq_topic,
            self._letter,
            self.app.store,
            events=self.app.events,
            clock=self.clock,
            lease=settings.lease,
            stored=self._stored,
        )

    async def run(self, *, follow: bool = True) -> int:
        """Until it is stopped; how many dead tickets were stored."""
        log.info("dlq_consumer_started", topic=self.settings.tickets.dlq_topic, group=self.group)
        async with Alerts.of(self.app) as alerts:
            self._alerts = alerts
            return await self._collector.run(follow=follow)

    def stop(self) -> None:
        """After the batch that is under way."""
        self._collector.stop()

    async def aclose(self) -> None:
        await self.app.aclose()

    def _letter(self, delivery: Delivery, now: datetime) -> Letter | None:
        """Every record of this topic is a ticket, and a ticket is one document. It is processed now."""
        letter = self._read(delivery, now)
        return letter and replace(as_ticket(letter, self.settings.tickets.topic), updated_at=now)

    async def _stored(self, letters: Sequence[Letter]) -> None:
        """Each kind of ticket and error is one alert, however many of them die."""
        for letter in letters:
            if self._alerts is not None:
                self._alerts.report(_alert(letter, self.clock.now()))


def _alert(letter: Letter, now: datetime) -> Alert:
    kind, error = task_type(fields_of(letter.message.body)), letter.last.type.rpartition(".")[2]
    return Alert(
        key=f"ticket-dlq/{kind}/{error}",
        name="TicketInDLQ",
        severity=Severity.CRITICAL,
        summary=f"tickets of type {kind} are dead: {error}",
        starts_at=now,
        details={
            "ticket_id": letter.message.id,
            "error": letter.last.message[:500],
            "retries": str(letter.last.attempt),
        },
        labels={"task_type": kind, "error_type": error},
        group=letter.group,
        source=letter.message.source,
    )
