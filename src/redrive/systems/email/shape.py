"""A letter as the entry of `email:send:dlq` that the contract describes, for whoever reads Redis and knows no Redrive.

The entry is for reading: the store keeps the letter itself beside it, to the byte (stores/redis/entries.py).
"""

from __future__ import annotations

from base64 import b64encode
from datetime import datetime, timedelta

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from redrive.model import Letter, Message, Reason, Stage
from redrive.systems.email.entry import iso
from redrive.systems.email.rules import canonical_code, is_retryable_error
from redrive.untrusted import UNREADABLE

_WEEK = timedelta(days=7)
_NOBODY = "unknown"
_FINAL = {Reason.UNDECODABLE: "500", Reason.TOO_LARGE: "552"}
_FAILED = "554"
"""What the entry says where a job died early by no code of a server: a permanent error has a permanent code."""


class _Entry(Struct, frozen=True, kw_only=True):
    """A `DLQEntry` with the producer's bytes as they were."""

    jobId: str
    outboxId: str
    companyId: str
    originalData: Raw
    failedAttempts: int
    lastFailureReason: str
    lastFailureCode: str | UnsetType
    lastFailureTimestamp: str
    enqueuedAt: str
    movedToDLQAt: str
    ttl: int


class _Company(Struct, rename="camel"):
    company_id: str


class EmailShape:
    """Makes the entry. Total: any letter has one, also that of a job whose bytes are no job."""

    name = "email"

    def __init__(self, ttl: timedelta = _WEEK) -> None:
        self._ttl = ttl // timedelta(milliseconds=1)
        self._encode = msgspec.json.Encoder().encode

    def encode(self, letter: Letter) -> bytes:
        message, last = letter.message, letter.last
        return self._encode(
            _Entry(
                jobId=message.id,
                outboxId=message.id,
                companyId=_company(message),
                originalData=_original(message.body),
                failedAttempts=failed_attempts(letter),
                lastFailureReason=last.message.strip() or last.type,
                lastFailureCode=UNSET if (code := code_of(letter)) is None else code,
                lastFailureTimestamp=iso(last.at),
                enqueuedAt=iso(message.enqueued_at),
                movedToDLQAt=iso(moved_at(letter)),
                ttl=self._ttl,
            )
        )

    def moved_at(self, letter: Letter) -> datetime:
        return moved_at(letter)


def moved_at(letter: Letter) -> datetime:
    """When it died last."""
    return max(letter.created_at, letter.last.at)


def failed_attempts(letter: Letter) -> int:
    """How many attempts were made, by all its lives: what was refused before an attempt is none."""
    last = letter.last
    made = last.attempt - (last.stage is Stage.DELIVERY)
    return max(made, sum(failure.stage is not Stage.DELIVERY for failure in letter.failures))


def _company(message: Message) -> str:
    if message.tenant and message.tenant.strip():
        return message.tenant
    try:
        return msgspec.json.decode(message.body, type=_Company).company_id.strip() or _NOBODY
    except UNREADABLE:
        return _NOBODY


def _original(body: bytes) -> Raw:
    """The job's bytes as they are, if they are a JSON object; else in base64, under a key of their own."""
    try:
        msgspec.json.decode(body, type=dict[str, Raw])
        body.decode("utf-8")
    except UNREADABLE:
        return Raw(msgspec.json.encode({"base64": b64encode(body).decode()}))
    return Raw(body)


def code_of(letter: Letter) -> str | None:
    """The code of the last failure, in entries, statistics and filters. Before the last attempt only a permanent error
    comes here, and it says so."""
    code = None if letter.last.code is None else canonical_code(letter.last.code)
    if letter.reason not in (Reason.ATTEMPTS, Reason.CRASHED, Reason.PARKED) and is_retryable_error(code):
        return _FINAL.get(letter.reason, _FAILED)
    return code
