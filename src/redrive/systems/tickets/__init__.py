"""tickets: execution tickets on Kafka, retried in order, counted in Redis, kept in MongoDB when they are dead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redrive.systems.base import exports

if TYPE_CHECKING:
    from redrive.systems.tickets.config import with_values
    from redrive.systems.tickets.forensics import DlqConsumer
    from redrive.systems.tickets.relay import Relay
    from redrive.systems.tickets.shape import TicketShape
    from redrive.systems.tickets.store import open_tickets, store_url
    from redrive.systems.tickets.worker import TicketWorker

__all__ = ["DlqConsumer", "Relay", "TicketShape", "TicketWorker", "open_tickets", "store_url", "with_values"]

__getattr__ = exports(
    __name__,
    {
        "config": ("with_values",),
        "forensics": ("DlqConsumer",),
        "relay": ("Relay",),
        "shape": ("TicketShape",),
        "store": (
            "open_tickets",
            "store_url",
        ),
        "worker": ("TicketWorker",),
    },
)
