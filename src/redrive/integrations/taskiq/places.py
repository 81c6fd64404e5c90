"""Where a task was taken from: Taskiq tells a middleware its broker, and not the queue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

KIND = "taskiq-broker"
EXCHANGE, ROUTING_KEY = "taskiq-exchange", "taskiq-routing-key"
_KINDS = {"List": "list", "Stream": "stream", "PubSub": "pubsub", "AioPika": "amqp"}
_DEFAULT = "taskiq"


class Place(Struct, frozen=True):
    """A queue of a broker.

    kind       list, stream, pubsub (Redis), amqp (RabbitMQ), or empty: a broker that there is no way back to yet
    exchange   of RabbitMQ, where it is not sure which queue of it a task came from
    """

    queue: str
    kind: str = ""
    exchange: str = ""


def place_of(broker: object, labels: Mapping[str, Any]) -> Place:
    """The place by what the broker is, and by the labels that route a task."""
    kind = kind_of(broker)
    if kind == "amqp":
        return _in_rabbitmq(broker, labels)
    return Place(str(labels.get("queue_name") or getattr(broker, "queue_name", _DEFAULT)), kind)


def kind_of(broker: object) -> str:
    """By the names of its classes: the libraries of other brokers need not be installed."""
    names = [parent.__name__ for parent in type(broker).__mro__]
    return next((kind for part, kind in _KINDS.items() if any(part in name for name in names)), "")


def _in_rabbitmq(broker: object, labels: Mapping[str, Any]) -> Place:
    """One queue is the queue. Among several a direct exchange chooses by the label; others may choose more than one."""
    queues = list(getattr(broker, "_task_queues", ()))
    if len(queues) == 1:
        return Place(str(queues[0].name), "amqp")
    key = str(labels.get(getattr(broker, "_label_for_routing", "queue_name")) or "")
    named = [queue.name for queue in queues if (queue.routing_key or queue.name) == key]
    exchange = getattr(broker, "_exchange", None)
    if len(named) == 1 and str(getattr(exchange, "type", "direct")).lower().endswith("direct"):
        return Place(str(named[0]), "amqp")
    return Place(key or _DEFAULT, "amqp", str(getattr(exchange, "name", "")))
