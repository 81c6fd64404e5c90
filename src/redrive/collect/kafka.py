"""Letters from dead-letter topics of Kafka: their headers say who wrote them."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from redrive.collect.foreign import failure_of, letter_of, moment_of, number_of, text_of
from redrive.model import Failure, Headers, Letter, Message
from redrive.transports.base import Delivery
from redrive.transports.kafka.dlq import STUB, letter_in

SPRING, CONNECT = "kafka_dlt-", "__connect.errors."
_SUFFIXES = (".dlq", ".dlt", ".DLT", ".DLQ", "-dlt", "-dlq", "-DLT")


class KafkaReader:
    """Letters from the records of one dead-letter topic.

    transport   the name of the transport that a replay sends them back through
    source      the topic they go back to, where the record does not say it itself
    """

    def __init__(self, topic: str, *, transport: str = "default", source: str | None = None) -> None:
        self._topic = topic
        self._transport = transport
        self.source = source or _without_suffix(topic)

    def __call__(self, delivery: Delivery, now: datetime) -> Letter | None:
        message = delivery.message
        if message.header(STUB) is not None:
            return None  # the letter itself is in the store of who wrote it
        ours = letter_in(message.headers, message)
        if ours is not None:
            return replace(ours, message=self.original(ours.message), transport=self._transport)
        for read in (self._spring, self._connect, self.by_value):
            letter = read(message, now)
            if letter is not None:
                return letter
        text = f"found in {self._topic}; nothing says why it is there"
        failure = failure_of("collected.Unknown", text, message.enqueued_at)
        return self.letter(message, self.source, message.id, failure, now)

    # -- what the reader of a system knows better -------------------------------------------------------------------

    def original(self, message: Message) -> Message:
        """A message that Redrive wrote there, as it was before it died."""
        return message

    def by_value(self, message: Message, now: datetime) -> Letter | None:
        """The letter of a record whose value says why it died; None for any other."""
        return None

    # -- Spring: kafka_dlt-* ---------------------------------------------------------------------------------------

    def _spring(self, message: Message, now: datetime) -> Letter | None:
        said = _headers(message.headers, SPRING)
        if not said:
            return None
        topic = text_of(said.get("original-topic")) or self.source
        kind = said.get("exception-cause-fqcn") or said.get("exception-fqcn") or said.get("key-exception-fqcn")
        text = said.get("exception-message") or said.get("key-exception-message")
        stack = said.get("exception-stacktrace") or said.get("key-exception-stacktrace")
        failure = failure_of(
            text_of(kind) or "spring.Unknown",
            text_of(text),
            moment_of(number_of(said.get("original-timestamp")), message.enqueued_at),
            stack=text_of(stack),
            worker=text_of(said.get("original-consumer-group")),
        )
        place = _place(topic, number_of(said.get("original-partition")), number_of(said.get("original-offset")))
        return self.letter(_stripped(message, SPRING), topic, place, failure, now)

    # -- Kafka Connect: __connect.errors.* ---------------------------------------------------------------------------

    def _connect(self, message: Message, now: datetime) -> Letter | None:
        said = _headers(message.headers, CONNECT)
        if not said:
            return None
        topic = text_of(said.get("topic")) or self.source
        stage, where = text_of(said.get("stage")), text_of(said.get("class.name"))
        kind = text_of(said.get("exception.class.name")) or "connect.Unknown"
        text = text_of(said.get("exception.message"))
        connector = f"{text_of(said.get('connector.name'))}-{text_of(said.get('task.id'))}".strip("-")
        failure = failure_of(
            kind,
            f"{text} (stage {stage} of {where})" if stage else text,
            message.enqueued_at,
            stack=text_of(said.get("exception.stacktrace")),
            worker=connector,
        )
        place = _place(topic, number_of(said.get("partition")), number_of(said.get("offset")))
        return self.letter(_stripped(message, CONNECT), topic, place, failure, now)

    def letter(self, message: Message, source: str, id: str | None, failure: Failure, now: datetime) -> Letter:
        """The letter of a message. A place that is known becomes its id, and where a replay sends it."""
        found = replace(message, source=source, id=id or message.id)
        if id is not None and id.startswith(f"{source}["):
            found = replace(found, origin=id)
        return letter_of(found, failure, transport=self._transport, now=now)


def _headers(headers: Headers, prefix: str) -> dict[str, bytes]:
    return {name.removeprefix(prefix): value for name, value in headers if name.startswith(prefix)}


def _stripped(message: Message, prefix: str) -> Message:
    """The message as it was before it died, with its own headers only."""
    return replace(message, headers=tuple(pair for pair in message.headers if not pair[0].startswith(prefix)))


def _place(topic: str, partition: int | None, offset: int | None) -> str | None:
    return None if partition is None or offset is None else f"{topic}[{partition}]@{offset}"


def _without_suffix(topic: str) -> str:
    return next((topic.removesuffix(suffix) for suffix in _SUFFIXES if topic.endswith(suffix)), topic)
