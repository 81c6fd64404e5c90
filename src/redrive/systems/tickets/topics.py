"""The two topics as the contract wants them, and how a live cluster differs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from redrive.errors import ConfigError, TransportUnavailable
from redrive.systems.tickets.settings import TicketSettings
from redrive.transports.kafka.driver import (
    NAME,
    NO_TOPIC,
    AdminClient,
    KafkaError,
    KafkaException,
    NewTopic,
    inner,
    quietly,
    why,
)
from redrive.transports.kafka.options import Options, options_of
from redrive.transports.kafka.topics import meet

_DAY = 86_400_000
_PATIENCE = 10.0
_AGAIN = 0.1


class Topic(Struct, frozen=True):
    """A topic that is wanted."""

    name: str
    partitions: int
    replicas: int
    config: dict[str, str]


class Report(Struct, frozen=True):
    """What was found, and what was done about it."""

    wanted: tuple[Topic, ...]
    created: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()


def wanted(tickets: TicketSettings) -> tuple[Topic, ...]:
    """The topic of tickets, and the one of dead tickets."""
    main = Topic(tickets.topic, tickets.partitions, tickets.replicas, {"retention.ms": str(7 * _DAY)})
    dead = Topic(
        tickets.dlq_topic,
        3,
        tickets.replicas,
        {"retention.ms": str(30 * _DAY), "compression.type": "snappy", "max.message.bytes": str(2 << 20)},
    )
    return (main, dead) if tickets.dlq_enabled else (main,)


async def ensure(tickets: TicketSettings, *, create: bool = True) -> Report:
    """Create what is missing; say how what is there differs. Nothing that exists is changed."""
    options = options_of(tickets.kafka)
    await meet(options)
    return await asyncio.to_thread(_ensured, options, wanted(tickets), create)


def _ensured(options: Options, topics: Sequence[Topic], create: bool) -> Report:
    admin = AdminClient(quietly(options.client()))
    try:
        missing = _missing(admin, topics, create)
        there = [topic for topic in topics if topic not in missing]
        known = _known(admin, there)
        differences = [text for topic in there for text in _differences(admin, topic, known[topic.name])]
    except KafkaException as error:
        raise TransportUnavailable(NAME, why(error, options.servers)) from error
    if not create:
        differences += [f"{topic.name}: there is no such topic" for topic in missing]
    return Report(tuple(topics), tuple(topic.name for topic in missing) if create else (), tuple(differences))


def _missing(admin: Any, topics: Sequence[Topic], create: bool) -> list[Topic]:
    """Those that were not there; they are now, if they are to be created. The controller is asked, in both cases: a
    broker may not know yet what was made a moment ago."""
    known = admin.list_topics(timeout=_PATIENCE).topics
    absent = {topic.name: topic for topic in topics if topic.name not in known}
    new = [NewTopic(topic.name, topic.partitions, topic.replicas, config=topic.config) for topic in absent.values()]
    answers = admin.create_topics(new, validate_only=not create) if new else {}
    return [absent[name] for name, answer in answers.items() if not _is_there(name, answer, create)]


def _is_there(name: str, answer: Any, create: bool) -> bool:
    try:
        answer.result()
    except KafkaException as error:
        found = inner(error)
        if found.code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return True
        if create and found.code() == KafkaError.INVALID_REPLICATION_FACTOR:
            raise ConfigError(
                f"topic {name!r} cannot have so many replicas: {found.str()} "
                "Set `tickets.replicas` (REDRIVE_TICKETS_REPLICAS) to the number of brokers, at most"
            ) from error
        if create:
            raise
    return False


def _known(admin: Any, topics: Sequence[Topic]) -> Any:
    """What a broker says of them, when it knows of them all."""
    end = time.monotonic() + _PATIENCE
    while True:
        known = admin.list_topics(timeout=_PATIENCE).topics
        unknown = [topic.name for topic in topics if topic.name not in known]
        if not unknown:
            return known
        if time.monotonic() > end:
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, f"{unknown[0]}: no broker knows of it"))
        time.sleep(_AGAIN)


def _differences(admin: Any, wanted: Topic, found: Any) -> Iterator[str]:
    partitions = len(found.partitions)
    replicas = min((len(partition.replicas) for partition in found.partitions.values()), default=0)
    for what, has, wants in (("partitions", partitions, wanted.partitions), ("replicas", replicas, wanted.replicas)):
        if has != wants:
            yield f"{wanted.name}: {what} is {has}, wanted {wants}"
    entries = _settings(admin, wanted.name)
    for name, value in wanted.config.items():
        found_value = entries[name].value if name in entries else None
        if found_value != value:
            yield f"{wanted.name}: {name} is {found_value}, wanted {value}"


def _settings(admin: Any, name: str) -> Any:
    """The settings of that topic, when the broker that is asked knows of it."""
    from confluent_kafka.admin import ConfigResource

    resource, end = ConfigResource(ConfigResource.Type.TOPIC, name), time.monotonic() + _PATIENCE
    while True:
        try:
            return admin.describe_configs([resource])[resource].result(_PATIENCE)
        except KafkaException as error:
            if inner(error).code() not in NO_TOPIC or time.monotonic() > end:
                raise
        time.sleep(_AGAIN)
