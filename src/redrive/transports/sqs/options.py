"""The options in a URL of Amazon SQS.

sqs://?region=eu-central-1                       Amazon's own endpoint; credentials as AWS' tools find them
sqs://localhost:9324?tls=false                   what speaks its protocol somewhere else
sqs://KEY:SECRET@localhost:9324?tls=false        with credentials in the URL
"""

from __future__ import annotations

from datetime import timedelta
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from msgspec import Struct

from redrive.config.durations import duration
from redrive.errors import ConfigError, nearest

OPTIONS = ("region", "profile", "tls", "prefix", "fifo", "create", "wait", "polls")
LONGEST_WAIT = timedelta(seconds=20)
MOST_POLLS = 100
_YES, _NO = ("yes", "true", "1", "on"), ("no", "false", "0", "off")


class Options(Struct, frozen=True, kw_only=True):
    """A URL, taken apart.

    region    where the queues are, if the environment or the profile does not say it
    profile   of the credentials, where AWS' files have several
    prefix    begins the name of each queue: source `orders` is the queue `prod-orders`
    fifo      all sources are FIFO queues: `orders` is the queue `orders.fifo`, and the key of a message is its group
    create    whether a queue that is missing is made
    wait      how long SQS waits for a message before it answers that there is none
    polls     how many requests for messages are under way at once, while there are many
    """

    endpoint: str | None = None
    access_key: str | None = None
    secret_key: str | None = None
    region: str | None = None
    profile: str | None = None
    prefix: str = ""
    fifo: bool = False
    create: bool = True
    wait: timedelta = timedelta(seconds=5)
    polls: int = 10

    @property
    def shown(self) -> str:
        """How errors call it."""
        return f"SQS ({urlsplit(self.endpoint).netloc if self.endpoint else self.region or 'AWS'})"


def options_of(url: str) -> Options:
    """Read a URL; ConfigError says which part of it is wrong."""
    parts = urlsplit(url)
    if parts.path.strip("/"):
        raise ConfigError(f"the URL of SQS has a path, {parts.path!r}: write it like sqs://?region=eu-central-1")
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name in given:
        if name not in OPTIONS:
            raise ConfigError(f"the URL of SQS has no option {name!r}{nearest(name, OPTIONS)}")
    return Options(
        endpoint=_endpoint(parts, _flag(given, "tls", True)),
        access_key=unquote(parts.username) if parts.username else None,
        secret_key=unquote(parts.password) if parts.password else None,
        region=given.get("region") or None,
        profile=given.get("profile") or None,
        prefix=_prefix(given.get("prefix", "")),
        fifo=_flag(given, "fifo", False),
        create=_flag(given, "create", True),
        wait=_wait(given.get("wait")),
        polls=_polls(given.get("polls")),
    )


def _endpoint(parts: SplitResult, tls: bool) -> str | None:
    try:
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"the URL of SQS cannot be used: {error}") from None
    if bool(parts.username) != bool(parts.password):
        raise ConfigError("the URL of SQS has a key without its secret: write both, as in sqs://KEY:SECRET@host")
    if not parts.hostname:
        return None
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{'https' if tls else 'http'}://{host}{f':{port}' if port else ''}"


def _flag(given: dict[str, str], name: str, otherwise: bool) -> bool:
    value = given.get(name, "").lower()
    if name not in given:
        return otherwise
    if value not in (*_YES, *_NO):
        raise ConfigError(f"{name}={given[name]!r} in the URL of SQS: it is yes or no")
    return value in _YES


def _prefix(text: str) -> str:
    if len(text) > 40 or not all(char.isascii() and (char.isalnum() or char in "-_") for char in text):
        raise ConfigError(f"prefix={text!r} in the URL of SQS: up to 40 letters, digits, - and _")
    return text


def _wait(text: str | None) -> timedelta:
    if text is None:
        return timedelta(seconds=5)
    try:
        wait = timedelta() if text == "0" else duration(text)
    except (ValueError, ConfigError):
        raise ConfigError(f"wait={text!r} in the URL of SQS: write it like 5s") from None
    if not timedelta() <= wait <= LONGEST_WAIT or wait % timedelta(seconds=1):
        raise ConfigError(f"wait={text!r} in the URL of SQS: whole seconds, 20 at most")
    return wait


def _polls(text: str | None) -> int:
    if text is None:
        return 10
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:6]) <= MOST_POLLS):
        raise ConfigError(f"polls={text!r} in the URL of SQS: a number from 1 to {MOST_POLLS}")
    return int(text)
