"""What a worker says of its settings: a document in the store, from which `redrive doctor` tells what is unsafe."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

KIND = "integration"
_NAMED = 5


def note_of(consumer: Any, transport: str, now: datetime) -> dict[str, Any]:
    """How the app of that consumer is set up: no passwords, and of thousands of tasks a few names."""
    app = consumer.app
    tasks = [task for name, task in sorted(app.tasks.items()) if not name.startswith("celery.")]
    return {
        "integration": "celery",
        "app": app.main or "app",
        "worker": consumer.hostname,
        "transport": transport,
        "broker": broker_of(app),
        "visibility_timeout": (app.conf.broker_transport_options or {}).get("visibility_timeout", 3600),
        "tasks": len(tasks),
        "acked_early": _named(task for task in tasks if not task.acks_late),
        "requeued_when_lost": _named(task for task in tasks if task.acks_late and task.reject_on_worker_lost),
        "without_limit": _named(task for task in tasks if task.acks_late and not task.time_limit),
        "longest_limit": max((task.time_limit or 0 for task in tasks if task.acks_late), default=0),
        "at": now.isoformat(),
    }


def broker_of(app: Any) -> str:
    """The address of the app's broker, without user and password."""
    url = app.connection_for_read().as_uri()
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _named(tasks: Iterable[Any]) -> dict[str, Any]:
    names = [task.name for task in tasks]
    return {"count": len(names), "first": names[:_NAMED]}
