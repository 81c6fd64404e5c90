"""What crosses the wire: read strictly, so that a typo is an error and not another selection; written by msgspec."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, TypeVar

import msgspec
from fastapi import Request, Response
from msgspec import Struct

from redrive.admin.problems import Unreadable
from redrive.errors import nearest

T = TypeVar("T")
_MOST_BYTES = 1 << 20
_PLACE = re.compile(r" - at `\$\.?(?P<where>[^`]*)`$")
_UNKNOWN = re.compile(r"unknown field `(?P<name>[^`]*)`")
_JSON = msgspec.json.Encoder()


def answer(value: object, status: int = 200) -> Response:
    """The value as JSON."""
    return Response(_JSON.encode(value), status, media_type="application/json")


def parameters(request: Request, *kinds: type[Any]) -> list[Any]:
    """One value of each kind, its fields taken from the URL. A parameter that none of them has is refused."""
    given: dict[str, list[str]] = {}
    for name, value in request.query_params.multi_items():
        given.setdefault(name, []).append(value)
    known = [field.name for kind in kinds for field in msgspec.structs.fields(kind)]
    for name in given:
        if name not in known:
            raise Unreadable(f"unknown parameter {name!r}{nearest(name, known)}")
    return [_built(kind, given) for kind in kinds]


def _built(kind: type[Any], given: dict[str, list[str]]) -> Any:
    values = {}
    for field in msgspec.structs.fields(kind):
        if field.name in given:
            values[field.name] = _value(field, given[field.name])
    return kind(**values)


def _value(field: msgspec.structs.FieldInfo, texts: list[str]) -> Any:
    many = "tuple" in str(field.type)
    if not many and len(texts) > 1:
        raise Unreadable(f"{field.name} is given {len(texts)} times: it takes one value")
    try:
        value = msgspec.convert(texts if many else texts[0], field.type, strict=False)
    except msgspec.ValidationError as error:
        raise Unreadable(f"{field.name}: {_plain(error)}", _takes(field)) from None
    return zoned(field.name, value)


def _takes(field: msgspec.structs.FieldInfo) -> str:
    (schema,), components = msgspec.json.schema_components([field.type])
    choices = [choice for part in components.values() for choice in part.get("enum", ())]
    if choices:
        return f"one of {', '.join(choices)}"
    return "write it as 2026-01-31T12:00:00Z" if "date-time" in str(schema) else f"it takes {_short(schema)}"


def _short(schema: dict[str, Any]) -> str:
    shown = schema.get("anyOf", [schema])[0]
    return ", ".join(f"{name} {value}" for name, value in shown.items() if name in ("type", "minimum", "maximum"))


async def read_body(request: Request, kind: type[T]) -> T:
    """The body as that type; nothing in it that the type does not have, and no more than a megabyte."""
    data = b""
    async for chunk in request.stream():
        data += chunk
        if len(data) > _MOST_BYTES:
            raise Unreadable(f"the body has more than {_MOST_BYTES:,} bytes", "select with a query instead", 413)
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise Unreadable(_plain(error) + _meant(str(error), kind)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unreadable(f"the body is not JSON: {error}", status=400) from None


def zoned(name: str, value: T) -> T:
    """A time without a zone is a guess, and a wrong guess selects the wrong letters."""
    if isinstance(value, datetime) and value.tzinfo is None:
        raise Unreadable(f"{name} has no time zone", "write it as 2026-01-31T12:00:00Z")
    return value


def zoned_all(query: Struct) -> None:
    """Every time in it has a zone."""
    for name, value in msgspec.structs.asdict(query).items():
        zoned(name, value)


def _plain(error: Exception) -> str:
    """msgspec's words, the place first."""
    text = str(error)
    place = _PLACE.search(text)
    if place is None or not place["where"]:
        return text.partition(" - at ")[0]
    return f"{place['where']}: {text[: place.start()]}"


def _meant(text: str, kind: type[Any]) -> str:
    found = _UNKNOWN.search(text)
    if found is None:
        return ""
    inner = (field.type for field in msgspec.structs.fields(kind))
    structs = [kind, *(part for one in inner for part in (one, *getattr(one, "__args__", ())) if _is_struct(part))]
    return nearest(found["name"], {field.name for part in structs for field in msgspec.structs.fields(part)})


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)
