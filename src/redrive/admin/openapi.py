"""A route's declaration: its role, and the OpenAPI of what it takes and answers, from the types themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from fastapi import FastAPI, Response
from fastapi.openapi.utils import get_openapi
from msgspec import Struct

from redrive.access.tokens import Role
from redrive.admin.access import needs
from redrive.admin.problems import Problem

_COMPONENTS = "x-redrive-components"


def operation(
    role: Role | None,
    returns: Any,
    *,
    reads: Sequence[type[Struct]] = (),
    takes: type[Struct] | None = None,
    status: int = 200,
    free_on_loopback: bool = False,
) -> dict[str, Any]:
    """What a route is declared with: `@router.get("/letters", **operation(Role.VIEWER, Summaries, reads=[Query]))`."""
    (result, trouble, body), components = _schemas([returns, Problem, takes or Problem])
    parameters, more = _parameters(reads)
    extra: dict[str, Any] = {"parameters": parameters, _COMPONENTS: components | more, "x-role": role or "anyone"}
    if takes is not None:
        extra["requestBody"] = {"required": True, "content": _content(body)}
    if role is not None:
        extra["security"] = [{"token": []}]
    answers: dict[int | str, dict[str, Any]] = {
        status: {"description": "Done", "content": _content(result)},
        "default": {"description": "An error, and what to do about it", "content": _content(trouble)},
    }
    return {
        "dependencies": [needs(role, free_on_loopback=free_on_loopback)],
        "response_class": Response,
        "status_code": status,
        "responses": answers,
        "openapi_extra": extra,
    }


def _schemas(kinds: Sequence[Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    schemas, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    return list(schemas), dict(components)


def _parameters(kinds: Sequence[type[Struct]]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    found: list[dict[str, Any]] = []
    components: dict[str, Any] = {}
    for field in (field for kind in kinds for field in msgspec.structs.fields(kind)):
        (schema,), more = _schemas([field.type])
        options = [one for one in schema.get("anyOf", [schema]) if one.get("type") != "null"]
        found.append({"name": field.name, "in": "query", "required": False, "schema": options[0]})
        components |= more
    return found, components


def _content(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def openapi_of(api: FastAPI) -> dict[str, Any]:
    """The document, with the schemas that the routes brought along."""
    document = get_openapi(title=api.title, version=api.version, description=api.description, routes=api.routes)
    components: dict[str, Any] = {}
    for path in document["paths"].values():
        for one in path.values():
            components |= one.pop(_COMPONENTS, {})
    document["components"] = {
        "schemas": dict(sorted(components.items())),
        "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "bearerFormat": "rdr_<id>_<secret>"}},
    }
    return document
