"""The HTTP API: a thin skin over `service.py`. It reads, asks the service, and writes; it holds no rule.

There is no `/docs` page: FastAPI's loads its scripts from the network, which an operator's machine need not have.
`/openapi.json` is complete, and any viewer shows it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from redrive import __version__
from redrive.errors import ConfigError, MissingExtra
from redrive.service import Service

try:
    from fastapi import APIRouter, FastAPI, Request, Response
except ImportError as error:
    raise MissingExtra("the server", "server") from error

from redrive import console
from redrive.access.tokens import Tokens
from redrive.admin import fairness, health, incidents, letters, replays
from redrive.admin.access import Door, Guard, check_roles, is_loopback, needs
from redrive.admin.background import Background
from redrive.admin.openapi import openapi_of
from redrive.admin.problems import answer_errors
from redrive.admin.wire import answer
from redrive.telemetry.metrics import Metrics

_TITLE = "Redrive"
_ABOUT = "Dead letters: see them, learn why, send them back."


def create_api(
    service: Service,
    *,
    tokens: Tokens | None = None,
    metrics: Metrics | None = None,
    loopback: bool = False,
    routers: Sequence[APIRouter] = (),
    probes_only: bool = False,
) -> FastAPI:
    """The whole API, ready for an ASGI server.

    loopback   it listens on this machine only: other Host headers are refused, and /metrics needs no token
    routers    more routes, of the ready systems or your own; one that names no role is refused
    probes_only  health and metrics, and nothing else: what a worker answers (scrape.py)
    """
    background = Background(service)
    metrics = metrics or Metrics(service.app.events)

    @asynccontextmanager
    async def lifespan(api: FastAPI) -> AsyncIterator[None]:
        yield
        await background.aclose()
        metrics.close()

    api = FastAPI(
        title=_TITLE,
        description=_ABOUT,
        version=__version__,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    api.state.service = service
    api.state.background = background
    api.state.metrics = metrics
    api.state.door = Door(tokens or Tokens(service.app.store.documents, service.app.clock), loopback)
    ours = (health.router, letters.router, replays.router, incidents.router, fairness.router, console.router)
    for router in (health.router,) if probes_only else (*ours, _described(), *routers):
        check_roles(router.routes)
        api.include_router(router)
    answer_errors(api)
    api.add_middleware(Guard, loopback=loopback)
    return api


def _described() -> APIRouter:
    router = APIRouter()

    @router.get("/openapi.json", dependencies=[needs(None)], include_in_schema=False)
    async def show_openapi(request: Request) -> Response:
        return answer(openapi_of(request.app))

    return router


async def admit(tokens: Tokens, host: str) -> str | None:
    """What stands before a server may listen on that address: None, or the one-time token that was made for it.

    Without any token an open door on loopback still asks for one, since every program and page on the machine can
    reach it; on any other address there would be nobody to tell the one-time token to.
    """
    if await tokens.any():
        return None
    if not is_loopback(host):
        raise ConfigError(
            f"{host} can be reached by others, and there is no token yet: make one with "
            f"`redrive token create --role admin --name me`, or listen on 127.0.0.1"
        )
    return tokens.one_time()
