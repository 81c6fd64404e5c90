"""What services of AWS write into a queue when they give something up.

    Lambda, destination on failure   a JSON record: the event as `requestPayload`, the error as `responsePayload`
    Lambda, dead-letter queue        the event, with the attributes RequestID, ErrorCode and ErrorMessage
    SNS, of a subscription           the notification, with the same attributes
    EventBridge, of a rule           the event, with the attributes RULE_ARN, TARGET_ARN, ERROR_CODE, ERROR_MESSAGE, …

And what SNS writes into a queue that subscribes to a topic: an envelope around the message.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from redrive.collect.foreign import Said, failure_of, number_of, text_of
from redrive.model import Message
from redrive.transports.sqs.wire import TYPES
from redrive.untrusted import UNREADABLE, read_json

_BY_SERVICE = ("RequestID", "ErrorCode", "ErrorMessage")
_BY_EVENTBRIDGE = (
    "RULE_ARN",
    "TARGET_ARN",
    "ERROR_CODE",
    "ERROR_MESSAGE",
    "EXHAUSTED_RETRY_CONDITION",
    "RETRY_ATTEMPTS",
    "EVENT_BUS_ARN",
)
_LONGEST = 4_000


class Envelope(Struct, frozen=True):
    """A notification of SNS: its id, and where it comes from."""

    id: str
    place: str


def envelope(message: Message) -> Envelope | None:
    """What the envelope of SNS says; None, if the body is none."""
    found = _object(message.body)
    if found is None or found.get("Type") != "Notification" or not isinstance(found.get("TopicArn"), str):
        return None
    id = str(found.get("MessageId") or message.id)[:200]
    return Envelope(id, f"{found['TopicArn'][:300]}/{id}")


def lambda_record(message: Message) -> Said | None:
    """What Lambda's record of a failed invocation says; None, if the body is none. The message is the event."""
    found = _object(message.body)
    context = None if found is None else found.get("requestContext")
    if found is None or not isinstance(context, dict) or "requestPayload" not in found:
        return None
    arn, request = str(context.get("functionArn") or ""), str(context.get("requestId") or message.id)
    error = found.get("responsePayload")
    error = error if isinstance(error, dict) else {"errorMessage": msgspec.json.encode(error).decode()} if error else {}
    condition = str(context.get("condition") or "Unknown")
    trace = error.get("stackTrace") or error.get("trace") or ()
    count = context.get("approximateInvokeCount")
    failure = failure_of(
        str(error.get("errorType") or f"lambda.{condition}")[:200],
        str(error.get("errorMessage") or f"Lambda gave it up: {condition}")[:_LONGEST],
        _moment(found.get("timestamp"), message.enqueued_at),
        attempt=count if isinstance(count, int) and 0 < count < 1000 else 1,
        stack="\n".join(map(str, trace)) if isinstance(trace, list) else str(trace),
        worker=arn[:300],
        code=None if error.get("errorType") else condition,
    )
    event = replace(message, id=request[:200], body=msgspec.json.encode(found["requestPayload"]))
    return Said(event, failure, source=_function(arn) or None, place=f"{arn[:300]}/{request[:200]}")


def failed_by_attributes(message: Message) -> Said | None:
    """What attributes say that Lambda, SNS or EventBridge add; None, if it has none of them."""
    of_service, of_bridge = (any(name == key for name, _ in message.headers) for key in ("ErrorMessage", "ERROR_CODE"))
    if of_bridge:
        return _of_eventbridge(message)
    if not of_service or message.header("RequestID") is None:
        return None
    code, text = text_of(message.header("ErrorCode")), text_of(message.header("ErrorMessage"))
    notification = envelope(message)
    kind = "sns.DeliveryFailed" if notification else "lambda.InvocationFailed"
    failure = failure_of(kind, text[:_LONGEST], message.enqueued_at, code=code or None)
    place = notification.place if notification else f"request {text_of(message.header('RequestID'))[:200]}"
    return Said(_without(message, _BY_SERVICE), failure, place=place)


def _of_eventbridge(message: Message) -> Said:
    code, text = text_of(message.header("ERROR_CODE")), text_of(message.header("ERROR_MESSAGE"))
    tries = number_of(message.header("RETRY_ATTEMPTS")) or 0
    target = text_of(message.header("TARGET_ARN"))[:300]
    failure = failure_of(
        f"eventbridge.{code or 'Failed'}"[:200], text[:_LONGEST], message.enqueued_at, attempt=tries + 1, worker=target
    )
    rule = text_of(message.header("RULE_ARN"))[:300]
    return Said(_without(message, _BY_EVENTBRIDGE), failure, place=f"{rule} → {target}")


def _without(message: Message, names: tuple[str, ...]) -> Message:
    """The message without attributes that are about its failure, and without their types."""
    kept = [(name, value) for name, value in message.headers if name not in names]
    for place, (name, value) in enumerate(kept):
        if name == TYPES:
            types = [
                pair for pair in value.decode("utf-8", "replace").split(",") if pair.partition("=")[0] not in names
            ]
            kept[place : place + 1] = [(TYPES, ",".join(types).encode())] if types else []
            break
    return replace(message, headers=tuple(kept))


def _object(body: bytes) -> dict[str, Any] | None:
    if body.lstrip()[:1] != b"{":
        return None
    try:
        found = read_json(body)
    except UNREADABLE:
        return None
    return found if isinstance(found, dict) else None


def _function(arn: str) -> str:
    """The name of a function: `arn:aws:lambda:REGION:ACCOUNT:function:NAME:VERSION`."""
    parts = arn.split(":")
    return parts[6] if len(parts) > 6 and parts[5] == "function" else ""


def _moment(said: Any, otherwise: datetime) -> datetime:
    try:
        found = datetime.fromisoformat(str(said))
    except ValueError:
        return otherwise
    return found if found.tzinfo else found.replace(tzinfo=UTC)
