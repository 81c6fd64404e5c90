"""Which cluster and index a URL means."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec
from msgspec import Struct

from redrive.config.durations import duration
from redrive.errors import ConfigError, MissingExtra, nearest

if TYPE_CHECKING:
    from opensearchpy import AsyncOpenSearch

DEFAULT_INDEX = "redrive"
DEFAULT_TIMEOUT = timedelta(seconds=10)
_EXAMPLE = "write it like opensearch://user:password@host:9200/redrive"
_INDEX = re.compile(r"[a-z0-9][a-z0-9._-]{0,200}", re.ASCII)
_HOST = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[^:\[\]\s/]+)(?::(?P<port>\d{1,5}))?")


class Options(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options that may follow the `?` of a URL."""

    timeout: timedelta = DEFAULT_TIMEOUT
    shards: int = 1  # of an index that we make
    replicas: int | None = None  # None: one where there are two machines, none where there is one
    ca: str | None = None  # a file with the certificate of whoever signed the cluster's
    verify: bool = True  # whether that is checked


class Address(Struct, frozen=True, kw_only=True):
    """The parts of a URL of a cluster."""

    hosts: tuple[tuple[str, int], ...]
    login: tuple[str, str] | None
    https: bool
    index: str
    options: Options


def connected(url: str) -> tuple[AsyncOpenSearch, str, Options]:
    """A client of that cluster, which speaks when it is first asked something; the index; the options."""
    address = parse_address(url)
    try:
        from opensearchpy import AsyncOpenSearch

        from redrive.stores.opensearch.connection import Connection, Serializer
    except ImportError:
        raise MissingExtra("opensearch://", "opensearch") from None
    client = AsyncOpenSearch(
        hosts=[{"host": host, "port": port} for host, port in address.hosts],
        http_auth=address.login,
        timeout=address.options.timeout.total_seconds(),
        connection_class=Connection,
        serializer=Serializer(),
        max_retries=len(address.hosts) - 1,  # on the next node; one that is alone is asked once
        **_encryption(address),
    )
    return client, address.index, address.options


def parse_address(url: str) -> Address:
    """Read the URL; ConfigError says what is wrong and how it is written."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise ConfigError(f"{_shown(url)} cannot be read ({error}): {_EXAMPLE}") from None
    login, _, hosts = parts.netloc.rpartition("@")
    index = unquote(parts.path.strip("/")) or DEFAULT_INDEX
    if not _INDEX.fullmatch(index):
        raise ConfigError(
            f"{index!r} cannot be the name of an index: lower-case letters, digits, `-`, `_` and `.`, a letter first"
        )
    return Address(
        hosts=tuple(_host(host, url) for host in hosts.split(",")),
        login=_login(login),
        https=parts.scheme.endswith("+https"),
        index=index,
        options=_options(parts.query),
    )


def _host(text: str, url: str) -> tuple[str, int]:
    found = _HOST.fullmatch(text)
    port = int(found["port"] or 9200) if found else 0
    if found is None or not 0 < port < 65536:
        raise ConfigError(f"{_shown(url)} names no host and port: {_EXAMPLE}")
    return found["host"].strip("[]"), port


def _login(text: str) -> tuple[str, str] | None:
    user, _, password = text.partition(":")
    return (unquote(user), unquote(password)) if text else None


def _options(query: str) -> Options:
    given: dict[str, Any] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in Options.__struct_fields__:
            raise ConfigError(f"opensearch:// has no option {name!r}{nearest(name, Options.__struct_fields__)}")
        given[name] = duration(value) if name == "timeout" else value
    try:
        options = msgspec.convert(given, Options, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"the options of opensearch:// cannot be read: {error}") from None
    if options.ca is not None and not Path(options.ca).exists():
        raise ConfigError(f"there is no file {options.ca!r}: `ca` is the certificate of whoever signed the cluster's")
    if not options.timeout:
        raise ConfigError("opensearch:// needs a `timeout` of more than nothing, such as 10s")
    if options.shards < 1 or (options.replicas or 0) < 0:
        raise ConfigError("opensearch:// needs `shards` of at least 1 and `replicas` of at least 0")
    return options


def _encryption(address: Address) -> dict[str, Any]:
    if not address.https:
        return {}
    check = address.options.verify
    return {"use_ssl": True, "verify_certs": check, "ca_certs": address.options.ca, "ssl_show_warn": False}


def _shown(url: str) -> str:
    """The URL without its password."""
    return repr(re.sub(r"//[^@/]*@", "//…@", url))
