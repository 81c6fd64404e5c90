"""What people and programs are shown of a letter: redacted, and with nothing that only a store needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TypeVar

from msgspec import Struct

from redrive.flow.held import HeldKey
from redrive.forensics.editing import VersionView
from redrive.forensics.redact import Redactor
from redrive.forensics.secrets import MASK
from redrive.forensics.stacks.shown import ShownFrame, place_of, shown_frames
from redrive.forensics.trace_context import trace_id_of
from redrive.model import Category, Failure, Letter, Reason, Stage, State

V = TypeVar("V")


class Summary(Struct, frozen=True, kw_only=True):
    """A letter on one line."""

    id: str
    state: State
    category: Category
    reason: Reason
    source: str
    transport: str
    tenant: str | None
    group: str
    error_type: str
    error_message: str
    code: str | None
    attempts: int
    created_at: datetime
    updated_at: datetime
    next_retry_at: datetime | None
    message_id: str


class Attempt(Struct, frozen=True, kw_only=True):
    """One failure."""

    attempt: int
    at: datetime
    stage: Stage
    type: str
    message: str
    category: Category
    retryable: bool
    code: str | None
    worker: str
    version: str
    edition: int | None  # the version of the letter's message that failed, if it was sent back
    stack: str
    frames: list[ShownFrame]  # of the stack, by its lines
    where: ShownFrame | None  # the innermost of the user's own code


class DecodedBody(Struct, frozen=True):
    """A body in its schema, which a system knows."""

    format: str
    schema: str
    text: str  # JSON


class Detail(Summary, frozen=True, kw_only=True):
    """A whole letter."""

    key: str | None
    correlation_id: str | None
    priority: int
    enqueued_at: datetime
    expires_at: datetime | None
    origin: str
    headers: list[tuple[str, str]]
    body: str
    body_exact: bool = False  # `body` is all of it, as it is: nothing is masked, cut or written in another way
    body_size: int
    failures: list[Attempt]
    retries: int
    max_retries: int
    resends: int
    replay: str | None
    depends_on: tuple[str, ...]
    owner: str | None
    lease_until: datetime | None
    version: int
    versions: list[VersionView]
    archived_from: State | None
    head: str | None  # the letter of its key that it waits for, where keys are held
    behind: int  # how many letters of its key wait for it
    trace_id: str | None = None  # of the trace that its message carries
    trace_url: str | None = None  # where that is shown, if the settings say so
    decoded: DecodedBody | None = None  # its body, where a system knows the schema


def summary(letter: Letter, redactor: Redactor) -> Summary:
    """The summary of a letter, redacted."""
    return Summary(**_shared(letter, redactor))


def detail(
    letter: Letter, redactor: Redactor, held: HeldKey | None = None, versions: Sequence[VersionView] = ()
) -> Detail:
    """The whole letter, redacted.

    held       its key, if that is held
    versions   those of its message, if it was edited
    """
    message = letter.message
    body = masked(redactor.body, message.body)
    head, behind = (None, 0) if held is None else held.around(message.id)
    return Detail(
        **_shared(letter, redactor),
        key=None if message.key is None else masked(redactor.start, message.key),
        correlation_id=None if message.correlation_id is None else masked(redactor.text, message.correlation_id),
        priority=message.priority,
        enqueued_at=message.enqueued_at,
        expires_at=letter.expires_at,
        origin=masked(redactor.text, message.origin),
        headers=[
            (masked(redactor.text, name), masked(lambda pair: redactor.header(*pair), (name, value)))
            for name, value in message.headers
        ],
        body=body,
        body_exact=body.encode("utf-8", "backslashreplace") == message.body,
        body_size=len(message.body),
        failures=[_attempt(failure, redactor) for failure in letter.failures],
        retries=letter.retries,
        max_retries=letter.max_retries,
        resends=letter.resends,
        replay=letter.replay,
        depends_on=tuple(masked(redactor.text, id) for id in letter.depends_on),
        owner=letter.owner,
        lease_until=letter.lease_until,
        version=letter.version,
        versions=list(versions),
        archived_from=letter.archived_from,
        head=head,
        behind=behind,
        trace_id=trace_id_of(message.headers),
    )


def _shared(letter: Letter, redactor: Redactor) -> dict[str, Any]:
    last = letter.last
    return {
        "id": letter.id,
        "state": letter.state,
        "category": letter.category,
        "reason": letter.reason,
        "source": letter.message.source,
        "transport": letter.transport,
        "tenant": None if letter.message.tenant is None else masked(redactor.text, letter.message.tenant),
        "group": letter.group,
        "error_type": last.type,
        "error_message": masked(redactor.text, last.message),
        "code": None if last.code is None else masked(redactor.text, last.code),
        "attempts": len(letter.failures),
        "created_at": letter.created_at,
        "updated_at": letter.updated_at,
        "next_retry_at": letter.next_retry_at,
        "message_id": masked(redactor.text, letter.message.id),
    }


def _attempt(failure: Failure, redactor: Redactor) -> Attempt:
    stack = masked(redactor.text, failure.stack)
    frames = shown_frames(stack)
    return Attempt(
        attempt=failure.attempt,
        at=failure.at,
        stage=failure.stage,
        type=failure.type,
        message=masked(redactor.text, failure.message),
        category=failure.category,
        retryable=failure.retryable,
        code=None if failure.code is None else masked(redactor.text, failure.code),
        worker=failure.worker,
        version=failure.version,
        edition=failure.edition,
        stack=stack,
        frames=frames,
        where=place_of(stack, frames),
    )


def masked(mask: Callable[[V], str], value: V) -> str:
    """The value as it may be shown. One that cannot be searched for secrets is a secret as a whole: the rest of the
    letter is shown all the same, and `redrive show --raw` has the bytes."""
    try:
        return mask(value)
    except Exception as error:
        return f"{MASK}: it cannot be searched for secrets ({type(error).__name__}); see `redrive show --raw`"
