"""What a worker says of its settings: a document in the store, from which `redrive doctor` tells what is unsafe."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

KIND = "integration"
_NAMED = 5
_DEFAULT_TIMEOUT = 3600  # seconds, of kombu's transport for Redis


class Named(Struct, frozen=True):
    """Some tasks: how many, and the names of the first."""

    count: int
    first: list[str]

    def __str__(self) -> str:
        more = self.count - len(self.first)
        return ", ".join(self.first) + (f" and {more} more" if more else "")


class Note(Struct, frozen=True, kw_only=True):
    """How an app is set up, without passwords."""

    app: str
    worker: str
    transport: str  # the name of the one that its letters go back through
    broker: str
    visibility_timeout: float  # seconds, of Redis
    tasks: int
    acked_early: Named
    requeued_when_lost: Named
    without_limit: Named
    longest_limit: float
    at: str
    integration: str = "celery"


def note_of(consumer: Any, transport: str, now: datetime) -> Note:
    """How the app of that consumer is set up."""
    app = consumer.app
    tasks = [task for name, task in sorted(app.tasks.items()) if not name.startswith("celery.")]
    late = [task for task in tasks if task.acks_late]
    return Note(
        app=str(app.main or "app"),
        worker=str(consumer.hostname),
        transport=transport,
        broker=broker_of(app),
        visibility_timeout=(app.conf.broker_transport_options or {}).get("visibility_timeout", _DEFAULT_TIMEOUT),
        tasks=len(tasks),
        acked_early=_named(task for task in tasks if not task.acks_late),
        requeued_when_lost=_named(task for task in late if task.reject_on_worker_lost),
        without_limit=_named(task for task in late if not task.time_limit),
        longest_limit=max((task.time_limit or 0 for task in late), default=0),
        at=now.isoformat(timespec="seconds"),
    )


def read_note(body: dict[str, Any]) -> Note | None:
    """The note of a worker of Celery; None if it is of others, or of a version that says something else."""
    try:
        note = msgspec.convert(body, Note)
    except msgspec.ValidationError:
        return None
    return note if note.integration == "celery" else None


def broker_of(app: Any) -> str:
    """The address of the app's broker, without user and password."""
    parts = urlsplit(app.connection_for_read().as_uri())
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _named(tasks: Iterable[Any]) -> Named:
    names = [task.name for task in tasks]
    return Named(len(names), names[:_NAMED])
