"""Field tables of AMQP 0-9-1: headers, read and written without changing their types. Pure, and it never recurses
further than `_DEEPEST`.

    kind  RabbitMQ's name       as Python has it        kind  RabbitMQ's name      as Python has it
    ----  --------------------  ----------------        ----  -------------------  ----------------
    t     bool                  bool                    f     float                float
    b B   byte, unsigned byte   int                     d     double               float
    s u   short, unsigned       int                     D     decimal              Decimal
    I i   int, unsigned         int                     T     timestamp            datetime
    l L   long                  int                     S     longstr              str, or bytes
    V     void                  None                    x     binary               bytes
    A     array                 list                    F     table                dict

Ten of these are one type of Python. So what is carried on is never what Python has, but the `Field`: its bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, TypeAlias

_DEEPEST = 20  # tables and arrays in each other, as Python has them; what is deeper is shown as bytes
_LONG = struct.Struct(">I")
_SIZES = {"t": 1, "b": 1, "B": 1, "s": 2, "U": 2, "u": 2, "I": 4, "i": 4, "l": 8, "L": 8, "f": 4, "d": 8, "D": 5}
_FIXED = {ord(kind): size for kind, size in {**_SIZES, "T": 8, "V": 0}.items()}
_COUNTED = frozenset(b"SxAF")  # begin with their length
_LONGEST_NAME = 255
Name: TypeAlias = str | bytes


class Field(bytes):
    """A value as it is on the wire: a letter for its type, then its bytes."""

    __slots__ = ()

    @property
    def kind(self) -> str:
        return chr(self[0])


class Malformed(ValueError):
    """A value that AMQP has no type for."""


# -- in -------------------------------------------------------------------------------------------------------------


def fields_in(table: bytes) -> dict[bytes, Field]:
    """The fields of a table (without its length), each as it is. What follows something that is no field is left out.

    A name that is there twice, which AMQP forbids, has its last value.
    """
    return dict(_named(table))


def values_in(table: bytes, depth: int = 0) -> dict[str, Any]:
    """The same as Python has it."""
    return {text_of(name): value_of(field, depth) for name, field in fields_in(table).items()}


def text_of(name: bytes) -> str:
    """A name as text, whatever it holds."""
    return name.decode(errors="backslashreplace")


def items_in(field: Field) -> list[Field]:
    """The fields of an array; none if it is something else."""
    return list(_items(field[5:])) if field[:1] == b"A" else []


def table_in(field: Field | None) -> dict[bytes, Field]:
    """The fields of a table that is a field itself; none if it is something else."""
    return fields_in(field[5:]) if field is not None and field[:1] == b"F" else {}


def value_of(field: Field, depth: int = 0) -> Any:
    """The value as Python has it. It never raises: what Python cannot hold is an int, or bytes."""
    kind, data = field[0], field[1:]
    if kind in _READ:
        return _READ[kind](data)
    content = data[4:]
    if kind == _TEXT:
        return text_or_bytes(content)
    if kind == _BINARY or depth >= _DEEPEST:
        return content
    if kind == _TABLE:
        return values_in(content, depth + 1)
    return [value_of(item, depth + 1) for item in items_in(field)]


def _named(table: bytes) -> Iterator[tuple[bytes, Field]]:
    place = 0
    while place < len(table):
        begin = place + 1 + table[place]
        end = _end(table, begin)
        if end is None:
            return
        yield table[place + 1 : begin], Field(table[begin:end])
        place = end


def _items(array: bytes) -> Iterator[Field]:
    place = 0
    while place < len(array):
        end = _end(array, place)
        if end is None:
            return
        yield Field(array[place:end])
        place = end


def _end(data: bytes, begin: int) -> int | None:
    """Where the field ends that begins there; None: there is none."""
    kind = data[begin] if begin < len(data) else 0
    size = _FIXED.get(kind)
    if size is None and kind in _COUNTED and begin + 5 <= len(data):
        size = 4 + int(_LONG.unpack_from(data, begin + 1)[0])
    if size is None or begin + 1 + size > len(data):
        return None
    return begin + 1 + size


def _number(form: str) -> Callable[[bytes], Any]:
    unpack = struct.Struct(form).unpack
    return lambda data: unpack(data)[0]


def _decimal(data: bytes) -> Decimal:
    return Decimal(int.from_bytes(data[1:], "big", signed=True)).scaleb(-data[0])


def _timestamp(data: bytes) -> datetime | int:
    seconds = int.from_bytes(data, "big")
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):  # a year that Python does not know
        return seconds


def text_or_bytes(data: bytes) -> str | bytes:
    """Text, if it is some."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


_TEXT, _BINARY, _TABLE = b"SxF"
_FORMS = {"b": ">b", "B": ">B", "s": ">h", "U": ">h", "u": ">H", "I": ">i", "i": ">I", "l": ">q", "L": ">q"}
_READ: dict[int, Callable[[bytes], Any]] = {
    **{ord(kind): _number(form) for kind, form in {**_FORMS, "f": ">f", "d": ">d"}.items()},
    ord("t"): lambda data: data != b"\0",
    ord("D"): _decimal,
    ord("T"): _timestamp,
    ord("V"): lambda data: None,
}


# -- out ------------------------------------------------------------------------------------------------------------


def table_of(values: Mapping[Any, Any]) -> bytes:
    """A table, without its length. Raises Malformed for what AMQP cannot say."""
    pieces: list[bytes] = []
    for name, value in values.items():
        raw = name.encode() if isinstance(name, str) else name
        if len(raw) > _LONGEST_NAME:
            raise Malformed(f"the name of a header has at most {_LONGEST_NAME} bytes")
        pieces += (bytes((len(raw),)), raw, field_of(value))
    return b"".join(pieces)


def field_of(value: Any) -> Field:
    """The value as it goes over the wire; a Field as it came."""
    if isinstance(value, Field):
        return value
    if isinstance(value, str):
        return _counted(b"S", value.encode("utf-8", "surrogatepass"))
    if isinstance(value, bytes):
        return _counted(b"x", value)
    if isinstance(value, Mapping):
        return _counted(b"F", table_of(value))
    if isinstance(value, Sequence):
        return _counted(b"A", b"".join(map(field_of, value)))
    return _plain(value)


def _plain(value: Any) -> Field:
    try:
        match value:
            case None:
                return Field(b"V")
            case bool():
                return Field(b"t" + bytes((value,)))
            case int():
                small = -(1 << 31) <= value < 1 << 31
                return Field(struct.pack(">ci", b"I", value) if small else struct.pack(">cq", b"l", value))
            case float():
                return Field(struct.pack(">cd", b"d", value))
            case Decimal():
                return _decimal_field(value)
            case datetime():
                return Field(struct.pack(">cQ", b"T", int(value.timestamp())))
    except (struct.error, OverflowError, ValueError) as error:
        raise Malformed(f"AMQP has no place for {value!r:.60}: {error}") from error
    raise Malformed(f"AMQP has no type for {type(value).__name__}")


def _decimal_field(value: Decimal) -> Field:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise ValueError("it is not finite")
    scale = max(-exponent, 0)
    number = int("".join(map(str, digits))) * 10 ** max(exponent, 0) * (-1 if sign else 1)
    return Field(struct.pack(">cBi", b"D", scale, number))


def _counted(kind: bytes, content: bytes) -> Field:
    return Field(kind + _LONG.pack(len(content)) + content)
