"""Letters from dead-letter topics of Kafka: their headers say who wrote them."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from redrive.collect.foreign import SUFFIXES, Said, failure_of, letter_of, number_of, place_of, stripped, text_of
from redrive.collect.spring import spring
from redrive.model import Failure, Letter, Message
from redrive.transports.base import Delivery
from redrive.transports.kafka.dlq import is_stub, letter_in
from redrive.transports.kafka.shelf import written_at
from redrive.transports.kafka.wire import without_lost_nulls

CONNECT = "__connect.errors."


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
        message, at = delivery.message, written_at(delivery)
        if is_stub(message):
            return None  # the letter itself is in the store of who wrote it
        ours = letter_in(message.headers, message)
        if ours is not None:
            return replace(ours, message=self.original(ours.message), transport=self._transport)
        said = spring(message, at) or connect(message, at)
        if said is not None:
            return self.letter(said.message, said.source or self.source, said.place, said.failure, now)
        letter = self.by_value(message, now)
        if letter is not None:
            return letter
        text = f"found in {self._topic}; nothing says why it is there"
        return self.letter(message, self.source, message.id, failure_of("collected.Unknown", text, at), now)

    # -- what the reader of a system knows better -------------------------------------------------------------------

    def original(self, message: Message) -> Message:
        """A message that Redrive wrote there, as it was before it died."""
        return message

    def by_value(self, message: Message, now: datetime) -> Letter | None:
        """The letter of a record whose value says why it died; None for any other."""
        return None

    def letter(self, message: Message, source: str, id: str | None, failure: Failure, now: datetime) -> Letter:
        """The letter of a message. A place that is known becomes its id, and where a replay sends it."""
        headers = without_lost_nulls(message.headers)
        found = replace(message, source=source, id=id or message.id, headers=headers)
        if id is not None and id.startswith(f"{source}["):
            found = replace(found, origin=id)
        return letter_of(found, failure, transport=self._transport, now=now)


def connect(message: Message, at: datetime) -> Said | None:
    """What Kafka Connect says of a record; None if it did not write it. Connect gives a dead record the timestamp of
    the one that died: when it failed is not known."""
    said = {name.removeprefix(CONNECT): value for name, value in message.headers if name.startswith(CONNECT)}
    if not said:
        return None
    topic = text_of(said.get("topic")) or None
    stage, where = text_of(said.get("stage")), text_of(said.get("class.name"))
    text = text_of(said.get("exception.message"))
    failure = failure_of(
        text_of(said.get("exception.class.name")) or "connect.Unknown",
        f"{text} (stage {stage} of {where})" if stage else text,
        at,
        stack=text_of(said.get("exception.stacktrace")),
        worker=f"{text_of(said.get('connector.name'))}-{text_of(said.get('task.id'))}".strip("-"),
    )
    place = place_of(topic or "", number_of(said.get("partition")), number_of(said.get("offset")))
    return Said(stripped(message, CONNECT), failure, source=topic, place=place if topic else None)


def _without_suffix(topic: str) -> str:
    return next((topic.removesuffix(suffix) for suffix in SUFFIXES if topic.endswith(suffix)), topic)
