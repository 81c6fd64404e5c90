"""The DLQ as a store: `email+redis://host:6379/0`, so that every command and the console can be pointed at it.

Its options beside those of Redis: `dlq` (the sorted set, `email:send:dlq`), `ttl` (what entries say, `7d`) and `mirror`
(`bull`: each entry has a key of its own too, `bull:email:send:dlq:JOB`; not on a cluster).
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
_BULL = "bull"


def queue_url(email: EmailSettings) -> str:
    """The queue of these settings, as a URL: mirrored under BullMQ's names, where that is possible."""
    parts = urlsplit(email.redis)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if parts.scheme.endswith("+cluster") or "mirror" in options:
        return email.redis
    return urlunsplit(parts._replace(query=urlencode({**options, "mirror": email.mirror})))


def dlq_url(email: EmailSettings) -> str:
    """The store of these settings, as a URL."""
    parts = urlsplit(email.redis)
    options = [*parse_qsl(parts.query), ("dlq", email.dlq), ("ttl", spoken(email.dlq_ttl)), ("mirror", email.mirror)]
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
    mirror = "" if parts.scheme.endswith("+cluster") else options.pop("mirror", _BULL)
    options.pop("mirror", None)
    plain = urlunsplit((parts.scheme.removeprefix(_SCHEME), parts.netloc, parts.path, urlencode(options), ""))
    return RedisStore(plain, shape=shape, entries=entries, names=f"{mirror}:{entries}" if mirror else None)
