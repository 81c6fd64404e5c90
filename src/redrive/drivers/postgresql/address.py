"""What a URL of PostgreSQL means.

    postgresql://user:password@host:5432/database         one server; `postgres://` is the same
    postgresql://host1:5432,host2:5432/database           several: whichever takes writes is used

Options of ours in the URL:

    schema     where our tables are, `redrive` by default
    pool_size  how many connections at most, 10
    timeout    seconds to wait for an answer, 30
    checks     `off`: run on a server that could lose what it is given
    prepare    `on`: keep prepared statements, which is faster; not behind PgBouncer
    direct     behind PgBouncer: `host:port` of the server itself, for what needs a session (LISTEN); `off`: none

The others are libpq's own, like `sslmode` and `connect_timeout`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from msgspec import Struct
from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Conninfo

from redrive.errors import ConfigError, nearest

SCHEMES = ("postgresql", "postgres")
_OURS = ("schema", "pool_size", "timeout", "checks", "prepare", "direct")
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}", re.ASCII)
_PLACE = re.compile(r"(?P<host>[^\s/:]+|\[[0-9a-fA-F:]+\])(:(?P<port>\d{1,5}))?", re.ASCII)
_MOST_CONNECTIONS = 1000


class Address(Struct, frozen=True):
    """The parts of a URL of PostgreSQL."""

    parameters: dict[str, Any]  # as libpq takes them
    direct: dict[str, Any] | None  # the same for a connection that keeps its session; None: there is none
    shown: str  # for people: without password and options
    schema: str
    pool_size: int
    patience: float  # seconds until a server that does not answer is unavailable
    checks: bool
    prepare: bool


def address_of(url: str) -> Address:
    """What that URL means; ConfigError says what is wrong with it."""
    scheme, _, _ = url.partition("://")
    if scheme not in SCHEMES:
        raise ConfigError(f"{scheme}:// is no PostgreSQL: write {', '.join(f'{name}://' for name in SCHEMES)}")
    options, parameters = _split(url)
    schema = options.get("schema", "redrive")
    if not _SCHEMA.fullmatch(schema) or schema.startswith("pg_"):
        raise ConfigError(
            f"schema={schema!r} in a URL of PostgreSQL: it has lower-case letters, digits and _, at most 63, "
            "and does not begin with a digit or pg_"
        )
    return Address(
        parameters=parameters,
        direct=_direct(options.get("direct"), parameters),
        shown=_shown(parameters),
        schema=schema,
        pool_size=int(_number(options, "pool_size", 10, _MOST_CONNECTIONS)),
        patience=_number(options, "timeout", 30.0, 86_400.0),
        checks=_switch(options, "checks", "on"),
        prepare=_switch(options, "prepare", "off"),
    )


def _split(url: str) -> tuple[dict[str, str], dict[str, Any]]:
    """Our options, and the parameters of libpq."""
    try:
        parts = urlsplit(url)
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError as error:
        raise ConfigError(f"the URL of PostgreSQL cannot be used: {error}") from None
    theirs = [option.keyword.decode() for option in Conninfo.get_defaults()]
    for name, _ in pairs:
        if name not in (*_OURS, *theirs):
            raise ConfigError(f"unknown option {name!r} in a URL of PostgreSQL{nearest(name, (*_OURS, *theirs))}")
    plain = urlencode([pair for pair in pairs if pair[0] not in _OURS], quote_via=quote)
    try:
        found = conninfo_to_dict(urlunsplit((parts.scheme, parts.netloc, parts.path, plain, "")))
    except ProgrammingError as error:
        raise ConfigError(f"the URL of PostgreSQL cannot be used: {str(error).strip()}") from None
    for port in str(found.get("port") or "5432").split(","):
        if not port.isascii() or not port.isdigit() or not 0 < int(port) < 1 << 16:
            raise ConfigError(f"the URL of PostgreSQL cannot be used: {port!r} is no port")
    return {name: value for name, value in pairs if name in _OURS}, _with_defaults(found)


def _with_defaults(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """A server that is gone without a word is noticed; of several, the one that takes writes is used."""
    several = "," in str(parameters.get("host") or "")
    return {
        "connect_timeout": "5",
        "keepalives_idle": "30",
        "keepalives_interval": "5",
        "keepalives_count": "3",
        "application_name": "redrive",
        **({"target_session_attrs": "read-write"} if several else {}),
        **parameters,
    }


def _direct(wanted: str | None, parameters: Mapping[str, Any]) -> dict[str, Any] | None:
    if wanted is None:
        return dict(parameters)
    if wanted == "off":
        return None
    place = _PLACE.fullmatch(wanted)
    if place is None:
        raise ConfigError(f"direct={wanted!r} in a URL of PostgreSQL: it is host:port of the server itself, or off")
    return {**parameters, "host": place["host"].strip("[]"), "port": place["port"] or "5432"}


def _number(options: Mapping[str, str], name: str, default: float, most: float) -> float:
    text = options.get(name, str(default))
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= most or (isinstance(default, int) and not number.is_integer()):
        raise ConfigError(f"{name}={text!r} in a URL of PostgreSQL: it is a number above 0, {most:g} at most")
    return number


def _switch(options: Mapping[str, str], name: str, default: str) -> bool:
    text = options.get(name, default)
    if text not in ("on", "off"):
        raise ConfigError(f"{name}={text!r} in a URL of PostgreSQL: it is on or off")
    return text == "on"


def _shown(parameters: Mapping[str, Any]) -> str:
    hosts = str(parameters.get("host") or "localhost").split(",")
    ports = str(parameters.get("port") or "5432").split(",")
    ports = ports if len(ports) == len(hosts) else ports[:1] * len(hosts)
    places = ",".join(f"{host}:{port or 5432}" for host, port in zip(hosts, ports, strict=True))
    return f"postgresql://{places}/{parameters.get('dbname') or ''}"
