"""Redis as our backends see it: opened by a URL, its scripts run by name, its errors translated.

    redis://host:6379/0      one server             rediss://…          the same over TLS
    redis+cluster://host     a Redis Cluster        rediss+cluster://…  the same over TLS

Options of ours in the URL: `prefix` (of every key, `redrive` by default), `checks=off` (run on a server that could
lose what it is given), `mirror` (keep the ids of queues under BullMQ's names too: `mirror=bull`) and `socket_timeout`
(seconds to wait for an answer). The others are redis-py's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from msgspec import Struct

from redrive.errors import ConfigError, MissingExtra, Unavailable, nearest

try:
    from redis import exceptions
    from redis.asyncio import Redis, RedisCluster
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
except ImportError as error:
    raise MissingExtra("Redis", "redis") from error

SCHEMES = ("redis", "rediss", "redis+cluster", "rediss+cluster")
OLDEST = (7, 0)
"""Since 7.0 a script can say that it may run when memory is full: settling has to go on then (decision 13)."""
LONGEST_WAIT = 5.0
_PATIENCE = 5.0
_OURS = ("prefix", "checks", "mirror", "socket_timeout")
_THEIRS = (
    *("db", "username", "password", "client_name", "protocol", "max_connections", "health_check_interval"),
    *("socket_connect_timeout", "socket_keepalive"),
    *("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile", "ssl_password", "ssl_cert_reqs"),
    *("ssl_check_hostname", "ssl_min_version", "ssl_ciphers"),
)
Value: TypeAlias = bytes | str | int | float
Command: TypeAlias = Sequence[Value]


class Address(Struct, frozen=True):
    """The parts of a URL of Redis."""

    url: str  # as redis-py takes it
    shown: str  # for people: without password and options
    cluster: bool
    prefix: str
    checks: bool
    mirror: str | None  # what the mirror of a queue begins with; empty: there is to be none; None: as it is
    patience: float  # seconds until a server that does not answer is unavailable


class Script(Struct, frozen=True):
    """A Lua file that runs on the server."""

    name: str
    text: str
    sha: str


class Doubt(Struct, frozen=True):
    """Why a server is not to be trusted with messages, and the line that mends it."""

    text: str
    mend: str


@cache
def script(package: str, name: str, shared: str | None = None) -> Script:
    """`script("redrive.transports.redis", "fetch")` is that package's lua/fetch.lua.

    What scripts have in common can stand in a file of its own, which is put below the first line of each.
    """
    flags, _, rest = _lua(package, name).partition("\n")
    text = "\n".join((flags, *([_lua(package, shared)] if shared else ()), rest))
    return Script(name, text, sha1(text.encode(), usedforsecurity=False).hexdigest())


def _lua(package: str, name: str) -> str:
    return files(package).joinpath("lua", f"{name}.lua").read_text("utf-8")


def address_of(url: str) -> Address:
    """What that URL means; ConfigError says what is wrong with it."""
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        raise ConfigError(f"{parts.scheme}:// is no Redis: write {', '.join(f'{scheme}://' for scheme in SCHEMES)}")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name in options:
        if name not in (*_OURS, *_THEIRS):
            raise ConfigError(f"unknown option {name!r} in a URL of Redis{nearest(name, (*_OURS, *_THEIRS))}")
    prefix, checks = options.pop("prefix", "redrive"), options.pop("checks", "on")
    mirror = options.pop("mirror", None)
    if not prefix or set(prefix) & set("{}"):
        raise ConfigError(f"prefix={prefix!r} in a URL of Redis: it is not empty, and has no braces")
    if checks not in ("on", "off"):
        raise ConfigError(f"checks={checks!r} in a URL of Redis: it is on or off")
    scheme, _, kind = parts.scheme.partition("+")
    if mirror and kind == "cluster":
        raise ConfigError(f"mirror={mirror!r} in a URL of Redis: a cluster cannot keep it, its keys are on other nodes")
    try:
        patience = float(options.pop("socket_timeout", _PATIENCE))
        place = f"{parts.hostname or 'localhost'}:{parts.port or 6379}"
    except ValueError as error:
        raise ConfigError(f"the URL of Redis cannot be used: {error}") from None
    return Address(
        url=urlunsplit((scheme, parts.netloc, parts.path, urlencode(options), "")),
        shown=f"{parts.scheme}://{place}{parts.path}",
        cluster=kind == "cluster",
        prefix=prefix,
        checks=checks == "on",
        mirror=mirror,
        patience=patience,
    )


class Link:
    """Connections to one Redis or Redis Cluster. Whatever goes wrong is raised as `unavailable`.

    Nothing is tried twice by itself: a command that was sent may have been carried out.
    """

    def __init__(self, url: str, *, unavailable: type[Unavailable] = Unavailable) -> None:
        self.address = address_of(url)
        self._unavailable = unavailable
        self._client = self._open()
        self._is_trusted = not self.address.checks
        self._was_trusted = False

    async def command(self, *command: Value) -> Any:
        """Run a command; its answer is as redis-py gives it, texts as bytes."""
        async with self._ours():
            return await self._client.execute_command(*command)

    async def commands(self, commands: Sequence[Command]) -> list[Any]:
        """Run commands in one round trip (on a cluster, all at once); the answers are in their order."""
        async with self._ours():
            if self.address.cluster:
                return list(await asyncio.gather(*(self._client.execute_command(*command) for command in commands)))
            async with self._client.pipeline(transaction=False) as pipeline:
                for command in commands:
                    pipeline.execute_command(*command)
                answers: list[Any] = await pipeline.execute()
                return answers

    async def run(self, script: Script, keys: Sequence[Value], arguments: Sequence[Value] = ()) -> Any:
        """Run a script. A server that has forgotten it is given it again."""
        async with self._ours():
            try:
                return await self._client.execute_command("EVALSHA", script.sha, len(keys), *keys, *arguments)
            except exceptions.NoScriptError:
                return await self._client.execute_command("EVAL", script.text, len(keys), *keys, *arguments)

    async def run_all(self, script: Script, calls: Sequence[tuple[Sequence[Value], Sequence[Value]]]) -> list[Any]:
        """The same script with these keys and arguments, in one round trip. One that may be run twice: if the server
        has forgotten it, all of them are run again."""
        if len(calls) == 1 or self.address.cluster:
            return list(await asyncio.gather(*(self.run(script, *call) for call in calls)))
        wanted = [("EVALSHA", script.sha, len(keys), *keys, *more) for keys, more in calls]
        try:
            return await self.commands(wanted)
        except self._unavailable as error:
            if not isinstance(error.__cause__, exceptions.NoScriptError):
                raise
        await self.command("SCRIPT", "LOAD", script.text)
        return await self.commands(wanted)

    async def run_after(
        self, bells: Sequence[Value], script: Script, keys: Sequence[Value], arguments: Sequence[Value] = ()
    ) -> Any:
        """Wait until something is pushed to one of those lists, `LONGEST_WAIT` at most, take it, and run the script. On
        one server both are sent at once, and nothing comes back in between."""
        waiting = "BLPOP", *bells, f"{LONGEST_WAIT:.3f}"
        if self.address.cluster:
            async with self._ours(LONGEST_WAIT):
                await self._client.execute_command(*waiting)
            return await self.run(script, keys, arguments)
        async with self._ours(LONGEST_WAIT), self._client.pipeline(transaction=False) as pipeline:
            pipeline.execute_command(*waiting)
            pipeline.execute_command("EVALSHA", script.sha, len(keys), *keys, *arguments)
            waited, answer = await pipeline.execute(raise_on_error=False)
            for part in (waited, answer):
                if isinstance(part, Exception) and not isinstance(part, exceptions.NoScriptError):
                    raise part
        return await self.run(script, keys, arguments) if isinstance(answer, Exception) else answer

    async def infos(self) -> dict[str, Mapping[str, Any]]:
        """The INFO of each server, by its address."""
        async with self._ours():
            if not self.address.cluster:
                return {self.address.shown: await self._client.info()}
            return dict(await self._client.info(target_nodes=RedisCluster.PRIMARIES))

    async def trust(self) -> None:
        """Raise ConfigError if a server is set up so that it can lose messages. Asked once, and again after each loss
        of a connection, because what comes back may be another server: then it is unavailable until it is mended."""
        if self._is_trusted:
            return
        for place, info in (await self._facts()).items():
            for doubt in doubts(info):
                why = f"{doubt.text}: {doubt.mend} (to run on it all the same, add `checks=off` to its URL)"
                raise self._unavailable(place, f"it {why}") if self._was_trusted else ConfigError(f"{place} {why}")
        self._is_trusted = self._was_trusted = True

    async def _facts(self) -> dict[str, dict[str, Any]]:
        """The INFO of each server, and how it writes its file, where it says so: who runs it may forbid to ask."""
        infos = {place: dict(info) for place, info in (await self.infos()).items()}
        for place, info in infos.items():
            with suppress(exceptions.ResponseError):
                info.update(await self._config(place, "appendfsync"))
        return infos

    async def _config(self, place: str, name: str) -> Mapping[str, Any]:
        async with self._timed():
            if not self.address.cluster:
                return dict(await self._client.config_get(name))
            node = self._client.get_node(node_name=place)
            return {} if node is None else dict(await self._client.config_get(name, target_nodes=node))

    async def aclose(self) -> None:
        """Close every connection; harmless when done twice."""
        if not self.address.cluster:
            await self._client.connection_pool.disconnect(inuse_connections=True)  # ends what is blocked
        await self._client.aclose()

    def _open(self) -> Any:
        # the time is ours to keep: with a socket_timeout, redis-py writes by asyncio.wait_for, which in Python 3.11 can
        # swallow a cancellation, and a worker that is told to stop would go on
        options: dict[str, Any] = {"retry": Retry(NoBackoff(), 0), "protocol": 2, "socket_timeout": None}
        opener: Any = RedisCluster if self.address.cluster else Redis
        with _config():
            return opener.from_url(self.address.url, **options)

    @asynccontextmanager
    async def _ours(self, wait: float = 0.0) -> AsyncIterator[None]:
        try:
            async with self._timed(wait):
                yield
        except (exceptions.RedisError, exceptions.RedisClusterException) as error:
            if isinstance(error, exceptions.ConnectionError):
                self._doubt()
            raise self._unavailable(self.address.shown, _why(error)) from error

    @asynccontextmanager
    async def _timed(self, wait: float = 0.0) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(wait + self.address.patience):
                yield
        except TimeoutError as error:
            self._doubt()
            raise self._unavailable(self.address.shown, f"no answer within {self.address.patience:g} s") from error
        except OSError as error:
            self._doubt()
            raise self._unavailable(self.address.shown, _why(error)) from error

    def _doubt(self) -> None:
        """What answers next may be another server, or the same one with another configuration."""
        self._is_trusted = not self.address.checks


def doubts(info: Mapping[str, Any]) -> Iterator[Doubt]:
    """Why a server is unfit for messages, by what its INFO says."""
    version = str(info.get("redis_version", ""))
    if _numbers(version) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        yield Doubt(f"is Redis {version}, which cannot settle when its memory is full", f"use Redis {oldest} or newer")
    policy = str(info.get("maxmemory_policy", "noeviction"))
    if policy != "noeviction":
        yield Doubt(
            f"throws keys away when its memory is full (maxmemory-policy {policy})",
            "put `maxmemory-policy noeviction` into redis.conf",
        )
    if not int(info.get("aof_enabled", 1)):
        yield Doubt("forgets what came last when it is killed (appendonly no)", "put `appendonly yes` into redis.conf")
    elif info.get("appendfsync") == "no":
        yield Doubt(
            "forgets the last half minute when its machine loses power (appendfsync no)",
            "put `appendfsync everysec` into redis.conf",
        )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _why(error: BaseException) -> str:
    """The reason of an error, and what to do where something can be done."""
    text = str(error) or type(error).__name__
    match error:
        case exceptions.OutOfMemoryError():
            return f"its memory is full, so it takes nothing new: raise `maxmemory`, or drain its queues ({text})"
        case exceptions.AuthenticationError() | exceptions.NoPermissionError():
            return f"it refuses us: correct user and password in the URL, or the user's rights ({text})"
        case exceptions.ReadOnlyError():
            return f"it is a replica: name the primary in the URL ({text})"
    return text


@contextmanager
def _config() -> Iterator[None]:
    try:
        yield
    except (ValueError, TypeError) as error:
        raise ConfigError(f"the URL of Redis cannot be used: {error}") from None
