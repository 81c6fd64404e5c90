"""Which backend a URL means. A new broker or database is its own file and one line here, or an entry point; a system
brings its own in its descriptor.

Nothing is imported before it is asked for: `redrive --help` knows no driver.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from importlib.metadata import entry_points
from typing import Any, Literal

from redrive.clock import Clock
from redrive.debugging.isolation import isolation
from redrive.errors import ConfigError, MissingExtra, nearest
from redrive.forensics.searchable import Searchable
from redrive.stores.base import SearchesTexts, Store
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
    "sqs": "redrive.transports.sqs:open_transport",
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
    if (apart := isolation()) is not None:
        return apart.transport
    transport: Transport = _opened("transport", url, TRANSPORTS, clock=clock, lease=lease)
    return transport


def open_store(url: str, *, searchable: Searchable | None = None) -> Store:
    """The store of that URL, ready to use.

    searchable   what a text is looked for in; without it, what Redrive shows by itself
    """
    if (apart := isolation()) is not None:
        return apart.store
    store: Store = _opened("store", url, STORES)
    if searchable is not None and isinstance(store, SearchesTexts):
        store.search_as(searchable)
    return store


def check_url(kind: Literal["transport", "store"], url: str) -> None:
    """Raise ConfigError if no such backend has that scheme. Nothing is imported for it."""
    _target(kind, url, TRANSPORTS if kind == "transport" else STORES)


@contextmanager
def naming(setting: str) -> Iterator[None]:
    """Let what is wrong with a URL begin with the name of its setting."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{setting}: {error}") from error


def schemes_of(name: str) -> list[str]:
    """The schemes of the transports that the system of that name brings: its letters go back through one of them."""
    system = systems().get(name)
    return [] if system is None else list(system.transports)


def require_transport(url: str) -> None:
    """Raise what is wrong with the scheme of that URL, or MissingExtra. Nothing is opened."""
    with _with_extra(url, TRANSPORTS):
        resolved(_target("transport", url, TRANSPORTS))


def _opened(kind: str, url: str, known: dict[str, str], **options: Any) -> Any:
    with _with_extra(url, known):
        return resolved(_target(kind, url, known))(url, **options)


@contextmanager
def _with_extra(url: str, known: dict[str, str]) -> Iterator[None]:
    """Make MissingExtra of a library that is not installed; a backend of ours has its folder's name as its extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        scheme = url.partition("://")[0]
        extra = known[scheme].split(".")[2] if scheme in known else _extra_of_system(scheme)
        if not extra or (error.name or "").startswith("redrive"):
            raise
        raise MissingExtra(f"{scheme}://", extra) from error


def _extra_of_system(scheme: str) -> str:
    return next((s.extra for s in systems().values() if scheme in s.transports or scheme in s.stores), "")


def _target(kind: str, url: str, known: dict[str, str]) -> str:
    scheme, is_url, _ = url.partition("://")
    if not is_url:
        shown = url if "@" not in url else f"…@{url.rpartition('@')[2]}"  # what is before it may be a password
        raise ConfigError(f"{shown!r} is no URL of a {kind}: write it like sqlite:///redrive.db")
    if scheme in known:
        return known[scheme]
    plugins = {point.name: point.value for point in entry_points(group=f"redrive.{kind}s")}
    brought = {name: value for system in systems().values() for name, value in getattr(system, f"{kind}s").items()}
    every = known | brought | plugins
    if scheme not in every:
        plain = [name for name in every if "+" not in name]
        raise ConfigError(f"no {kind} speaks {scheme!r}{nearest(scheme, every) or nearest(scheme, plain)}")
    return str(every[scheme])
