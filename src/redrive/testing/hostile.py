"""Hostile messages: what strangers, bugs and attackers put into bodies, headers, keys and ids. Seeded, so that the same
number is the same message in every run.

    for case in hostile(seed=14, count=1000):
        await transport.send([case.message("orders")])

Every id is another, so that what became of each message can be counted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from random import Random
from typing import TypeAlias

from msgspec import Struct

from redrive.model import Headers, Message
from redrive.testing.clock import START

Make: TypeAlias = Callable[[Random], bytes]
_LEVELS = (2, 60, 101, 256, 257, 400, 800, 950, 980, 990, 997, 1000, 1001, 3000)
_ODD = (
    "\0",
    "\x1b[2J",
    "\u202etxt",
    "\ufeff",
    "é\u0301",
    "🦄",
    "a\nb",
    "a\r\nb",
    "../../etc",
    "$where",
    "a.b",
    "%s%n",
    "{0}",
)
_OURS = (
    *("redrive-message", "redrive", "redrive-failures", "redrive-letter", "redrive-replay", "redrive-retries"),
    *("redrive-after", "redrive-dead", "redrive-amqp", "redrive-tombstone", "redrive-dlq-form", "redrive-original"),
    *("kafka_dlt-exception-message", "kafka_dlt-original-offset", "kafka_dlt-original-timestamp"),
    *("__connect.errors.exception.message", "__connect.errors.offset"),
)
"""Names that Redrive and the readers of `collect` look at: what stands there may be a lie."""
_TYPES = (b"application/json", b"application/x-protobuf", b"text/plain; charset=utf-16", b"\xff", b"")


class Hostile(Struct, frozen=True):
    """One message that means no good."""

    kind: str
    id: str
    body: bytes
    headers: Headers
    key: bytes | None

    def message(self, source: str, at: datetime = START) -> Message:
        return Message(self.id, source, self.body, at, self.headers, self.key)


def hostile(seed: int, count: int, *, largest: int = 1 << 20, names: Sequence[str] = ()) -> Iterator[Hostile]:
    """So many of them.

    largest   the bytes that a body has at most; most are small
    names     of headers that code of yours reads, and that may hold a lie
    """
    for number in range(count):
        rng = Random(f"{seed}/{number}")
        kind = rng.choice(list(_BODIES))
        body = _BODIES[kind](rng)
        yield Hostile(kind, _id(rng, number), body[:largest], _headers(rng, number, (*_OURS, *names)), _key(rng))


# -- bodies ------------------------------------------------------------------------------------------------------------


def _levels(rng: Random) -> int:
    return rng.choice(_LEVELS) if rng.random() < 0.99 else rng.choice((100_000, 100_000, 500_000))


def _arrays(rng: Random) -> bytes:
    levels = _levels(rng)
    return b"[" * levels + b"]" * levels


def _objects(rng: Random) -> bytes:
    levels = _levels(rng)
    return b'{"a":' * levels + b"1" + b"}" * levels


def _mixed(rng: Random) -> bytes:
    levels = _levels(rng)
    opened = [rng.choice(("[", '{"b":')) for _ in range(min(levels, 20_000))]
    closed = "".join("]" if mark == "[" else "}" for mark in reversed(opened))
    return f"{''.join(opened)}null{closed}".encode()


def _deep_ticket(rng: Random) -> bytes:
    return b'{"ticket_id":"t-%d","task_type":"BUILD","password":"hunter2","deep":%s}' % (
        rng.randrange(1 << 60),
        _arrays(rng),
    )


def _unclosed(rng: Random) -> bytes:
    return rng.choice((b"[", b'{"a":', b'[{"', b'"\\')) * _levels(rng)


def _numbers(rng: Random) -> bytes:
    odd = (
        "NaN",
        "-Infinity",
        "1e400",
        "-1e-400",
        "9" * 5000,
        "0." + "3" * 500,
        "1.0",
        "-0",
        "1E+2",
        "18446744073709551616",
    )
    return f'{{"n":{rng.choice(odd)},"m":[{rng.choice(odd)},{rng.choice(odd)}]}}'.encode()


def _surrogates(rng: Random) -> bytes:
    odd = ('"\\ud800"', '"\\udfff\\ud800"', '"\\u0000"', '"\\ud83d\\ude00"', '{"\\udead":1}', '["\\u202e\\u001b"]')
    return rng.choice(odd).encode()


def _repeated_keys(rng: Random) -> bytes:
    pairs = ",".join(f'"{rng.choice("abc")}":{rng.randrange(9)}' for _ in range(rng.randrange(2, 2000)))
    return f'{{{pairs},"ticket_id":1,"ticket_id":"two"}}'.encode()


def _bom(rng: Random) -> bytes:
    return '\ufeff{"a": "b"}'.encode(rng.choice(("utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")))


def _truncated(rng: Random) -> bytes:
    whole = json.dumps({"name": "grüße 🦄 " * 20, "card": "4111 1111 1111 1111"}, ensure_ascii=False).encode()
    return whole[: rng.randrange(1, len(whole))]


def _bad_utf8(rng: Random) -> bytes:
    return b'{"a":"' + rng.choice((b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80", b"\xe2\x82")) + b'"}'


def _long(rng: Random) -> bytes:
    size = 1 << 20 if rng.random() < 0.1 else rng.randrange(1, 70_000)
    return (
        rng.choice((b'"%s"', b'{"password":"%s"}', b"%s"))
        % (rng.choice((b"x", b"\\n", b"[1],", b"a=b&")) * size)[:size]
    )


def _controls(rng: Random) -> bytes:
    return "".join(rng.choice(_ODD) for _ in range(rng.randrange(1, 50))).encode()


def _noise(rng: Random) -> bytes:
    return rng.randbytes(rng.randrange(0, 2000))


def _packed(rng: Random) -> bytes:
    """The beginnings of MessagePack and protobuf that promise more than there is."""
    return rng.choice(
        (b"\xdd\xff\xff\xff\xff", b"\x91" * 2000, b"\xc9\xff\xff\xff\xff\x01", b"\x0a\xff\xff\xff\x7f", b"\x0b" * 500)
    )


def _nearly(rng: Random) -> bytes:
    """What ends like what we expect, and is not quite it."""
    odd = (
        *(b"null", b"[]", b"{}", b'"text"', b"1", b"", b" ", b'{"ticket_id":null}', b'{"ticket_id":""}'),
        *(b'{"ticket_id":1e3}', b'{"ticket_id":{}}', b'{"a":1}{"b":2}', b"{'a': 1}", b'{"dlq_metadata":{}}'),
        *(b'{"dlq_metadata":{"retry_count":-1,"last_failure_timestamp":1e308,"error_type":[]},"ticket_id":"x"}',),
        *(b'{"task":{},"repos":[]}', b'{"task":[],"repos":"x"}', b'{"task":{"a":1.0},"repos":[1]}', b'{"task":null}'),
        *(
            b'{"_id":1,"_store":2,"redrive":3,"$set":{"a.b":1}}',
            b'{"__proto__":{"a":1}}',
            b'{"redrive":{"native":"!"}}',
        ),
    )
    return rng.choice(odd)


def _yaml(rng: Random) -> bytes:
    return rng.choice(
        (b"a: &a [*a]", b"&a {b: *a}", b"!!python/object/apply:os.system [ls]", b"a: &a [x]\nb: [*a, *a]")
    )


_BODIES: dict[str, Make] = {
    "arrays": _arrays,
    "objects": _objects,
    "mixed": _mixed,
    "deep ticket": _deep_ticket,
    "unclosed": _unclosed,
    "numbers": _numbers,
    "surrogates": _surrogates,
    "repeated keys": _repeated_keys,
    "BOM": _bom,
    "truncated": _truncated,
    "bad UTF-8": _bad_utf8,
    "long": _long,
    "controls": _controls,
    "noise": _noise,
    "packed": _packed,
    "nearly": _nearly,
    "YAML": _yaml,
}


# -- what travels with them ------------------------------------------------------------------------------------------


def _id(rng: Random, number: int) -> str:
    """Unlike any other."""
    return f"{rng.choice(('', *_ODD, 'x' * 300, 'orders[0]@'))}case-{number}"


def _key(rng: Random) -> bytes | None:
    return rng.choice((None, None, b"", b"k", b"\0", b"\xff\xfe", b"k" * 3000, "schlüssel".encode()))


def _headers(rng: Random, number: int, read: Sequence[str]) -> Headers:
    chosen = [_header(rng, number, read) for _ in range(rng.choice((0, 0, 1, 1, 2, 5)))]
    return tuple(chosen + chosen[:1] if rng.random() < 0.2 else chosen)


def _header(rng: Random, number: int, read: Sequence[str]) -> tuple[str, bytes]:
    if rng.random() < 0.5:
        return rng.choice(read), _lie(rng, number)
    names = ("", " ", "content-type", "x" * 300, "ключ", "🦄", "a\nb", "x-death", "traceparent", "password")
    values = (
        b"",
        b"\0",
        b"\xff\xfe",
        b"v" * 5000,
        "wert ü".encode(),
        rng.choice(_TYPES),
        _numbers(rng),
        b"\x1b]0;x\x07",
    )
    return rng.choice(names), rng.choice(values)


def _lie(rng: Random, number: int) -> bytes:
    """What one of our own headers could say, and should not."""
    deep = b"[" * rng.choice((300, 990, 3000))
    id, at = f"lie-{number}", rng.choice((0, -1, 1, 10**17, 10**30, "x", None))
    texts: tuple[object, ...] = (
        {"id": id, "at": at, "attempt": rng.choice((1, 0, -5, 10**9))},
        {"id": id, "at": 1, "expires": rng.choice((1, 10**18, -1)), "tenant": "\u202e"},
        {"id": id, "at": 1, "pairs": [["", "//"]], "priority": 10**12},
        {"letter": {}},
        [[], [], []],
    )
    return rng.choice(
        (json.dumps(rng.choice(texts)).encode(), b'{"id":"%s","z":' % id.encode() + deep, deep, _noise(rng), b"")
    )
