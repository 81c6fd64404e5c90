"""Dead tickets on a topic, whoever wrote them: a value with `dlq_metadata`."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from redrive.collect.foreign import failure_of, moment_of
from redrive.collect.kafka import KafkaReader
from redrive.model import Letter, Message
from redrive.systems.tickets.metadata import metadata_in
from redrive.untrusted import read_json


class TicketReader(KafkaReader):
    """Reads `dlq_metadata`, and everything that a reader for Kafka reads."""

    def original(self, message: Message) -> Message:
        """Its value less why it died."""
        found = metadata_in(message.body)
        return message if found is None else replace(message, body=found[0])

    def by_value(self, message: Message, now: datetime) -> Letter | None:
        """What its `dlq_metadata` says."""
        found = metadata_in(message.body)
        if found is None:
            return None
        body, said = found
        failure = failure_of(
            str(said.get("error_type") or "Unknown"),
            str(said.get("original_error") or ""),
            moment_of(_whole(said.get("last_failure_timestamp")), message.enqueued_at),
            attempt=_whole(said.get("retry_count")) or 1,
        )
        since = moment_of(_whole(said.get("dlq_published_at")), now)
        id = read_json(body).get("ticket_id")
        name = str(id) if isinstance(id, str | int) and str(id) else message.id
        letter = self.letter(replace(message, body=body), self.source, name, failure, now)
        return replace(letter, created_at=min(since, now))


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
