"""Letters from dead-letter queues of Amazon SQS, and from the queues that other services of AWS fill with failures.

a redrive policy      the message itself, which was received too often; SQS says of which queue it was
Redrive               the same with our attribute: its id, key and failures are known
SNS in it             its body is an envelope that names the topic; it goes back as it is, as its consumer knows it
SNS, Lambda, EventBridge as the writer   attributes with an error's code and text (aws.py)
Lambda's destination  a record with the event and the error (aws.py)
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from redrive.collect.aws import envelope, failed_by_attributes, lambda_record
from redrive.collect.foreign import Said, failure_of, letter_of
from redrive.errors import UsageError
from redrive.forensics.fingerprint import fingerprint
from redrive.model import Failure, Letter, Message
from redrive.transports.base import Delivery
from redrive.transports.sqs.transport import SqsTransport

_TOO_OFTEN = "sqs.MaxReceiveCount"


class SqsReader:
    """Letters from the messages of one dead-letter queue.

    transport   the name of the transport that a replay sends them back through
    source      the queue they go back to; otherwise that of which SQS says that it is theirs
    """

    def __init__(self, queue: str, *, transport: str = "default", source: str | None = None) -> None:
        self._queue = queue
        self._transport = transport
        self._source = source
        self._broker: SqsTransport | None = None
        self._sources: tuple[str, ...] = ()
        self.vouched: set[str] = set()  # queues of which SQS, and no message, says that what lies here is theirs

    async def prepare(self, broker: SqsTransport) -> None:
        """Ask SQS whose dead-letter queue it is, for messages that do not say it themselves."""
        self._broker = broker
        if not await broker.has_source(self._queue):
            raise UsageError(f"there is no queue {self._queue!r} that we may see: correct its name, region or account")
        found = await broker.dead_letter_sources(self._queue)
        if self._source is None and len(found) == 1:
            self._source = found[0]
        self._sources = found
        self.vouched.update(found)

    def __call__(self, delivery: Delivery, now: datetime) -> Letter:
        message = delivery.message
        said = lambda_record(message) or failed_by_attributes(message)
        if said is not None:
            return self._of(said, now)
        system: Mapping[str, Any] = delivery.token.system
        source = self._source_of(system)
        died = _moment(system.get("ApproximateFirstReceiveTimestamp"), message.enqueued_at)
        if delivery.failures:  # Redrive had it before SQS gave up
            return self._ours(replace(message, source=source), delivery.failures, now)
        count = delivery.token.count - 1  # the last one is ours
        times = f"{count} times" if count > 0 else "as often as it may be"
        text = f"received {times} from {source} and deleted by nobody: its consumer fails, ends, or takes longer than "
        failure = failure_of(_TOO_OFTEN, f"{text}the visibility timeout", died, attempt=max(count, 1))
        found = replace(message, source=source, attempt=1)
        return letter_of(_from_topic(found), failure, transport=self._transport, now=now)

    def _of(self, said: Said, now: datetime) -> Letter:
        source = self._source or said.source or self._queue
        message = replace(said.message, source=source, attempt=1, origin=said.place or said.message.origin)
        return letter_of(message, said.failure, transport=self._transport, now=now)

    def _ours(self, message: Message, failures: tuple[Failure, ...], now: datetime) -> Letter:
        letter = letter_of(replace(message, attempt=1), failures[-1], transport=self._transport, now=now)
        return replace(letter, failures=failures, group=fingerprint(failures[-1]))

    def _source_of(self, system: Mapping[str, Any]) -> str:
        arn = str(system.get("DeadLetterQueueSourceArn") or "")
        if arn and self._source is None:
            name = arn.rpartition(":")[2]
            known = self._broker.source_of(name) if self._broker is not None else None
            self.vouched.add(known or name)
            return known or name
        if self._source is None and self._sources:
            raise UsageError(
                f"{self._queue} is the dead-letter queue of {', '.join(self._sources)}, and its messages do not say "
                "whose they are: name it with --source"
            )
        return self._source or self._queue


def _from_topic(message: Message) -> Message:
    """A message that came by SNS, with where it is from; its body stays the envelope that its consumer reads."""
    found = envelope(message)
    return message if found is None else replace(message, origin=found.place, correlation_id=found.id)


def _moment(said: Any, otherwise: datetime) -> datetime:
    text = str(said or "")
    if not text.isdecimal() or not 0 < int(text[:16]) < 1 << 47:
        return otherwise
    return datetime.fromtimestamp(int(text) / 1000, UTC)
