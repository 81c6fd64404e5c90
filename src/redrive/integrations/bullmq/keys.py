"""The names that BullMQ gives to what it keeps in Redis: `bull:orders:failed`.

A Redis Cluster wants all of a queue on one node, so its users set a prefix with a hash tag: `{bull}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from msgspec import Struct

from redrive.errors import ConfigError

SCHEME = "bullmq+"
DEFAULT_PREFIX = "bull"
GROUP = "redrive"
"""The consumer group by which a watcher remembers how far it has read the events of a queue."""


class Keys(Struct, frozen=True):
    """The keys of one queue."""

    prefix: str
    queue: str

    @property
    def base(self) -> str:
        return f"{self.prefix}:{self.queue}:"

    @property
    def failed(self) -> str:
        return self.base + "failed"

    @property
    def events(self) -> str:
        return self.base + "events"

    @property
    def meta(self) -> str:
        return self.base + "meta"

    @property
    def sent(self) -> str:
        """Ours: which jobs were sent back from a letter, until their outcome is known."""
        return self.base + "redrive:sent"

    def job(self, id: str) -> str:
        return self.base + id


def address_of(url: str) -> tuple[str, str]:
    """The URL as Redis knows it, and the prefix of BullMQ's keys."""
    parts = urlsplit(url.removeprefix(SCHEME))
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    prefix = options.pop("prefix", DEFAULT_PREFIX)
    if not prefix:
        raise ConfigError("prefix= in a URL of BullMQ must not be empty: leave it out, or write what your queues have")
    return urlunsplit(parts._replace(query=urlencode(options))), prefix


def fields_of(answer: Any) -> Mapping[str, bytes]:
    """The fields of a hash, as Redis lists them."""
    if isinstance(answer, Mapping):
        return {_text(name): value for name, value in answer.items()}
    flat = list(answer)
    return {_text(name): value for name, value in zip(flat[::2], flat[1::2], strict=True)}


def _text(name: bytes | str) -> str:
    return name if isinstance(name, str) else name.decode("utf-8", "replace")
