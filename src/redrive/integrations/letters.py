"""Letters from what another worker knows of a failure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from redrive.collect import foreign
from redrive.flow.attempt import text_of, type_name
from redrive.flow.classify import Classifier
from redrive.flow.lineage import lineage
from redrive.forensics.fingerprint import fingerprint, frames_in, own_frames, stack_text
from redrive.model import Failure, Letter, Message, Reason, State, letter_id

_classifier = Classifier()
_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_LONGEST_TEXT = 500


def failure_of(error: BaseException, *, at: datetime, attempt: int = 1, worker: str = "", version: str = "") -> Failure:
    """The failure that an exception is, with its stack if it was raised here."""
    verdict = _classifier(error)
    return Failure(
        type=type_name(error),
        message=text_of(error),
        category=verdict.category,
        retryable=verdict.retryable,
        code=verdict.code,
        at=at,
        attempt=attempt,
        stack=stack_text(error) if error.__traceback__ is not None else "",
        frames=own_frames(error) if error.__traceback__ is not None else (),
        worker=worker,
        version=version,
    )


def failure_told(
    kind: str,
    text: str,
    *,
    at: datetime,
    stack: str = "",
    error: BaseException | None = None,
    attempt: int = 1,
    worker: str = "",
) -> Failure:
    """The failure of a Python program of which only texts came here, as from a process that runs tasks; `error`, if it
    came too, says what kind of trouble it is."""
    told = foreign.failure_of(kind, text, at, attempt=attempt, stack=stack, worker=worker)
    verdict = None if error is None else _classifier(error)
    return replace(
        told,
        category=verdict.category if verdict else told.category,
        retryable=verdict.retryable if verdict else told.retryable,
        code=(verdict.code if verdict else None) or told.code,
        frames=frames_in(stack) or told.frames,
    )


def failure_in(traceback: str, *, at: datetime, attempt: int = 1, worker: str = "") -> Failure:
    """The failure that a traceback of Python, as a text, tells of: its last line that is not indented names it."""
    lines = [line for line in traceback.strip().splitlines() if line and not line[0].isspace()]
    kind, _, text = (lines[-1] if lines else "").partition(": ")
    if not _NAME.fullmatch(kind):
        kind, text = "python.Unknown", traceback.strip()[:_LONGEST_TEXT]
    return failure_told(kind, text, at=at, stack=traceback, attempt=attempt, worker=worker)


def letter_of(
    message: Message,
    failures: Sequence[Failure],
    *,
    transport: str,
    now: datetime,
    reason: Reason = Reason.ATTEMPTS,
) -> Letter:
    """A letter that waits for a person: its own worker has given it up. It keeps the headers that name its replay, so
    that whoever records it can tell; the store keeps it without."""
    origin = lineage(message)
    return Letter(
        id=letter_id(message.source, message.id),
        message=replace(message, attempt=1),
        failures=tuple(failures),
        state=State.EXHAUSTED if origin is not None and origin.was_retried else State.PENDING,
        reason=reason,
        group=fingerprint(failures[-1]),
        created_at=now,
        updated_at=now,
        transport=transport,
        retries=origin.retries if origin else 0,
    )
