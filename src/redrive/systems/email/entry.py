"""The entry of the DLQ, exactly as the contract has it: eleven fields, JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from redrive.errors import UsageError
from redrive.systems.email.constants import EMAIL_JOB_RETRY_CONFIG
from redrive.systems.email.rules import is_retryable_error

_UNTRIED = ("500", "552", "554")  # the codes of what was no job, too large or too old before any attempt
_ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:?\d\d)")


class DLQEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job that could not be sent, and why. Times are ISO 8601, `ttl` is in milliseconds."""

    jobId: str
    outboxId: str
    companyId: str
    originalData: dict[str, Any]
    failedAttempts: int
    lastFailureReason: str
    lastFailureCode: str | UnsetType = UNSET
    lastFailureTimestamp: str
    enqueuedAt: str
    movedToDLQAt: str
    ttl: int


def validate_dlq_entry(
    entry: Mapping[str, Any] | DLQEntry, *, max_attempts: int = EMAIL_JOB_RETRY_CONFIG["MAX_ATTEMPTS"]
) -> DLQEntry:
    """The entry, or a UsageError that names the field: the reason is never blank, and only a permanent error comes
    here before the last attempt."""
    try:
        read = entry if isinstance(entry, DLQEntry) else msgspec.convert(dict(entry), DLQEntry)
    except (msgspec.ValidationError, TypeError, ValueError) as error:
        raise UsageError(f"this is no entry of the DLQ: {error}") from error
    wrong = _names(read) or _attempts(read, max_attempts) or _times(read)
    if wrong:
        raise UsageError(f"this is no entry of the DLQ: {wrong}")
    return read


def iso(at: datetime) -> str:
    """A time as `2025-10-19T10:30:00.000Z`."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _names(entry: DLQEntry) -> str | None:
    for name in ("jobId", "outboxId", "companyId", "lastFailureReason"):
        if not getattr(entry, name).strip():
            return f"{name} is blank"
    return "jobId is the outboxId, and here they differ" if entry.jobId != entry.outboxId else None


def _attempts(entry: DLQEntry, most: int) -> str | None:
    code = None if entry.lastFailureCode is UNSET else entry.lastFailureCode
    if entry.failedAttempts < (0 if code in _UNTRIED else 1):
        return f"failedAttempts is {entry.failedAttempts}: it is 1 or more, or 0 where nobody tried it"
    if entry.failedAttempts < most and is_retryable_error(code):
        return f"failedAttempts is {entry.failedAttempts}: before {most} only a permanent error comes here"
    return None


def _times(entry: DLQEntry) -> str | None:
    for name in ("lastFailureTimestamp", "enqueuedAt", "movedToDLQAt"):
        if not _is_time(getattr(entry, name)):
            return f"{name} is {getattr(entry, name)!r}: it is an ISO 8601 time such as 2025-10-19T10:30:00.000Z"
    return None if entry.ttl > 0 else f"ttl is {entry.ttl}: it is a number of milliseconds, 1 or more"


def _is_time(text: str) -> bool:
    try:
        return bool(_ISO.fullmatch(text)) and datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False
