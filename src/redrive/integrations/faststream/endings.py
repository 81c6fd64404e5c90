"""Whether a message that failed is gone, or comes again: FastStream's acknowledgement policy and the error say it.

    | how it ended                          | queue       | topic       | list, channel | stream      |
    | ------------------------------------- | ----------- | ----------- | ------------- | ----------- |
    | error, REJECT_ON_ERROR; RejectMessage | gone        | gone        | gone          | gone        |
    | error, ACK or ACK_FIRST               | gone        | gone        | gone          | gone        |
    | error, NACK_ON_ERROR; NackMessage     | comes again | comes again | gone          | comes again |
    | error, MANUAL, nothing acknowledged   | comes again | gone        | gone          | comes again |
    | AckMessage, SkipMessage, StopConsume  | no failure  | no failure  | no failure    | no failure  |

What a queue of RabbitMQ rejects may go to a dead-letter exchange; what a stream rejects stays in its list of pending
entries, where nobody looks for it; and the next commit of a topic is beyond what was not acknowledged.
"""

from __future__ import annotations

import asyncio
from typing import Any

from faststream import AckPolicy
from faststream.exceptions import AckMessage, NackMessage, RejectMessage, SkipMessage, StopApplication, StopConsume
from faststream.message import AckStatus

from redrive.integrations.faststream.reading import Kind

_NO_FAILURE = (AckMessage, SkipMessage, StopConsume, StopApplication, asyncio.CancelledError)
_KEPT_UNTIL_ACKNOWLEDGED = (Kind.QUEUE, Kind.STREAM)


def is_dead(kind: Kind, policy: AckPolicy | None, committed: AckStatus | None, error: BaseException) -> bool:
    """Whether that error has taken the message out of its queue for good.

    policy      of the subscriber
    committed   what the handler has said of it by itself
    """
    if isinstance(error, _NO_FAILURE):
        return False
    if committed is AckStatus.NACKED:
        return not _comes_again(kind)
    if committed is not None or policy is AckPolicy.ACK_FIRST:
        return True
    if policy is AckPolicy.MANUAL:
        return kind not in _KEPT_UNTIL_ACKNOWLEDGED
    if isinstance(error, RejectMessage):
        return not error.extra_options.get("requeue", False)
    if isinstance(error, NackMessage):
        return not _comes_again(kind) or not error.extra_options.get("requeue", True)
    return policy is not AckPolicy.NACK_ON_ERROR or not _comes_again(kind)


def is_rejected(committed: Any) -> bool:
    """Whether a handler has rejected it by hand, and raised nothing."""
    return committed is AckStatus.REJECTED


def _comes_again(kind: Kind) -> bool:
    """Whether what is given back is delivered again."""
    return kind in (Kind.QUEUE, Kind.TOPIC, Kind.STREAM)
