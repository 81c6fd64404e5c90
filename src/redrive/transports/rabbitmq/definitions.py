"""A topology as RabbitMQ's own definitions.json: `rabbitmqctl import_definitions` and `load_definitions` read it."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import asdict

from redrive.transports.rabbitmq.topology import Declared, DeclaredBinding, DeclaredExchange, DeclaredQueue

Definitions = dict[str, Any]


def definitions(wanted: Declared, vhost: str = "/") -> Definitions:
    """The same topology gives the same file, to the byte."""
    return {
        "vhosts": [{"name": vhost}],
        "exchanges": [exchange_entry(exchange, vhost) for exchange in wanted.exchanges],
        "queues": [queue_entry(queue, vhost) for queue in wanted.queues],
        "bindings": [binding_entry(binding, vhost) for binding in wanted.bindings],
    }


def as_text(content: Definitions) -> str:
    return msgspec.json.format(msgspec.json.encode(content), indent=2).decode() + "\n"


def exchange_entry(exchange: DeclaredExchange, vhost: str) -> Definitions:
    entry = asdict(exchange)
    entry["type"] = entry.pop("kind")
    return {"name": entry.pop("name"), "vhost": vhost, "type": entry.pop("type"), **entry}


def queue_entry(queue: DeclaredQueue, vhost: str) -> Definitions:
    entry = asdict(queue)
    return {"name": entry.pop("name"), "vhost": vhost, **entry}


def binding_entry(binding: DeclaredBinding, vhost: str) -> Definitions:
    return {
        "source": binding.exchange,
        "vhost": vhost,
        "destination": binding.queue,
        "destination_type": "queue",
        "routing_key": binding.key,
        "arguments": binding.arguments,
    }
