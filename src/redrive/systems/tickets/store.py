"""Where dead tickets are kept: MongoDB, with the contract's documents and indexes."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from redrive.systems.tickets.settings import TicketSettings

if TYPE_CHECKING:
    from redrive.stores.mongodb import MongoStore

COLLECTION, DATABASE = "execution_tickets_dlq", "neural_hive"


def store_url(tickets: TicketSettings) -> str:
    """The database of the setting, as a URL that every command takes as `--store`."""
    return f"tickets+{tickets.mongodb}"


def open_tickets(url: str) -> MongoStore:
    """The store of `tickets+mongodb://…`; without a database in the URL it is `neural_hive`."""
    from pymongo import IndexModel

    from redrive.stores.mongodb import open_store
    from redrive.systems.tickets.shape import TicketShape

    parts = urlsplit(url.removeprefix("tickets+"))
    options = [*parse_qsl(parts.query, keep_blank_values=True), ("letters", COLLECTION)]
    path = parts.path if parts.path.strip("/") else f"/{DATABASE}"
    indexes = [
        IndexModel([("ticket_id", 1)], unique=True),
        IndexModel([("task_type", 1)]),
        IndexModel([("dlq_metadata.dlq_published_at", 1)]),
        IndexModel([("task_type", 1), ("dlq_metadata.error_type", 1)]),
    ]
    url = urlunsplit(parts._replace(path=path, query=urlencode(options)))
    return open_store(url, shape=TicketShape(), indexes=indexes)
