"""What secrets travel in: each carrier makes the bytes of a body that holds one under a key."""

from __future__ import annotations

import json
from collections.abc import Callable
from urllib.parse import quote
from xml.sax.saxutils import escape, quoteattr

import msgspec

Carrier = Callable[[str, str], bytes]


def _line(value: str) -> str:
    """On one line, as environment files and options have it."""
    return value.replace("\n", "\\n")


def _sql(value: str) -> str:
    return "'" + _line(value).replace("'", "''") + "'"


def _json(key: str, value: str) -> str:
    return json.dumps({"id": 17, key: value, "name": "Ann", "items": [1, 2]})


def _nested(key: str, value: str) -> str:
    return json.dumps({"order": {"lines": [{"id": 1}, {"id": 2, "more": {key: value}}]}, "done": False}, indent=2)


def _in_string(key: str, value: str, levels: int) -> str:
    text = _json(key, value)
    for _ in range(levels):
        text = json.dumps({"id": 3, "payload": text})
    return text


def _multipart(key: str, value: str) -> str:
    head = '--b0undary\r\nContent-Disposition: form-data; name="user"\r\n\r\nann\r\n'
    part = f'--b0undary\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n--b0undary--\r\n'
    return head + part


def _trace(key: str, value: str) -> str:
    said = f"{key}: {_line(value)}"
    return (
        'Traceback (most recent call last):\n  File "/srv/shop/pay.py", line 41, in charge\n'
        f"    raise RuntimeError({said!r})\nRuntimeError: {said}\n"
    )


def _chained(key: str, value: str) -> str:
    return (
        f'Traceback (most recent call last):\n  File "/srv/a.py", line 3, in f\n    connect({key}={_line(value)!r})\n'
        f"ValueError: refused\n\nDuring handling of the above exception, another exception occurred:\n\n"
        f"{_trace(key, value)}"
    )


def _proto(key: str, value: str) -> bytes:
    """Fields with tags and lengths, as protobuf has them: bytes that are no text."""
    name, data = key.encode(), value.encode()
    return (
        b"\x00\x08\x96\x01\xff\xfe" + bytes((10, len(name))) + name + bytes((18, len(data) % 128)) + data + b"\x00\x93"
    )


CARRIERS: dict[str, Carrier] = {
    "JSON": lambda key, value: _json(key, value).encode(),
    "JSON, nested and indented": lambda key, value: _nested(key, value).encode(),
    "JSON in a string": lambda key, value: _in_string(key, value, 1).encode(),
    "JSON in a string in a string": lambda key, value: _in_string(key, value, 2).encode(),
    "JSON, a name beside a value": lambda key, value: json.dumps([{"name": key, "value": value}, {"x": 1}]).encode(),
    "JSON, a value before its name": lambda key, value: json.dumps([{"value": value, "name": key}]).encode(),
    "JSON, cut off": lambda key, value: (_json(key, value)[: -len(', "items": [1, 2]}')] + ', "items": [').encode(),
    "JSON, cut off in the value": lambda key, value: ('{"id": 1, ' + json.dumps({key: value})[1:-2]).encode(),
    "JSON, large": lambda key, value: json.dumps({"fill": ["word"] * 900, key: value, "z": [0] * 900}).encode(),
    "query": lambda key, value: f"/login?user=ann&{key}={quote(value, safe='')}&next=%2Fhome".encode(),
    "form": lambda key, value: f"{key}={quote(value, safe='')}&user=ann".encode(),
    "multipart": lambda key, value: _multipart(key, value).encode(),
    "XML element": lambda key, value: f"<u><id>7</id><{key}>{escape(value)}</{key}><n>Ann</n></u>".encode(),
    "XML attribute": lambda key, value: f"<user id='7' {key}={quoteattr(value)} n='Ann'/>".encode(),
    "YAML": lambda key, value: f"user: ann\ndb:\n  host: x\n  {key}: {json.dumps(value)}\n  port: 1\n".encode(),
    "YAML, plain": lambda key, value: f"user: ann\ndb:\n  {key}: {_line(value)}\n  port: 1\n".encode(),
    "TOML": lambda key, value: f'[db]\nhost = "x"\n"{key}" = {json.dumps(value)}\nport = 1\n'.encode(),
    "environment": lambda key, value: f"HOME=/root\nexport {key}={_line(value)}\nLANG=C\n".encode(),
    "properties": lambda key, value: f"[db]\nhost = x\n{key} = {_line(value)}\nport = 1\n".encode(),
    "log line, key: value": lambda key, value: f"12:00:01 WARN login failed, {key}: {_line(value)} (ann)".encode(),
    "log line, key=value": lambda key, value: f"12:00:01 WARN failed user=ann {key}={_line(value)} try=3".encode(),
    "log line, key='value'": lambda key, value: f"WARN failed user='ann' {key}={_line(value)!r} try=3".encode(),
    "option": lambda key, value: f"exit 1: /bin/run --verbose --{key} {_line(value)} --try 3".encode(),
    "option with =": lambda key, value: f"exit 1: /bin/run --verbose --{key}={_line(value)} --try 3".encode(),
    "list of arguments": lambda key, value: repr(["run", f"--{key}", _line(value), "--try", "3"]).encode(),
    "=>": lambda key, value: f"array('user' => 'ann', '{key}' => {json.dumps(value)}, 'n' => 1)".encode(),
    ":=": lambda key, value: f"user := ann {key} := {_line(value)}\n".encode(),
    "Python dict": lambda key, value: repr({"id": 3, key: value, "n": None}).encode(),
    "Python call": lambda key, value: f"Login(user='ann', {key.replace('-', '_')}={value!r}, n=3)".encode(),
    "stack trace": lambda key, value: _trace(key, value).encode(),
    "stack trace with a cause": lambda key, value: _chained(key, value).encode(),
    "header line": lambda key, value: f"POST / HTTP/1.1\r\nHost: x\r\n{key}: {_line(value)}\r\nX-N: 1\r\n".encode(),
    "Rust": lambda key, value: f'Config {{ user: "ann", {key}: Some({json.dumps(value)}), n: 1 }}'.encode(),
    "PHP, var_dump": lambda key, value: (
        f'array(2) {{\n  ["{key}"]=>\n  string(9) {json.dumps(value)}\n  ["n"]=>\n  int(1)\n}}'.encode()
    ),
    "XML, a name beside a value": lambda key, value: (
        f"<p><name>{key}</name><value>{escape(value)}</value></p>".encode()
    ),
    "SQL, a row": lambda key, value: (
        f"INSERT INTO t (id, \"{key}\", n) VALUES (1, 'a', 2), (7, {_sql(value)}, 3);".encode()
    ),
    "SQLAlchemy": lambda key, value: (
        f'IntegrityError\n[SQL: INSERT INTO t (id, "{key}") VALUES (?, ?)]\n[parameters: {(7, value)!r}]\n(x)'.encode()
    ),
    "FastAPI": lambda key, value: json.dumps(
        {"detail": [{"type": "too_short", "loc": ["body", key], "msg": "Too short", "input": value}]}
    ).encode(),
    "percent-encoded twice": lambda key, value: f"/go?next={quote(quote(f'/x?{key}={quote(value)}&n=1'))}".encode(),
    "MessagePack": lambda key, value: msgspec.msgpack.encode({"id": 7, key: value, "n": [1, 2]}),
    "other binary": _proto,
    "UTF-16": lambda key, value: _json(key, value).encode("utf-16"),
    "UTF-16 without a mark": lambda key, value: f"user=ann {key}={_line(value)} n=1".encode("utf-16-le"),
}
FOR_LOOKS: dict[str, Carrier] = {
    "prose": lambda key, value: f"He wrote that {_line(value)} is the one, and left.".encode(),
    "list": lambda key, value: json.dumps(["a", value, 3]).encode(),
    "CSV": lambda key, value: f"id,name,{key}\n7,Ann,{_line(value)}\n".encode(),
}
"""Only for what is known by its looks: there is no key that would tell."""


def forms(piece: str) -> list[str]:
    """How a piece of a secret may be seen in what is shown."""
    once = json.dumps(piece)[1:-1]
    twice = json.dumps(once)[1:-1]
    as_hex = [piece.encode(code).hex(" ") for code in ("utf-8", "utf-16-le")]
    return [
        piece,
        quote(piece, safe=""),
        escape(piece),
        quoteattr(piece)[1:-1],
        once,
        twice,
        repr(piece)[1:-1],
        *as_hex,
    ]


_WINDOW = 8


def is_seen(shown: str, hidden: tuple[str, ...]) -> bool:
    """Whether ten characters in a row of it can be read (of a shorter one, all)."""
    return any(_any_window(shown, form) for piece in hidden for form in forms(piece))


def _any_window(shown: str, form: str) -> bool:
    size = _WINDOW * 3 if form[2:3] == " " and form[5:6] == " " else _WINDOW
    return any(form[at : at + size] in shown for at in range(0, max(1, len(form) - size + 1), 3))
