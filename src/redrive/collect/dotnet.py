"""What MassTransit and NServiceBus say of a dead message, in the error queues that they fill themselves.

    MassTransit    `QUEUE_error`, headers MT-Fault-*; it comes from the queue of MT-Fault-InputAddress
    NServiceBus    `error`, headers NServiceBus.ExceptionInfo.*; it comes from the queue of NServiceBus.FailedQ

Neither leaves it to the broker to bury a message, so x-death says nothing of it. Their headers about the failure, and
by which they count retries, do not go back with it.
"""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec.structs import replace

from redrive.collect.collector import Reader
from redrive.collect.foreign import Said, failure_of, number_of, stripped, text_of
from redrive.forensics.fingerprint import fingerprint
from redrive.model import Letter, Message, letter_id
from redrive.transports.base import Delivery

_FAULT, _EXCEPTION = "MT-Fault-", "NServiceBus.ExceptionInfo."
_FAULT_ADDRESS = "MT-Fault-Address"  # of the message itself: where its sender wants to be told of faults
_MASSTRANSIT = (_FAULT, "MT-Reason", "MT-Host-", "MT-Redelivery-Count")
_NSERVICEBUS = (
    _EXCEPTION,
    "NServiceBus.FailedQ",
    "NServiceBus.TimeOfFailure",
    "NServiceBus.FLRetries",
    "NServiceBus.Retries",
    "NServiceBus.DelayedRetries",
    "NServiceBus.ProcessingMachine",
    "NServiceBus.ProcessingEndpoint",
)
_ERROR_QUEUE = "_error"


class DotnetReader:
    """Reads what either of them wrote; every other message is read by `plain`.

    source   the queue they go back to, where somebody said so
    """

    def __init__(self, plain: Reader, queue: str, *, source: str | None = None) -> None:
        self._plain = plain
        self._queue = queue
        self._source = source

    def __call__(self, delivery: Delivery, now: datetime) -> Letter | None:
        letter = self._plain(delivery, now)
        if letter is None or not letter.foreign:
            return letter
        said = masstransit(letter.message, now) or nservicebus(letter.message, now)
        if said is None:
            return letter
        source = self._source or said.source or self._queue.removesuffix(_ERROR_QUEUE)
        return replace(
            letter,
            id=letter_id(source, said.message.id),
            message=replace(said.message, source=source),
            failures=(said.failure,),
            group=fingerprint(said.failure),
        )


def masstransit(message: Message, now: datetime) -> Said | None:
    """What MassTransit's headers say; None if it has none of them."""
    kind = message.header(f"{_FAULT}ExceptionType")
    if kind is None and message.header(f"{_FAULT}Message") is None:
        return None
    failure = failure_of(
        text_of(kind) or "masstransit.Unknown",
        text_of(message.header(f"{_FAULT}Message")),
        _moment(text_of(message.header(f"{_FAULT}Timestamp")), now),
        attempt=(number_of(message.header(f"{_FAULT}RetryCount")) or 0) + 1,
        stack=text_of(message.header(f"{_FAULT}StackTrace")),
        worker=text_of(message.header("MT-Host-MachineName")),
    )
    queue = text_of(message.header(f"{_FAULT}InputAddress")).partition("?")[0].rpartition("/")[2]
    kept = tuple(pair for pair in message.headers if pair[0] == _FAULT_ADDRESS)
    bare = stripped(message, *_MASSTRANSIT)
    return Said(replace(bare, headers=(*bare.headers, *kept)), failure, source=queue or None)


def nservicebus(message: Message, now: datetime) -> Said | None:
    """What NServiceBus' headers say; None if it has none of them."""
    kind = message.header(f"{_EXCEPTION}ExceptionType")
    if kind is None and message.header("NServiceBus.FailedQ") is None:
        return None
    failure = failure_of(
        text_of(kind) or "nservicebus.Unknown",
        text_of(message.header(f"{_EXCEPTION}Message")),
        _moment(text_of(message.header("NServiceBus.TimeOfFailure")), now),
        stack=text_of(message.header(f"{_EXCEPTION}StackTrace")),
        worker=text_of(message.header("NServiceBus.ProcessingMachine")),
    )
    queue = text_of(message.header("NServiceBus.FailedQ")).partition("@")[0]  # `queue@machine` on some transports
    return Said(stripped(message, *_NSERVICEBUS), failure, source=queue or None)


def _moment(text: str, otherwise: datetime) -> datetime:
    """A time as ISO 8601, or as NServiceBus writes it: `2014-11-11 02:26:58:000462 Z`."""
    date, _, rest = text.replace(" Z", "Z").strip().partition(" ")
    if rest.count(":") == 3:
        text = f"{date}T{'.'.join(rest.rsplit(':', 1))}"
    try:
        found = datetime.fromisoformat(text)
        return found if found.tzinfo else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return otherwise
