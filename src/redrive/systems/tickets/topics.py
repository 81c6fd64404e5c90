"""The two topics as the contract wants them, and how a live cluster differs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from redrive.errors import ConfigError, TransportUnavailable
from redrive.settings import Tickets
from redrive.transports.kafka.driver import (
    NAME,
    AdminClient,
    KafkaError,
    KafkaException,
    NewTopic,
    driver_log,
    inner,
    why,
)
from redrive.transports.kafka.options import Options, options_of

_DAY = 86_400_000
_PATIENCE = 20.0


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


def wanted(tickets: Tickets) -> tuple[Topic, ...]:
    """The topic of tickets, and the one of dead tickets."""
    main = Topic(tickets.topic, tickets.partitions, tickets.replicas, {"retention.ms": str(7 * _DAY)})
    dead = Topic(
        tickets.dlq_topic,
        3,
        tickets.replicas,
        {"retention.ms": str(30 * _DAY), "compression.type": "snappy", "max.message.bytes": str(2 << 20)},
    )
    return (main, dead) if tickets.dlq_enabled else (main,)


async def ensure(tickets: Tickets, *, create: bool = True) -> Report:
    """Create what is missing; say how what is there differs. Nothing that exists is changed."""
    options = options_of(tickets.kafka)
    return await asyncio.to_thread(_ensured, options, wanted(tickets), create)


def _ensured(options: Options, topics: Sequence[Topic], create: bool) -> Report:
    admin = AdminClient({**options.client(), "logger": driver_log, "error_cb": lambda _: None})
    try:
        known = admin.list_topics(timeout=_PATIENCE).topics
        missing = [topic for topic in topics if topic.name not in known]
        if create:
            _create(admin, missing)
        there = [topic for topic in topics if topic.name in known]
        differences = [text for topic in there for text in _differences(admin, topic, known[topic.name])]
    except KafkaException as error:
        raise TransportUnavailable(NAME, why(error, options.servers)) from error
    if not create:
        differences += [f"{topic.name}: there is no such topic" for topic in missing]
    return Report(tuple(topics), tuple(topic.name for topic in missing) if create else (), tuple(differences))


def _create(admin: Any, topics: Sequence[Topic]) -> None:
    new = [NewTopic(one.name, one.partitions, one.replicas, config=one.config) for one in topics]
    for name, future in (admin.create_topics(new) if new else {}).items():
        try:
            future.result()
        except KafkaException as error:
            found = inner(error)
            if found.code() == KafkaError.INVALID_REPLICATION_FACTOR:
                raise ConfigError(
                    f"topic {name!r} cannot have so many replicas: {found.str()} "
                    "Set `tickets.replicas` (REDRIVE_TICKETS_REPLICAS) to the number of brokers, at most"
                ) from error
            if found.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise


def _differences(admin: Any, wanted: Topic, found: Any) -> Iterator[str]:
    from confluent_kafka.admin import ConfigResource

    partitions = len(found.partitions)
    replicas = min((len(one.replicas) for one in found.partitions.values()), default=0)
    for what, has, wants in (("partitions", partitions, wanted.partitions), ("replicas", replicas, wanted.replicas)):
        if has != wants:
            yield f"{wanted.name}: {what} is {has}, wanted {wants}"
    resource = ConfigResource(ConfigResource.Type.TOPIC, wanted.name)
    entries = admin.describe_configs([resource])[resource].result(_PATIENCE)
    for name, value in wanted.config.items():
        found_value = entries[name].value if name in entries else None
        if found_value != value:
            yield f"{wanted.name}: {name} is {found_value}, wanted {value}"
