"""Every setting, with its default, the values it takes and what it is for: the one table of them."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import cache
from types import UnionType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from msgspec import Struct, field
from msgspec.structs import fields

from redrive.durations import spoken

MIB = 1 << 20
_TICK = timedelta(milliseconds=1)


class About(Struct, frozen=True):
    """What a setting is for, in one line, and the bounds of its values (of a text: of its length)."""

    text: str
    least: int | timedelta | None = None
    most: int | timedelta | None = None
    choices: tuple[str, ...] = ()
    is_size: bool = False


_TRANSPORT = About("The URL of that transport; name as many as you need, `default` serves all others", least=1)


class Redaction(Struct, frozen=True, kw_only=True):
    """What counts as a secret where letters are shown."""

    defaults: Annotated[bool, About("Mask the secrets that Redrive knows by itself")] = True
    keys: Annotated[tuple[str, ...], About("More keys whose values are masked")] = ()
    patterns: Annotated[tuple[str, ...], About("Regular expressions of more texts that are masked")] = ()


class Admin(Struct, frozen=True, kw_only=True):
    """Where the API and the console answer."""

    host: Annotated[str, About("The address that `redrive up` listens on", least=1)] = "127.0.0.1"
    port: Annotated[int, About("Its port; 0 takes a free one", least=0, most=65_535)] = 8321


class Logs(Struct, frozen=True, kw_only=True):
    """What is logged, and how."""

    level: Annotated[
        str, About("The least important line that is logged", choices=("debug", "info", "warning", "error"))
    ] = "info"
    format: Annotated[
        str, About("For people or for programs; auto looks for a terminal", choices=("auto", "console", "json"))
    ] = "auto"


class Retention(Struct, frozen=True, kw_only=True):
    """How long letters are kept."""

    ttl: Annotated[timedelta | None, About("Letters older than this are pruned", least=_TICK)] = None
    max_letters: Annotated[int | None, About("Past this many, the oldest letters are pruned", least=1)] = None
    export: Annotated[str | None, About("The file that letters are written to before they are pruned", 1)] = None


class Upkeep(Struct, frozen=True, kw_only=True):
    """The work in the background: automatic retries, rescue, pruning."""

    interval: Annotated[timedelta, About("How often due letters are looked for", least=_TICK)] = timedelta(seconds=1)
    lease: Annotated[timedelta, About("How long one processor may hold a letter", least=_TICK)] = timedelta(minutes=1)
    parallel: Annotated[int, About("How many letters are sent back at once", least=1, most=10_000)] = 100
    prune_every: Annotated[timedelta, About("How often retention is applied", least=_TICK)] = timedelta(minutes=1)


class Settings(Struct, frozen=True, kw_only=True):
    """All settings, valid: `redrive.config.load` makes them from a file and the environment."""

    store: Annotated[str, About("The URL of the database that keeps letters", least=1)] = "sqlite:///redrive.db"
    transports: Annotated[dict[str, str], _TRANSPORT] = field(
        default_factory=lambda: {"default": "sqlite:///redrive.db"}
    )
    worker: Annotated[str, About("The name of this process in failures; empty makes it host:pid")] = ""
    version: Annotated[str, About("The version of your own code, noted in failures")] = ""
    concurrency: Annotated[
        int, About("How many messages of a source a worker handles at once", least=1, most=10_000)
    ] = 10
    batch: Annotated[int, About("How many messages are received and settled at once", least=1, most=10_000)] = 100
    lease: Annotated[timedelta, About("How long a message is ours before another worker may have it", least=_TICK)] = (
        timedelta(minutes=1)
    )
    grace: Annotated[timedelta, About("How long a stopping worker lets its handlers finish")] = timedelta(seconds=25)
    timeout: Annotated[timedelta, About("How long one attempt may take", least=_TICK)] = timedelta(minutes=5)
    body_limit: Annotated[int, About("The largest body that is accepted", least=1, is_size=True)] = 16 * MIB
    redact: Redaction = Redaction()
    admin: Admin = Admin()
    logs: Logs = Logs()
    retention: Retention = Retention()
    upkeep: Upkeep = Upkeep()

    @property
    def worker_name(self) -> str:
        """The name of this process: as set, or its host and its id."""
        return self.worker or f"{socket.gethostname()}:{os.getpid()}"


class Key(Struct, frozen=True):
    """One setting, as data: for the loader, for docs and for `redrive doctor`."""

    path: str  # `admin.port`
    kind: type
    default: Any
    about: About
    optional: bool = False

    @property
    def environ(self) -> str:
        """The name it has in the environment."""
        return "REDRIVE_" + self.path.upper().replace(".", "_").replace("-", "_")

    @property
    def takes(self) -> str:
        """The values it takes, in words."""
        if self.about.choices:
            return f"one of {', '.join(self.about.choices)}"
        noun = "a size such as '16MiB', or a number of bytes" if self.about.is_size else _NOUNS[self.kind]
        return f"{noun}{self._range()}{', or none' if self.optional else ''}"

    def _range(self) -> str:
        least, most = self.about.least, self.about.most
        if self.kind is str or least is None:
            return ""
        return f", {written(least)} or more" if most is None else f" from {written(least)} to {written(most)}"


_NOUNS: dict[type, str] = {
    str: "a text",
    int: "a whole number",
    bool: "true or false",
    timedelta: "a duration such as '250ms', '5s' or '1m30s'",
    tuple: "a list of texts (in the environment: with commas between them)",
}


class Described(Struct, frozen=True):
    """One setting as it stands: everything in words."""

    path: str
    environ: str
    value: str
    source: str  # `default`, `environment`, or the file
    default: str
    takes: str
    about: str


@cache
def keys() -> tuple[Key, ...]:
    """Every setting, in the order in which they stand above."""
    return tuple(_keys(Settings, ""))


def transport_key(name: str) -> Key:
    """The setting of the transport with that name."""
    return Key(f"transports.{name}", str, None, _TRANSPORT)


def describe(settings: Settings, sources: Mapping[str, str]) -> tuple[Described, ...]:
    """Every setting with its value and where it came from. Values are as they are: redact before showing."""
    extra = (transport_key(name) for name in settings.transports if name != "default")
    return tuple(_described(key, settings, sources) for key in (*keys(), *extra))


def written(value: object) -> str:
    """A value as it is written in a file or the environment."""
    match value:
        case None:
            return "none"
        case bool():
            return str(value).lower()
        case timedelta():
            return spoken(value)
        case tuple():
            return ",".join(map(str, value))
    return str(value)


def value_at(settings: Settings, path: str) -> Any:
    """The value of `admin.port` or `transports.default`."""
    value: Any = settings
    for name in path.split(".", 1):
        value = value[name] if isinstance(value, dict) else getattr(value, name)
    return value


def _described(key: Key, settings: Settings, sources: Mapping[str, str]) -> Described:
    value, source = value_at(settings, key.path), sources.get(key.path, "default")
    return Described(key.path, key.environ, written(value), source, written(key.default), key.takes, key.about.text)


def _keys(struct: type[Struct], prefix: str) -> Iterator[Key]:
    hints = get_type_hints(struct, include_extras=True)
    defaults = struct()
    for one in fields(struct):
        hint, default = hints[one.name], getattr(defaults, one.name)
        if isinstance(default, dict):
            yield from (Key(f"{one.name}.{name}", str, value, _TRANSPORT) for name, value in default.items())
        elif isinstance(default, Struct):
            yield from _keys(type(default), f"{one.name}.")
        else:
            yield _key(f"{prefix}{one.name}", hint, default)


def _key(path: str, hint: Any, default: Any) -> Key:
    kind, about = get_args(hint)[:2]
    optional = get_origin(kind) is UnionType
    kind = get_args(kind)[0] if optional else kind
    return Key(path, get_origin(kind) or kind, default, about, optional)
