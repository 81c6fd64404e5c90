"""What crosses the wire is read strictly, so that a typo is an error and not another selection.

Litestar converts parameters and knows what each route takes; it would let pass a parameter that nobody reads, take the
last of two values where one is asked for, and a number in quotes for a number in a body.
"""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec
from litestar import Request, Response
from litestar.di import Provide
from litestar.exceptions import ValidationException
from litestar.params import FromQuery
from msgspec import Struct

from redrive.admin.openapi import parameters_of
from redrive.admin.problems import SEE, Unreadable, problem
from redrive.errors import nearest
from redrive.forensics.query import Query
from redrive.untrusted import UNREADABLE, read_json

_LISTS = frozenset({"ids", *(name for name in Query.__struct_fields__ if name.endswith("s"))})
_MOST = 1000  # values in a list of a query
_NOT_GIVEN = ("scope",)
_PLACE = re.compile(r" - at `\$\.?(?P<where>[^`]*)`$")
_UNKNOWN = re.compile(r"unknown field `(?P<name>[^`]*)`")


class StrictRequest(Request[Any, Any, Any]):
    """A request whose body is decoded as the type that its route declares for `data`, and as nothing near it."""

    async def json(self) -> Any:
        field = self.route_handler.parsed_data_field
        return _decoded(await self.body(), Any if field is None else field.annotation)


def _decoded(body: bytes, kind: Any) -> Any:
    try:
        value = read_json(body, kind)
    except msgspec.ValidationError as error:
        raise Unreadable(_plain(error) + _meant(str(error), kind)) from None
    except UNREADABLE as error:
        raise Unreadable(f"the body is not JSON: {error}", status=400) from None
    _check(value)
    return value


def from_url(kind: type[Struct]) -> Provide:
    """A dependency of that kind, whose fields are parameters in the URL."""
    fields = [field for field in msgspec.structs.fields(kind) if field.name not in _NOT_GIVEN]

    def provide(**given: Any) -> Any:
        value = kind(**given)
        _check(value)
        return value

    taken = [inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default) for field in fields]
    provide.__signature__ = inspect.Signature(taken)  # type: ignore[attr-defined]
    provide.__annotations__ = {field.name: FromQuery[field.type] for field in fields} | {"return": kind}  # type: ignore[misc,name-defined]
    return Provide(provide, sync_to_thread=False)


async def check_parameters(request: Request[Any, Any, Any]) -> None:
    """Refuse a parameter that the route does not take, or that is given twice where it takes one value."""
    known = parameters_of(request)
    if known is None:
        return
    for name, count in Counter(name for name, _ in request.query_params.multi_items()).items():
        if name not in known:
            raise Unreadable(f"unknown parameter {name!r}{nearest(name, known)}")
        if count > 1 and "array" not in str(known[name]):
            raise Unreadable(f"{name} is given {count} times: it takes one value")


def answer_invalid(request: Request[Any, Any, Any], error: ValidationException) -> Response[bytes]:
    """Litestar's error about one value, in our words and with what the parameter takes."""
    about = error.extra[0] if isinstance(error.extra, list) and error.extra else {}
    name, message = about.get("key", ""), about.get("message", error.detail)
    if about.get("source") == "body":  # all other bodies are read by StrictRequest
        return problem(400, "the body is not JSON: it is empty", SEE)
    takes = (parameters_of(request) or {}).get(name)
    return problem(422, f"{name}: {message}", _takes(takes)) if takes else problem(422, message, SEE)


def _takes(schema: dict[str, Any]) -> str:
    """What a parameter takes, for a person."""
    if choices := schema.get("items", schema).get("enum"):
        return f"one of {', '.join(sorted(choices))}"
    if schema.get("format") == "date-time":
        return "write it as 2026-01-31T12:00:00Z"
    bounds = (f"{bound} {schema[bound]:.0f}" for bound in ("minimum", "maximum") if bound in schema)
    return ", ".join([f"it takes type {schema.get('type')}", *bounds])


def _check(value: object) -> None:
    """A time without a zone is a guess, and a wrong guess selects the wrong letters. A list without an end costs those
    who did not ask. A scope is the asker's own, and not theirs to say."""
    if not isinstance(value, Struct):
        return
    for name, part in msgspec.structs.asdict(value).items():
        if isinstance(part, datetime) and part.tzinfo is None:
            raise Unreadable(f"{name} has no time zone", "write it as 2026-01-31T12:00:00Z")
        if isinstance(part, tuple | list) and name in _LISTS and len(part) > _MOST:
            raise Unreadable(f"{name} has {len(part):,} values: at most {_MOST:,} are taken", "ask for them in parts")
        if part is not None and name in _NOT_GIVEN and isinstance(value, Query):
            raise Unreadable(f"{name} is what your token reaches: a request cannot give it")
        _check(part)


def _plain(error: Exception) -> str:
    """msgspec's words, the place first."""
    text = str(error)
    place = _PLACE.search(text)
    if place is None or not place["where"]:
        return text.partition(" - at ")[0]
    return f"{place['where']}: {text[: place.start()]}"


def _meant(text: str, kind: Any) -> str:
    """The field that an unknown one resembles, of that kind or of a kind within it."""
    found = _UNKNOWN.search(text)
    if found is None:
        return ""
    outer = list(_structs(kind))
    inner = [part for whole in outer for field in msgspec.structs.fields(whole) for part in _structs(field.type)]
    known = {field.name for part in (*outer, *inner) for field in msgspec.structs.fields(part)}
    return nearest(found["name"], known - {found["name"]})  # it may be known in another place


def _structs(kind: Any) -> Iterator[Any]:
    """The kind, or those that it is a choice of, such as of a body that may be left out."""
    return (part for part in (kind, *getattr(kind, "__args__", ())) if _is_struct(part))


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)
