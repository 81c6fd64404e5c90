"""What Spring for Apache Kafka says of a dead record.

    kafka_dlt-*                         by a DeadLetterPublishingRecoverer
    kafka_original-*, kafka_exception-* by `@RetryableTopic`, beside retry_topic-*, by which it counts its retries

None of them goes back with the message: with `retry_topic-attempts` on it, Spring would skip its retries, and with
`kafka_original-*` the place of its first death would stay that of every later one. What an application or Spring's
request and reply use (`kafka_replyTopic`, `kafka_correlationId`, …) is the message's own.
"""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from redrive.collect.foreign import Said, failure_of, moment_of, number_of, place_of, stripped, text_of
from redrive.model import Message

_DLT, _PLAIN, _RETRY, _DELIVERY = "kafka_dlt-", "kafka_", "retry_topic-", "kafka_deliveryAttempt"
_ABOUT = (_DLT, "kafka_original-", "kafka_exception-", "kafka_key-exception-", _RETRY, _DELIVERY)


def spring(message: Message, at: datetime) -> Said | None:
    """What Spring's headers say of a record that was written at that time; None if it has none of them."""
    if not any(name.startswith(_ABOUT) and name != _DELIVERY for name, _ in message.headers):
        return None
    topic = text_of(_first(message, "original-topic")) or None
    failure = failure_of(
        text_of(_exception(message, "cause-fqcn") or _exception(message, "fqcn")) or "spring.Unknown",
        text_of(_exception(message, "message")),
        at,
        attempt=_attempts(message),
        stack=text_of(_exception(message, "stacktrace")),
        worker=text_of(_last(message, "original-consumer-group")),
    )
    partition, offset = (number_of(_first(message, f"original-{what}")) for what in ("partition", "offset"))
    return Said(
        replace(stripped(message, *_ABOUT), enqueued_at=_sent_at(message, at)),
        failure,
        source=topic,
        place=None if topic is None else place_of(topic, partition, offset),
    )


def _sent_at(message: Message, otherwise: datetime) -> datetime:
    first = next((value for name, value in message.headers if name == f"{_RETRY}original-timestamp"), None)
    millis = number_of(_first(message, "original-timestamp")) or number_of(first)
    return moment_of(millis, otherwise)


def _attempts(message: Message) -> int:
    """How often it was tried. `retry_topic-attempts` is the number of the attempt that would come next."""
    following, this = number_of(message.header(f"{_RETRY}attempts")), number_of(message.header(_DELIVERY))
    return following - 1 if following is not None else this or 1


def _exception(message: Message, what: str) -> bytes | None:
    """Of the last failure: of the listener, or of what could not read the value or the key."""
    return _last(message, f"exception-{what}") or _last(message, f"key-exception-{what}")


def _first(message: Message, what: str) -> bytes | None:
    """What Spring appends at each death, as it was at the first one: there the message came from."""
    names = (f"{_PLAIN}{what}", f"{_DLT}{what}")
    return next((value for name, value in message.headers if name in names and value), None)


def _last(message: Message, what: str) -> bytes | None:
    return message.header(f"{_DLT}{what}") or message.header(f"{_PLAIN}{what}")
