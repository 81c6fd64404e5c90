"""The DLQ as a store: `email+redis://host:6379/0`, so that every command and the console can be pointed at it.

Its options beside those of Redis: `dlq` (the sorted set, `email:send:dlq`) and `ttl` (what entries say, `7d`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from redrive.config.durations import duration, spoken
from redrive.systems.email.constants import EMAIL_JOB_RETRY_CONFIG
from redrive.systems.email.settings import EmailSettings
from redrive.systems.email.shape import EmailShape

if TYPE_CHECKING:
    from redrive.stores.redis import RedisStore

_SCHEME = "email+"


def dlq_url(email: EmailSettings) -> str:
    """The store of these settings, as a URL."""
    parts = urlsplit(email.redis)
    options = [*parse_qsl(parts.query), ("dlq", email.dlq), ("ttl", spoken(email.dlq_ttl))]
    return urlunsplit((f"{_SCHEME}{parts.scheme}", parts.netloc, parts.path, urlencode(options, safe=":"), ""))


def entry_shape(email: EmailSettings) -> EmailShape:
    """The shape of entries of these settings."""
    return EmailShape(email.dlq_ttl)


def open_store(url: str) -> RedisStore:
    """A store of letters in Redis; each letter is an entry of the DLQ too while it is open."""
    from redrive.stores.redis import RedisStore

    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    entries = options.pop("dlq", EMAIL_JOB_RETRY_CONFIG["DLQ_NAME"])
    shape = EmailShape(duration(options.pop("ttl", "7d")))
    plain = urlunsplit((parts.scheme.removeprefix(_SCHEME), parts.netloc, parts.path, urlencode(options), ""))
    return RedisStore(plain, shape=shape, entries=entries)
