"""A ticket: JSON with a `ticket_id`. How it is counted, and how it looks when it is dead."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from redrive.clock import microseconds
from redrive.model import Letter, Message, Reason, letter_id
from redrive.systems.tickets.metadata import with_metadata
from redrive.transports.kafka.dlq import record_of
from redrive.transports.kafka.writer import Parcel
from redrive.untrusted import UNREADABLE, is_too_deep, read_json

COUNTER = "ticket:retry_count:{}"
REASONS = {
    Reason.ATTEMPTS: "max_retries_exceeded",
    Reason.PERMANENT: "max_retries_exceeded",  # where one is all that is allowed
    Reason.UNDECODABLE: "invalid_ticket",
    Reason.CRASHED: "worker_crashed",
    Reason.TOO_LARGE: "too_large",
    Reason.EXPIRED: "expired",
    Reason.PARKED: "parked",
}
"""The label `reason` of worker_agent_dlq_messages_total."""
UNKNOWN_TYPE, OTHER_TYPES = "UNKNOWN", "(others)"
_MOST_TYPES, _LONGEST_TYPE = 100, 100


class _Named(msgspec.Struct, gc=False):
    ticket_id: str | int | None = None


_decode_id = msgspec.json.Decoder(_Named).decode


class NoTicket(ValueError):
    """The value is JSON, and no ticket."""


def fields_of(body: bytes) -> dict[str, Any] | None:
    """The ticket's own fields; None where the bytes are no JSON object."""
    try:
        found = read_json(body)
    except UNREADABLE:
        return None
    return found if isinstance(found, dict) else None


def ticket_id(body: bytes) -> str | None:
    """Its id as a text; None where the bytes are no ticket. Nothing else of them is decoded."""
    found = id_in(body)
    return None if found is None else str(found)


def id_in(body: bytes) -> str | int | None:
    """Its id as it stands there; None where the bytes are no ticket."""
    try:
        found = None if is_too_deep(body) else _decode_id(body).ticket_id
    except UNREADABLE:
        return None
    return None if found == "" else found


def task_type(fields: dict[str, Any] | None) -> str:
    found = (fields or {}).get("task_type")
    return found if isinstance(found, str) and found else UNKNOWN_TYPE


class TaskTypes:
    """Types of tasks as labels: the first hundred have their names, and all others one. They come from outside, and
    every label costs memory here and in Prometheus for good."""

    def __init__(self, most: int = _MOST_TYPES) -> None:
        self._most = most
        self._known = {UNKNOWN_TYPE}

    def label(self, body: bytes) -> str:
        """The label of the ticket with that body."""
        found = task_type(fields_of(body))
        if found in self._known:
            return found
        if len(self._known) > self._most or len(found) > _LONGEST_TYPE:
            return OTHER_TYPES
        self._known.add(found)
        return found


def named(message: Message) -> Message:
    """The message under its ticket's id, so that a ticket is one letter; what is no ticket keeps its own."""
    id = ticket_id(message.body)
    return message if id is None or id == message.id else replace(message, id=id)


def counted_as(message: Message) -> str:
    """The name that the attempts of a message are counted under."""
    return named(message).id


def as_ticket(letter: Letter, topic: str) -> Letter:
    """The letter of that ticket of that topic, whoever has written it."""
    message = named(replace(letter.message, source=topic))
    return replace(letter, id=letter_id(topic, message.id), message=message)


def metadata_of(letter: Letter) -> dict[str, Any]:
    """Why it is dead, in the contract's fields."""
    last = letter.last
    return {
        "original_error": last.message,
        "error_type": last.type.rpartition(".")[2],
        "retry_count": last.attempt,
        "last_failure_timestamp": milliseconds(last.at),
        "dlq_published_at": milliseconds(max(letter.created_at, last.at)),  # it may have died again since
    }


def dead_ticket(letter: Letter, topic: str) -> Parcel:
    """A dead ticket on its topic: its own bytes with why it died among its fields. What is no JSON object is kept
    whole. The headers tell the rest of the story in both cases."""
    plain = record_of(letter, topic)
    if fields_of(letter.message.body) is None:
        return plain
    return replace(plain, value=with_metadata(letter.message.body, metadata_of(letter)))


def milliseconds(at: datetime) -> int:
    return microseconds(at) // 1000
