"""Messages of tasks, as letters keep them."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from redrive.flow.lineage import sent_back
from redrive.integrations.celery.wire import kept
from redrive.integrations.letters import failure_of, letter_of
from redrive.model import Message

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def kombu_message(queue: str, id: str, headers: dict[str, Any] | None = None, **changes: Any) -> Any:
    """What a worker has in hand."""
    told = {"task": "tasks.add", "id": id, "retries": 0, "root_id": id, **(headers or {})}
    return SimpleNamespace(
        **{
            "headers": told,
            "body": b"[[2, 2], {}, {}]",
            "properties": {"correlation_id": id, "delivery_mode": 2, "priority": 0, "delivery_tag": 7},
            "delivery_info": {"exchange": "", "routing_key": queue},
            "content_type": "application/json",
            "content_encoding": "utf-8",
            "errors": [],
            **changes,
        }
    )


def sent_back_task(queue: str, id: str, headers: dict[str, Any] | None = None, **changes: Any) -> Message:
    """The message of a letter as a replay sends it."""
    dead = kept(kombu_message(queue, id, headers, **changes), task="tasks.add", id=id, now=NOW)
    letter = letter_of(dead, [failure_of(ValueError("no"), at=NOW)], transport="celery", now=NOW)
    return sent_back(letter, now=NOW, replay="r1")
