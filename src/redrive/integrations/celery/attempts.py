"""Earlier attempts of a task, which travel in a header of the message that its retry publishes.

Nothing is written anywhere for a retry: who sees the task die has its whole story in hand.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import wraps
from typing import Any

import msgspec
from msgspec.structs import replace

from redrive.clock import Clock
from redrive.integrations.celery.wire import ATTEMPTS, LINEAGE
from redrive.integrations.letters import failure_of
from redrive.model import Failure
from redrive.untrusted import UNREADABLE

_MOST = 24_000  # bytes: RabbitMQ takes all headers of a message in one frame of 128 KiB
_LONGEST_MESSAGE, _LONGEST_STACK = 500, 4_000
_decoder = msgspec.json.Decoder(tuple[Failure, ...])
_MARK = "_redrive_keeps_attempts"


def earlier(headers: Mapping[str, Any] | None) -> tuple[Failure, ...]:
    """The attempts before the one that a message with these headers is for."""
    told = (headers or {}).get(ATTEMPTS)
    if not isinstance(told, str | bytes):
        return ()
    try:
        return _decoder.decode(told)
    except UNREADABLE:  # somebody else's header of that name
        return ()


def with_attempt(headers: Mapping[str, Any] | None, failure: Failure) -> dict[str, Any]:
    """Those headers for the message of the retry after that failure."""
    return {**(headers or {}), ATTEMPTS: _fitted([*earlier(headers), _short(failure)])}


def keep_attempts(task: Any, clock: Clock) -> None:
    """From now on `task.retry` lets its message carry the attempts so far. A second time changes nothing."""
    if getattr(task, _MARK, False):
        return
    retry = task.retry

    @wraps(retry)
    def retry_with_attempts(args: Any = None, kwargs: Any = None, exc: Any = None, *more: Any, **options: Any) -> Any:
        request = task.request
        if not request.called_directly and not request.is_eager:
            options["headers"] = _headers(request, options.get("headers"), exc, clock.now())
        return retry(args, kwargs, exc, *more, **options)

    task.retry = retry_with_attempts
    setattr(task, _MARK, True)


def _headers(request: Any, given: Mapping[str, Any] | None, exc: Any, now: datetime) -> Mapping[str, Any]:
    """What the retry would carry, the lineage of its task, and the attempts so far. Never raises."""
    before = request.headers or {}
    ours = {name: before[name] for name in (*LINEAGE, ATTEMPTS) if name in before}
    headers = {**(before if given is None else given), **ours}
    error = exc if isinstance(exc, BaseException) else sys.exc_info()[1]
    try:
        attempt = int(request.retries or 0) + 1
        failure = failure_of(error or _Retried(), at=now, attempt=attempt, worker=str(request.hostname or ""))
        return with_attempt(headers, failure)
    except Exception:  # a retry must not fail because its story cannot be told
        return headers


class _Retried(Exception):
    """Stands for a reason that a task did not give."""

    def __str__(self) -> str:
        return "the task asked for a retry and gave no reason"


def _short(failure: Failure) -> Failure:
    return replace(failure, message=failure.message[:_LONGEST_MESSAGE], stack=failure.stack[-_LONGEST_STACK:])


def _fitted(failures: Sequence[Failure]) -> str:
    """The attempts as JSON within the limit: the oldest lose their stacks first, and are left out only then."""
    kept = list(failures)
    sizes = [len(msgspec.json.encode(failure)) + 1 for failure in kept]
    for number, failure in enumerate(kept):
        if sum(sizes) <= _MOST:
            break
        kept[number] = replace(failure, stack="")
        sizes[number] = len(msgspec.json.encode(kept[number])) + 1
    first = 0
    while sum(sizes[first:]) > _MOST and first < len(kept) - 1:
        first += 1
    return msgspec.json.encode(kept[first:]).decode()
