"""Python values as JSON and back: what JSON has no type for is written as people read it, and its kind beside it.

    {"when": datetime(2030, 1, 1)}  ->  {"when": "2030-01-01T00:00:00"} and {"/when": "datetime"}

The kinds are kept by JSON pointers. A value that somebody has changed meanwhile, so that its kind does not fit it, is
read as JSON has it.
"""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Any, TypeAlias
from uuid import UUID

import msgspec

from redrive.systems.workflow.errors import BadTask

Kinds: TypeAlias = dict[str, str]
"""From the place of a value to the type that it had."""
_DEEPEST = 50
_LARGEST = 2**63
_MICROSECOND = timedelta(microseconds=1)
_SPELLED: Mapping[type, tuple[str, Callable[[Any], str]]] = {
    # the first that fits: a datetime is a date, too
    datetime: ("datetime", datetime.isoformat),
    date: ("date", date.isoformat),
    time: ("time", time.isoformat),
    timedelta: ("timedelta", lambda span: str(span // _MICROSECOND)),
    Decimal: ("decimal", str),
    UUID: ("uuid", str),
    bytes: ("bytes", lambda data: b64encode(data).decode()),
    bytearray: ("bytearray", lambda data: b64encode(data).decode()),
    Path: ("path", str),
    PureWindowsPath: ("windows-path", str),
    PurePath: ("posix-path", str),
}
_READ: Mapping[str, Callable[[Any], Any]] = {
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "timedelta": lambda text: int(text) * _MICROSECOND,
    "decimal": Decimal,
    "uuid": UUID,
    "bytes": b64decode,
    "bytearray": lambda text: bytearray(b64decode(text)),
    "path": Path,
    "windows-path": PureWindowsPath,
    "posix-path": PurePosixPath,
    "int": int,
    "float": float,
    "text": lambda text: b64decode(text).decode("utf-8", "surrogatepass"),
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "dict": dict,
}


def written(field: str, value: Any, kinds: Kinds, place: str = "", depth: int = 0) -> Any:
    """The value as JSON has it; what that does not say is noted in `kinds`. Raises BadTask for what cannot be kept."""
    if type(value) is str and value.isascii():  # nearly all of it
        return value
    if depth > _DEEPEST:
        raise BadTask(field, f"it is nested deeper than {_DEEPEST} levels")
    match value:
        case None | bool():
            return value
        case str():
            return _text(str(value), kinds, place)
        case int():
            return value if -_LARGEST <= value < _LARGEST else _noted(str(value), "int", kinds, place)
        case float():
            return value if math.isfinite(value) else _noted(repr(value), "float", kinds, place)
        case Mapping():
            return _mapping(field, value, kinds, place, depth)
        case list() | tuple() | set() | frozenset():
            return _items(field, value, kinds, place, depth)
    for kind, (name, spell) in _SPELLED.items():
        if isinstance(value, kind):
            text = _text(spell(value), kinds, place)
            kinds[place] = f"{kinds[place]}+{name}" if place in kinds else name
            return text
    raise BadTask(field, f"a {type(value).__name__} cannot be kept")


def read(value: Any, kinds: Kinds) -> Any:
    """The value as it was given. The innermost first: a set of tuples has tuples in it when it is made."""
    root = {"": value}
    for place in sorted(kinds, key=lambda place: place.count("/"), reverse=True):
        holder, key = _found(root, place)
        try:
            restored = holder[key]
            for name in kinds[place].split("+"):
                restored = _READ[name](restored)
            holder[key] = restored
        except (LookupError, TypeError, ValueError, ArithmeticError):
            continue  # somebody has changed it: JSON says what there is
    return root[""]


def _noted(plain: Any, kind: str, kinds: Kinds, place: str) -> Any:
    kinds[place] = kind
    return plain


def _text(text: str, kinds: Kinds, place: str) -> str:
    """Text as it is. The names of files may have what UTF-8 cannot write."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return str(_noted(b64encode(text.encode("utf-8", "surrogatepass")).decode(), "text", kinds, place))
    return text


def _mapping(field: str, value: Mapping[Any, Any], kinds: Kinds, place: str, depth: int) -> Any:
    if all(isinstance(key, str) and _is_text(key) for key in value):
        return {
            str(key): written(f"{field}.{key}", inner, kinds, f"{place}/{_escaped(key)}", depth + 1)
            for key, inner in value.items()
        }
    pairs = written(field, [tuple(pair) for pair in value.items()], kinds, place, depth)
    return _noted(pairs, "dict", kinds, place)


def _items(field: str, value: Any, kinds: Kinds, place: str, depth: int) -> list[Any]:
    ordered = sorted(value, key=_order) if isinstance(value, set | frozenset) else value
    plain = [
        written(f"{field}[{number}]", inner, kinds, f"{place}/{number}", depth + 1)
        for number, inner in enumerate(ordered)
    ]
    for kind in (tuple, frozenset, set):
        if isinstance(value, kind):
            kinds[place] = kind.__name__
    return plain


def _order(value: Any) -> tuple[str, bytes]:
    """The same in every process: the bytes of a task say whether it is the same task."""
    return type(value).__name__, msgspec.json.encode(written("", value, {}))


def _found(root: Any, place: str) -> tuple[Any, Any]:
    """What holds the value of that place, and under which name or number."""
    names = [name.replace("~1", "/").replace("~0", "~") for name in place.split("/")]
    holder: Any = root
    try:
        for name in names[:-1]:
            holder = holder[int(name) if isinstance(holder, list) else name]
        return holder, int(names[-1]) if isinstance(holder, list) else names[-1]
    except (LookupError, TypeError, ValueError):
        return {}, ""


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _is_text(key: str) -> bool:
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True
