"""A dead message as it travels to a developer's machine: as it is for who may see it, masked for everybody else."""

from __future__ import annotations

from base64 import b64decode, b64encode
from datetime import datetime

from msgspec import Struct

from redrive.forensics.redact import Redactor
from redrive.forensics.views import DecodedBody, masked
from redrive.model import Letter, Message


class CarriedMessage(Struct, frozen=True, kw_only=True):
    """The message of a letter and what it died of. Bytes are Base64."""

    letter: str
    group: str
    error_type: str
    error_message: str
    redacted: bool  # secrets are masked: a handler may fail of that, or succeed in spite of it
    id: str
    source: str
    body: str
    headers: list[tuple[str, str]]
    key: str | None
    tenant: str | None
    correlation_id: str | None
    attempt: int
    priority: int
    enqueued_at: datetime
    origin: str
    version: int = 0  # how often it was edited
    decoded: DecodedBody | None = None  # its body, unmasked, where a system knows the schema


def carried(letter: Letter, redactor: Redactor, *, raw: bool) -> CarriedMessage:
    """The message of a letter; `raw`: for somebody who may see its secrets."""
    message = letter.message if raw else _redacted(letter.message, redactor)
    return CarriedMessage(
        letter=letter.id,
        group=letter.group,
        error_type=letter.last.type,
        error_message=masked(redactor.text, letter.last.message),
        redacted=not raw,
        id=message.id,
        source=message.source,
        body=_text(message.body),
        headers=[(name, _text(value)) for name, value in message.headers],
        key=None if message.key is None else _text(message.key),
        tenant=message.tenant,
        correlation_id=message.correlation_id,
        attempt=message.attempt,
        priority=message.priority,
        enqueued_at=message.enqueued_at,
        origin=message.origin,
        version=letter.version,
    )


def message_of(found: CarriedMessage) -> Message:
    """The message itself."""
    return Message(
        id=found.id,
        source=found.source,
        body=b64decode(found.body),
        enqueued_at=found.enqueued_at,
        headers=tuple((name, b64decode(value)) for name, value in found.headers),
        key=None if found.key is None else b64decode(found.key),
        tenant=found.tenant,
        correlation_id=found.correlation_id,
        attempt=found.attempt,
        priority=found.priority,
        origin=found.origin,
    )


def _redacted(message: Message, redactor: Redactor) -> Message:
    shown = masked(lambda body: redactor.body(body, limit=4 * len(body) + 1024), message.body)
    return Message(
        id=masked(redactor.text, message.id),
        source=message.source,
        body=shown.encode("utf-8", "backslashreplace"),
        enqueued_at=message.enqueued_at,
        headers=tuple(
            (
                masked(redactor.text, name),
                masked(lambda pair: redactor.header(*pair), (name, value)).encode("utf-8", "backslashreplace"),
            )
            for name, value in message.headers
        ),
        key=None if message.key is None else masked(redactor.start, message.key).encode("utf-8", "backslashreplace"),
        tenant=None if message.tenant is None else masked(redactor.text, message.tenant),
        correlation_id=None if message.correlation_id is None else masked(redactor.text, message.correlation_id),
        attempt=message.attempt,
        priority=message.priority,
        origin=masked(redactor.text, message.origin),
    )


def _text(data: bytes) -> str:
    return b64encode(data).decode()
