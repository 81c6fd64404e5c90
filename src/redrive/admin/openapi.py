"""The OpenAPI document: Litestar makes it from the handlers' types, we add the roles and what an error looks like."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from litestar import Litestar, Request, Response, Router, get
from litestar.exceptions import NotFoundException
from litestar.handlers import HTTPRouteHandler
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin, OpenAPIRenderPlugin
from litestar.openapi.spec import Components, SecurityScheme
from litestar.typing import FieldDefinition

from redrive import __version__, console
from redrive.access.actors import Role
from redrive.admin.access import handlers_of
from redrive.admin.problems import Problem

_TROUBLE = {
    "description": "An error, and what to do about it",
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
}
_TOKEN = SecurityScheme(type="http", scheme="bearer", bearer_format="rdr_<id>_<secret>")


class _Page(OpenAPIRenderPlugin):
    """Every route on a page from local files; the pages that Litestar brings load their scripts from a CDN."""

    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:
        return console.read("docs.html")


class _Json(JsonRenderPlugin):
    """The document as we complete it."""

    def render(self, request: Request[Any, Any, Any], openapi_schema: dict[str, Any]) -> bytes:
        return written_of(request.app)


def openapi_config() -> OpenAPIConfig:
    """A page of every route at /docs."""
    router = Router(
        "/docs",
        route_handlers=[],
        after_request=_not_found,
        include_in_schema=False,
        opt={"role": None},
        response_headers={"Content-Security-Policy": console.POLICY},
    )
    return OpenAPIConfig(
        title="Redrive",
        description="Dead letters: see them, learn why, send them back.",
        version=__version__,
        components=Components(security_schemes={"token": _TOKEN}),
        use_handler_docstrings=True,
        render_plugins=[_Page(path="/"), _Json()],
        openapi_router=router,
    )


def _not_found(response: Response[Any]) -> Response[Any]:
    """Litestar answers an unknown path under /docs with a page of its own; here every error is a Problem."""
    if response.status_code == 404:
        raise NotFoundException
    return response


@get("/openapi.json", role=None, include_in_schema=False)
async def show_openapi(request: Request[Any, Any, Any]) -> Response[bytes]:
    """Every route, for programs."""
    return Response(written_of(request.app), media_type="application/json")


def written_of(api: Litestar) -> bytes:
    """The document as it is answered: made and written once, since anybody may ask for it as often as they like."""
    if "openapi_written" not in api.state:
        api.state.openapi_written = msgspec.json.encode(document_of(api))
    found: bytes = api.state.openapi_written
    return found


def document_of(api: Litestar) -> dict[str, Any]:
    """The document, made when it is first asked for."""
    if "openapi" not in api.state:
        document = api.openapi_schema.to_schema()
        document["components"]["schemas"] |= _components(api)
        for method, path, handler in handlers_of(api):
            if path in document["paths"]:
                _complete(document["paths"][path][method.lower()], handler.opt["role"])
        api.state.openapi = document
    found: dict[str, Any] = api.state.openapi
    return found


def _components(api: Litestar) -> dict[str, Any]:
    """What bodies and answers are made of, in msgspec's words: Litestar leaves out that no other field is taken."""
    shown = (handler for _, _, handler in handlers_of(api) if handler.resolve_include_in_schema())
    kinds = [field.annotation for handler in shown for field in _fields_of(handler)]
    _, components = msgspec.json.schema_components([Problem, *kinds], ref_template="#/components/schemas/{name}")
    return dict(components)


def _fields_of(handler: HTTPRouteHandler) -> Iterator[FieldDefinition]:
    answer = handler.parsed_return_field
    yield answer.inner_types[0] if answer.is_subclass_of(Response) else answer
    if handler.parsed_data_field is not None:
        yield handler.parsed_data_field


def _complete(operation: dict[str, Any], role: Role | None) -> None:
    operation["x-role"] = role or "anyone"
    if role is not None:
        operation["security"] = [{"token": []}]
    operation["responses"].pop("400", None)  # Litestar's form of an error, which is not ours
    operation["responses"]["default"] = _TROUBLE
    for parameter in operation.get("parameters", ()):
        choices = parameter["schema"].get("oneOf", [parameter["schema"]])
        parameter["schema"] = next(choice for choice in choices if choice.get("type") != "null")  # no URL says null


def parameters_of(request: Request[Any, Any, Any]) -> dict[str, dict[str, Any]] | None:
    """The schema of each parameter in the URL that the route of this request takes; None: it takes any."""
    if request.route_handler.opt.get("any_parameters") or not request.route_handler.resolve_include_in_schema():
        return None
    document = document_of(request.app)
    operation = document["paths"][request.scope["path_template"]][request.method.lower()]
    return {
        parameter["name"]: _resolved(parameter["schema"], document)
        for parameter in operation.get("parameters", ())
        if parameter["in"] == "query"
    }


def _resolved(schema: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    """The schema with what it refers to."""
    if "items" in schema:
        return schema | {"items": _resolved(schema["items"], document)}
    name = schema.get("$ref", "").rpartition("/")[2]
    return document["components"]["schemas"][name] if name else schema
