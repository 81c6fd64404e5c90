"""Brings dead tickets from the DLQ topic into MongoDB, and raises alerts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import structlog
from msgspec.structs import replace

from redrive.alerts import Alert, Alerts, Severity
from redrive.app import Redrive
from redrive.clock import Clock, SystemClock
from redrive.collect.collector import Collector
from redrive.collect.foreign import text_of
from redrive.config.settings import Settings
from redrive.forensics.query import Query
from redrive.model import OPEN, Letter, LetterId
from redrive.stores.base import Store
from redrive.stores.paging import every_letter
from redrive.systems.tickets.reader import TicketReader
from redrive.systems.tickets.settings import TicketSettings
from redrive.systems.tickets.store import store_url
from redrive.systems.tickets.ticket import TaskTypes, as_ticket
from redrive.systems.tickets.worker import kafka_options
from redrive.transports.base import Delivery
from redrive.transports.kafka.dlq import STUB
from redrive.transports.kafka.transport import KafkaTransport

log = structlog.get_logger("redrive.tickets")
_ALERT = "TicketInDLQ"
_PAGE = 200


class DlqConsumer:
    """Reads the DLQ topic under `{group}-dlq`. An offset becomes committable when its ticket is in MongoDB."""

    def __init__(self, settings: Settings, *, store: str | Store | None = None, clock: Clock | None = None) -> None:
        tickets = settings.of(TicketSettings)
        self.settings = settings
        self.clock = clock or SystemClock()
        self.group = f"{tickets.group}-dlq"
        self.transport = KafkaTransport(kafka_options(tickets, self.group), clock=self.clock, lease=settings.lease)
        store = store_url(tickets) if store is None else store
        self.app = Redrive(settings=settings, transport=self.transport, store=store, clock=self.clock)
        self._read = TicketReader(tickets.dlq_topic, source=tickets.topic)
        self._types = TaskTypes()
        self._stubs: list[LetterId] = []  # seen on the topic, and not told of yet
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
        """Run until it is stopped; returns how many dead tickets were stored."""
        log.info("dlq_consumer_started", topic=self.settings.of(TicketSettings).dlq_topic, group=self.group)
        async with Alerts.of(self.app) as alerts:
            self._alerts = alerts
            alerts.ends_when(_ALERT, self._is_over)
            return await self._collector.run(follow=follow)

    def stop(self) -> None:
        """Stop after the batch that is under way."""
        self._collector.stop()

    async def aclose(self) -> None:
        await self.app.aclose()

    def _letter(self, delivery: Delivery, now: datetime) -> Letter | None:
        """The letter of a record: every record of this topic is a ticket, and a ticket is one document."""
        letter = self._read(delivery, now)
        if letter is None:
            self._stubs.append(text_of(delivery.message.header(STUB)))
            return None
        ticket = as_ticket(letter, self.settings.of(TicketSettings).topic)
        return replace(ticket, updated_at=now, foreign=False)  # whoever wrote it: it goes back to our workers

    async def _is_over(self, alert: Alert) -> bool:
        """Whether none of its tickets waits any more: those of its task type that died of its error."""
        about = Query(sources=(self.settings.of(TicketSettings).topic,), states=OPEN)
        async for letter in every_letter(self.app.store.letters, about, size=_PAGE):
            if _labels(letter, self._types.label(letter.message.body)) == alert.labels:
                return False
        return True

    async def _stored(self, letters: Sequence[Letter]) -> None:
        """Report one alert for each kind of ticket and error, however many died; those too large for the topic too."""
        if self._alerts is None:
            return
        stubs, self._stubs = self._stubs, []
        found = [await self.app.store.letters.get(id) for id in stubs]
        if None in found:
            log.warning(
                "dlq_stub_without_letter", topic=self.settings.of(TicketSettings).dlq_topic, tickets=found.count(None)
            )
        for letter in (*letters, *(letter for letter in found if letter is not None)):
            self._alerts.report(_alert(letter, self._types.label(letter.message.body), self.clock.now()))


def _labels(letter: Letter, kind: str) -> dict[str, str]:
    return {"task_type": kind, "error_type": letter.last.type.rpartition(".")[2]}


def _alert(letter: Letter, kind: str, now: datetime) -> Alert:
    labels = _labels(letter, kind)
    error = labels["error_type"]
    return Alert(
        key=f"ticket-dlq/{kind}/{error}",
        name=_ALERT,
        severity=Severity.CRITICAL,
        summary=f"tickets of type {kind} are dead: {error}",
        starts_at=now,
        details={
            "ticket_id": letter.message.id,
            "error": letter.last.message[:500],
            "retries": str(letter.last.attempt),
        },
        labels=labels,
        source=letter.message.source,  # no group: tickets of one error may have several
    )
