"""Facts to observe."""

from datetime import UTC, datetime, timedelta

from redrive.model import Category, Failure, Reason, State
from redrive.telemetry.events import MessageBuried, MessageRetried

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def failure(message: str = "no answer", attempt: int = 2) -> Failure:
    return Failure(
        type="TimeoutError",
        message=message,
        category=Category.NETWORK,
        retryable=True,
        at=NOW,
        attempt=attempt,
        code="504",
    )


def retried(message: str = "no answer", id: str = "m1") -> MessageRetried:
    return MessageRetried(
        source="orders",
        message=id,
        tenant="acme",
        correlation_id="visit-7",
        failure=failure(message),
        after=timedelta(seconds=1.5),
    )


def buried() -> MessageBuried:
    return MessageBuried(
        source="orders",
        message="m1",
        tenant="acme",
        correlation_id=None,
        letter="letter-1",
        group="group-1",
        reason=Reason.ATTEMPTS,
        state=State.PENDING,
        failure=failure(),
    )
