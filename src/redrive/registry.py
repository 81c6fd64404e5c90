"""Which backend a URL means. A new broker or database is its own file and one line here, or an entry point; a system
brings its own in its descriptor.

Nothing is imported before it is asked for: `redrive --help` knows no driver.
"""

from __future__ import annotations

from datetime import timedelta
from importlib.metadata import entry_points
from typing import Any

from redrive.clock import Clock
from redrive.errors import ConfigError, nearest
from redrive.stores.base import Store
from redrive.systems.base import resolved
from redrive.systems.discover import systems
from redrive.transports.base import Transport

# scheme -> module:function, which takes the URL and the options below by name
TRANSPORTS = {
    "memory": "redrive.transports.memory:open_transport",
    "sqlite": "redrive.transports.sqlite:open_transport",
    "redis": "redrive.transports.redis:open_transport",
    "rediss": "redrive.transports.redis:open_transport",
    "redis+cluster": "redrive.transports.redis:open_transport",
    "rediss+cluster": "redrive.transports.redis:open_transport",
    "amqp": "redrive.transports.rabbitmq.transport:open_transport",
    "amqps": "redrive.transports.rabbitmq.transport:open_transport",
    "kafka": "redrive.transports.kafka.transport:open_transport",
    "kafka+ssl": "redrive.transports.kafka.transport:open_transport",
    "postgresql": "redrive.transports.postgresql:open_transport",
    "postgres": "redrive.transports.postgresql:open_transport",
}
STORES = {
    "memory": "redrive.stores.memory:open_store",
    "sqlite": "redrive.stores.sqlite:open_store",
    "redis": "redrive.stores.redis:open_store",
    "rediss": "redrive.stores.redis:open_store",
    "redis+cluster": "redrive.stores.redis:open_store",
    "rediss+cluster": "redrive.stores.redis:open_store",
    "opensearch": "redrive.stores.opensearch:open_store",
    "opensearch+https": "redrive.stores.opensearch:open_store",
    "postgresql": "redrive.stores.postgresql:open_store",
    "postgres": "redrive.stores.postgresql:open_store",
    "mongodb": "redrive.stores.mongodb:open_store",
    "mongodb+srv": "redrive.stores.mongodb:open_store",
}


def open_transport(url: str, *, clock: Clock, lease: timedelta) -> Transport:
    """The transport of that URL, ready to use."""
    transport: Transport = _opener("transport", url, TRANSPORTS)(url, clock=clock, lease=lease)
    return transport


def open_store(url: str) -> Store:
    """The store of that URL, ready to use."""
    store: Store = _opener("store", url, STORES)(url)
    return store


def _opener(kind: str, url: str, known: dict[str, str]) -> Any:
    scheme, is_url, _ = url.partition("://")
    if not is_url:
        raise ConfigError(f"{url!r} is no URL of a {kind}: write it like sqlite:///redrive.db")
    plugins = {point.name: point.value for point in entry_points(group=f"redrive.{kind}s")}
    brought = {name: value for system in systems().values() for name, value in getattr(system, f"{kind}s").items()}
    every = known | brought | plugins
    target = every.get(scheme)
    if target is None:
        plain = [name for name in every if "+" not in name]
        raise ConfigError(f"no {kind} speaks {scheme!r}{nearest(scheme, every) or nearest(scheme, plain)}")
    return resolved(target)
