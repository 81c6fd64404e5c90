"""Publishes a batch and knows what became of each message."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from amqp.exceptions import NotFound
from kombu.compression import compress

from redrive.flow.lineage import LETTER
from redrive.integrations.celery.wire import Publication
from redrive.transports.base import ACCEPTED, SendResult, busy, refused, unknown


class Batch:
    """Messages to publish, and the answers so far."""

    def __init__(self, publications: Sequence[Publication]) -> None:
        self.publications = publications
        self._answers: list[SendResult | None] = [None] * len(publications)
        self._begun: set[int] = set()

    def begin(self, number: int) -> None:
        """From now on it may have been taken."""
        self._begun.add(number)

    def answer(self, number: int, result: SendResult) -> None:
        """The first answer counts: a message that comes back as unroutable is confirmed after that."""
        if self._answers[number] is None:
            self._answers[number] = result

    def fail(self, why: str) -> None:
        """The connection is lost: what was begun may have been taken, and nothing else was."""
        for number in self.open:
            self.answer(number, unknown(why) if number in self._begun else busy(why))

    @property
    def open(self) -> list[int]:
        return [number for number, answer in enumerate(self._answers) if answer is None]

    @property
    def results(self) -> list[SendResult]:
        return [answer or unknown("its broker did not answer") for answer in self._answers]


def send_each(connection: Any, channel: Any, batch: Batch, patience: float) -> None:
    """Through a transport for which kombu plays the broker, such as Redis: an answer for each as it is written."""
    queues: dict[tuple[str, str], bool] = {}
    for number, publication in enumerate(batch.publications):
        route = (publication.delivery.exchange, publication.delivery.routing_key)
        if route not in queues:
            queues[route] = _is_bound(channel, *route)
        if not queues[route]:
            batch.answer(number, refused(_unroutable(*route)))
            continue
        batch.begin(number)
        channel.basic_publish(_message(channel, publication), *route)
        batch.answer(number, ACCEPTED)


def send_confirmed(connection: Any, channel: Any, batch: Batch, patience: float) -> None:
    """To RabbitMQ: all are published, and each is confirmed by the broker, or comes back because no queue takes it."""
    listener = _Listener(batch, channel)
    try:
        exchanges = {publication.delivery.exchange for publication in batch.publications} - {""}
        missing = {name for name in exchanges if not _has_exchange(connection, name)}
        for number, publication in enumerate(batch.publications):
            delivery = publication.delivery
            if delivery.exchange in missing:
                batch.answer(number, refused(f"its exchange {delivery.exchange!r} is gone from the broker"))
                continue
            listener.expect(number, publication)
            batch.begin(number)
            channel.basic_publish(
                _message(channel, publication), delivery.exchange, delivery.routing_key, mandatory=True
            )
        until = time.monotonic() + patience
        while batch.open:
            connection.drain_events(timeout=max(until - time.monotonic(), 0.001))
    finally:
        listener.close()


class _Listener:
    """What the broker says of what was published through a channel, which numbers it from 1."""

    def __init__(self, batch: Batch, channel: Any) -> None:
        self._batch = batch
        self._channel = channel
        self._published = getattr(channel, "redrive_published", 0)
        self._waiting: dict[int, int] = {}  # tag -> number
        self._returned: dict[str, int] = {}  # letter -> number
        self._hooks = {"basic_ack": self._acked, "basic_nack": self._nacked, "basic_return": self._came_back}
        for event, hook in self._hooks.items():
            channel.events[event].add(hook)

    def expect(self, number: int, publication: Publication) -> None:
        self._published += 1
        self._channel.redrive_published = self._published
        self._waiting[self._published] = number
        self._returned[str(publication.headers.get(LETTER))] = number

    def close(self) -> None:
        for event, hook in self._hooks.items():
            self._channel.events[event].discard(hook)

    def _acked(self, tag: int, multiple: bool) -> None:
        self._settle(tag, multiple, ACCEPTED)

    def _nacked(self, tag: int, multiple: bool) -> None:
        self._settle(tag, multiple, busy("its broker could not take it"))

    def _settle(self, tag: int, multiple: bool, result: SendResult) -> None:
        tags = [each for each in self._waiting if each <= tag] if multiple else [tag]
        for each in tags:
            if each in self._waiting:
                self._batch.answer(self._waiting.pop(each), result)

    def _came_back(self, error: Any, exchange: str, routing_key: str, message: Any) -> None:
        letter = str((message.headers or {}).get(LETTER))
        if letter in self._returned:
            self._batch.answer(self._returned[letter], refused(_unroutable(exchange, routing_key)))


def _message(channel: Any, publication: Publication) -> Any:
    delivery, properties = publication.delivery, dict(publication.delivery.properties)
    body = publication.body
    if delivery.compressed:
        body, _ = compress(body, publication.headers["compression"])
    return channel.prepare_message(
        body,
        priority=properties.pop("priority", None),
        content_type=delivery.content_type,
        content_encoding=delivery.content_encoding,
        headers=publication.headers,
        properties=properties,
    )


def _is_bound(channel: Any, exchange: str, routing_key: str) -> bool:
    """Whether some queue takes it. The bindings of an exchange say of which type it is."""
    if not exchange:
        return True
    table = channel.get_table(exchange)
    has_patterns = any(pattern for _, pattern, _ in table)
    channel.exchange_declare(exchange, type="topic" if has_patterns else "direct")
    return bool(channel.typeof(exchange).lookup(table, exchange, routing_key, None))


def _has_exchange(connection: Any, name: str) -> bool:
    channel = connection.channel()  # of its own: the broker closes it if there is none
    try:
        channel.exchange_declare(name, "direct", passive=True)
    except NotFound:
        return False
    channel.close()
    return True


def _unroutable(exchange: str, routing_key: str) -> str:
    place = f"exchange {exchange!r} with routing key {routing_key!r}" if exchange else f"queue {routing_key!r}"
    return f"no queue takes it: {place} is gone from the broker. Start a worker that consumes it, and replay again"
