"""Pure: what the name of an exception's type says, in whichever language it was thrown.

A name is read as words: `java.net.SocketTimeoutException` says "socket timeout". Some names say something by
convention only (`NullPointerException`, `ValueError`): these are general, and what a code says comes before them.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from redrive.flow.codes import (
    NETWORK,
    PERMANENT,
    PERMISSION,
    RESOURCE,
    TRANSIENT,
    VALIDATION,
    Code,
    Family,
    category_of,
)
from redrive.flow.words import compiled
from redrive.model import Category


class Named(NamedTuple):
    """What a name says. A general one gives way to a code, and to what caused it."""

    category: Category
    general: bool = False


_HUMPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|_")
_ENDING = re.compile(r" (?:exception|error|fault|failure|throwable)\Z")
_LONGEST = 300

_EXACT = {
    "org.apache.kafka.connect.errors.ConnectException": None,  # what Kafka Connect calls everything
    "System.InvalidOperationException": Named(PERMANENT, general=True),
    "asyncpg.exceptions.SerializationError": Named(TRANSIENT),  # of transactions, not of data
}
_GENERAL = {
    PERMANENT: """
        null pointer, null reference, class cast, invalid cast, class not found, no class def found, no such method,
        no such field, not implemented, arithmetic, divide by zero, zero division, stack overflow, recursion, type,
        attribute, name, reference, module not found, import, assertion, linkage, not found, file not found,
        no such file, directory not found, undefined table, undefined column, abstract method, panic, already exists,
        file exists, no such element, indentation, no result, no result found, multiple results found,
        empty result data access, bad sql grammar""",
    VALIDATION: """
        illegal argument, argument, argument null, argument out of range, index out of bounds, index out of range,
        index, array index out of bounds, string index out of bounds, value, key, lookup, key not found, format,
        number format, syntax, xml syntax, overflow, data, negative array size, unicode""",
    TRANSIENT: """
        interrupted, interrupt, cancelled, canceled, task cancelled, task canceled, operation canceled, cancellation,
        abort""",
    NETWORK: "eof, end of stream, http request",
}
_CONTENTION = r"""
    throttl|rate limit|rate exceeded|too many requests|slow down|deadlock|\block(?:ed|ing)?\b
    throughput exceeded|busy|overload|optimistic|concurren|conflict|circuit (?!breaking)|call not permitted
    stale
    rejected execution|not leader|leader not|rebalanc|coordinator|in progress|serialization failure
    commit failed|not enough replicas|write conflict|not writable|not primary|illegal generation
"""
_USED_UP = r"""
    out of memory|memory\Z|quota|exhausted|disk full|no space
    insufficient (?:memory|storage|space|capacity|resource|disk)|(?<!time )limit exceeded|too many|buffer
    circuit breaking|queue full
"""
_NOT_REACHED = r"""
    time ?out|timed out|time limit|deadline exceeded|connect\b|connection|connector|socket|unknown host
    host (?:unreachable|down|not found|connect)|ssl\b|tls\b|handshake|network|dns|unreachable|disconnect
    broken pipe|closed channel|premature|no http response|resource access|data access resource|certificate
    no route|endpoint|no node|server selection|auto reconnect
"""
_PASSING = r"""
    unavailable
"""
_REFUSED = r"""
    access denied|access control|un ?authori|forbidden|authenticat|authoriz|permission|credential
    security (?:exception|error)|privilege|expired token|token expired|signature
    login (?:failed|error|exception|required|denied)|not authorized|jwt\b|web token
"""
_BAD_INPUT = r"""
    (?:de)?serializ|validat|constraint|violation|pars(?:e|er|ing)\b|json (?:\w+ )?(?:exception|error)
    json (?:pars|decod|mapp|process)|malformed|invalid|mismatch|schema|decod|unmarshal
    mapping (?:exception|error)|conversion|not valid|not readable|too large|too long|integrity|duplicate
    unrecogni|corrupt|illegal (?:argument|format)|bad request|date ?time (?:pars|format)|unknown property
    missing (?:required|parameter|field|argument|value|request|path|header|property)|bad format
    unprocessable|data error
"""
_BUGS = r"""
    programming error|not supported|unsupported
"""
_WORDS: tuple[tuple[re.Pattern[str], Category], ...] = (
    (compiled(_CONTENTION), TRANSIENT),
    (compiled(_USED_UP), RESOURCE),
    (compiled(_NOT_REACHED), NETWORK),
    (compiled(_PASSING), TRANSIENT),
    (compiled(_REFUSED), PERMISSION),
    (compiled(_BAD_INPUT), VALIDATION),
    (compiled(_BUGS), PERMANENT),
)
_SOFT = compiled("transient|temporar|retr[iy]able")
"""Names of those who only say that it may pass: what they wrap, or their words, may say why."""


@lru_cache(maxsize=2048)
def read_name(name: str) -> Named | None:
    """What the name of a type says, with or without its package; None if it says nothing."""
    name = name[-_LONGEST:]
    if name in _EXACT:
        return _EXACT[name]
    words = spoken(_last(name))
    plain = _ENDING.sub("", words)
    if plain in _BY_NAME:
        return _BY_NAME[plain]
    category = category_of(Code(_last(name), Family.AWS))
    if category is None:
        category = next((category for pattern, category in _WORDS if pattern.search(words)), None)
    if category is not None:
        return Named(category)
    return Named(TRANSIENT, general=True) if _SOFT.search(words) else _by_ending(plain)


def spoken(name: str) -> str:
    """The words of a name: `ReadTimeoutError` says "read timeout error"."""
    return _HUMPS.sub(" ", name).lower()


def _last(name: str) -> str:
    """The name without its package: of `shop.Orders$NotPaid` it is `NotPaid`."""
    return re.split(r"[.$+/]", name.rstrip("$"))[-1].partition("`")[0]


def _by_ending(plain: str) -> Named | None:
    """`order not found` is what `not found` is: a name ends with what matters."""
    words = plain.split()
    endings = (" ".join(words[start:]) for start in range(1, len(words) - 1))
    return next((_BY_NAME[ending] for ending in endings if ending in _BY_NAME), None)


_BY_NAME = {
    " ".join(name.split()): Named(category, general=True)
    for category, names in _GENERAL.items()
    for name in names.split(",")
}
