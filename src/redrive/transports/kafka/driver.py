"""confluent-kafka, imported here and nowhere else, and the translation of its errors."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from redrive.errors import MissingExtra

try:
    from confluent_kafka import Consumer, ConsumerGroupState, KafkaError, KafkaException, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic
except ImportError as error:
    raise MissingExtra("Kafka", "kafka") from error

__all__ = [
    "AdminClient",
    "ConfigResource",
    "Consumer",
    "ConsumerGroupState",
    "KafkaError",
    "KafkaException",
    "NewTopic",
    "Producer",
    "TopicPartition",
    "log",
]

log = logging.getLogger("redrive.kafka")
driver_log = logging.getLogger("redrive.kafka.driver")
if driver_log.level == logging.NOTSET:
    driver_log.setLevel(logging.CRITICAL)  # one line a second while a broker is away; what matters, we say ourselves
NAME = "kafka"
AWAY = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TRANSPORT,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._MSG_TIMED_OUT,
    }
)
FENCED = frozenset({KafkaError._FATAL, KafkaError.FENCED_INSTANCE_ID})
"""Another process has joined the group under the name of this consumer, which is of no use any more: for one that has a
name, there is no other fatal error."""
NO_TOPIC = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC})
REFUSED = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError._AUTHENTICATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
    }
)
UNWELCOME = REFUSED | {KafkaError._SSL}
"""A broker is there, and does not talk to us."""
STARTING = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    }
)
"""A broker that has just begun, or has just taken over: it is soon ready."""
NOT_TAKEN = NO_TOPIC | REFUSED | {KafkaError._UNKNOWN_PARTITION, KafkaError.TOPIC_EXCEPTION}
"""A broker, or the driver before it asked one, has said no: nothing was written. Of other errors nobody knows: the
driver has tried again meanwhile, and an earlier try may have been heard."""
INVALID = frozenset({KafkaError.INVALID_RECORD, KafkaError.INVALID_TIMESTAMP})
"""This record is not for that topic, as one without a key for a topic that is compacted."""
TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE, KafkaError.INVALID_MSG_SIZE})


def quietly(config: dict[str, Any], on_error: Callable[[KafkaError], None] = lambda _: None) -> dict[str, Any]:
    """The settings of a client whose errors are heard there, and are no lines on stderr."""
    return {**config, "logger": driver_log, "error_cb": on_error}


def inner(error: KafkaException) -> KafkaError:
    """The KafkaError that it was raised for."""
    found = error.args[0]
    return found if isinstance(found, KafkaError) else KafkaError(KafkaError._FAIL, str(found))


def why(error: object, servers: str, topic: str | None = None) -> str:
    """The error in words that say what to do, where something can be done."""
    if isinstance(error, KafkaException):
        error = inner(error)
    if not isinstance(error, KafkaError):
        return str(error)
    if error.code() in NO_TOPIC and topic is not None:
        return f"there is no topic {topic!r} on {servers}: create it, or correct its name (source, or `dlq` in the URL)"
    if error.code() in REFUSED:
        return f"{servers} refuses us: correct the login in the URL, or the rights of its user ({error.str()})"
    if error.code() in AWAY:
        return f"{servers} does not answer ({error.str()})"
    return str(error.str())
