"""The HTTP API: a thin skin over `service.py`. It reads, asks the service, and writes; it holds no rule."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from redrive.errors import ConfigError, MissingExtra
from redrive.service import Service

try:
    from litestar import Litestar, Request, Router
    from litestar.datastructures import State
    from litestar.di import Provide
    from litestar.exceptions import ValidationException
except ImportError as error:
    raise MissingExtra("the server", "server") from error

from redrive import console
from redrive.access.actors import Actor
from redrive.access.logins import Logins
from redrive.access.tokens import Tokens
from redrive.admin import (
    approvals,
    events,
    fairness,
    groups,
    health,
    incidents,
    letters,
    login,
    openapi,
    queues,
    repairs,
    replays,
    series,
    systems,
    transfer,
)
from redrive.admin import tokens as token_routes
from redrive.admin.access import actor_of, authorize, check_roles, is_loopback, make_safe, only_this_machine
from redrive.admin.background import Background
from redrive.admin.callers import Door
from redrive.admin.costly import Turns, gives_back_turns, take_turn
from redrive.admin.leaving import ends_when_left
from redrive.admin.problems import MOST_BYTES, error_answers
from redrive.admin.wire import StrictRequest, answer_invalid, check_parameters
from redrive.service.watcher import Watcher
from redrive.telemetry.events import LoginFailed
from redrive.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from redrive.access.people import People
    from redrive.access.sessions import Sessions

_PROBES = (health.router,)
_ALL = (
    *_PROBES,
    letters.router,
    transfer.router,
    repairs.router,
    groups.router,
    series.router,
    replays.router,
    approvals.router,
    incidents.router,
    queues.router,
    fairness.show_fairness,
    systems.list_systems,
    events.follow_changes,
    token_routes.router,
    login.router,
    console.router,
    openapi.show_openapi,
)


def create_api(
    service: Service,
    *,
    tokens: Tokens | None = None,
    metrics: Metrics | None = None,
    loopback: bool = False,
    routers: Sequence[Router] = (),
    probes_only: bool = False,
) -> Litestar:
    """The whole API, ready for an ASGI server.

    loopback   it listens on this machine only: other Host headers are refused, and /metrics needs no token
    routers    more routes, of the ready systems or your own; one that names no role is refused
    probes_only  health and metrics, and nothing else: what a worker answers (scrape.py)
    """
    background, watcher = Background(service), Watcher(service)
    tokens = tokens or Tokens(service.app.store.documents, service.app.clock)
    metrics = metrics or Metrics(service.app.events)
    people, sessions = people_of(service)

    def failed(address: str, times: int) -> None:
        service.app.events.emit(LoginFailed(address=address, times=times))

    @asynccontextmanager
    async def lifespan(api: Litestar) -> AsyncIterator[None]:
        yield
        await watcher.aclose()
        await background.aclose()
        if people is not None:
            await people.issuer.aclose()
        metrics.close()

    return guarded(
        [*(_PROBES if probes_only else _ALL), *routers],
        Door(tokens, loopback, Logins(failed), people, sessions),
        dependencies={
            "service": Provide(_seen, sync_to_thread=False),
            "background": _given(background),
            "watcher": _given(watcher),
            "metrics": _given(metrics),
            "tokens": _given(tokens),
            "actor": Provide(actor_of, sync_to_thread=False),
        },
        lifespan=[lifespan],
        openapi_config=None if probes_only else openapi.openapi_config(),
        state=State(
            {
                "service": service,
                "background": background,
                "watcher": watcher,
                "redactor": service.redactor,
                "turns": Turns(service.app.settings.admin),
            }
        ),
    )


def people_of(service: Service) -> tuple[People, Sessions] | tuple[None, None]:
    """Those whom the identity provider of the settings knows, and their logins at the console; None without one."""
    oidc = service.app.settings.access.oidc
    if oidc.issuer is None:
        return None, None
    from redrive.access.people import People  # need an extra, which only who has an issuer needs
    from redrive.access.sessions import Sessions

    people = People(oidc, service.app.clock)
    return people, Sessions(people, service.app.store.documents, service.app.clock)


def guarded(handlers: Sequence[Any], door: Door, **more: Any) -> Litestar:
    """Those routes behind that door: every one names its role, and every answer, errors too, is safe to show."""
    api = Litestar(
        handlers,
        before_request=check_parameters,
        middleware=[gives_back_turns, ends_when_left],
        before_send=[make_safe],
        exception_handlers={**error_answers(), ValidationException: answer_invalid},
        guards=[only_this_machine, authorize, take_turn],
        logging_config=None,  # logs are the application's own
        request_class=StrictRequest,
        request_max_body_size=MOST_BYTES,
        **more,
    )
    api.state["door"] = door
    check_roles(api)
    return api


def _seen(request: Request[Any, Any, Any]) -> Service:
    """The service, as whoever asks sees it. Nobody in particular asks where a route is open to all."""
    service: Service = request.app.state.service
    actor: Actor | None = request.scope.get("auth")
    return service if actor is None else service.seen_by(actor)


def _given(value: object) -> Provide:
    """A dependency that is the same for every request."""
    return Provide(lambda: value, sync_to_thread=False)


async def admit(tokens: Tokens, host: str, *, people: bool = False) -> str | None:
    """Check that a server may listen on that address; returns the one-time token that was made for it, or None.

    Without any token an open door on loopback still asks for one, since every program and page on the machine can
    reach it; on any other address there would be nobody to tell the one-time token to, and people have to sign in.
    """
    if await tokens.any():
        return None
    if not is_loopback(host):
        if people:
            return None
        raise ConfigError(
            f"{host} can be reached by others, and there is no token yet: make one with "
            f"`redrive token create --role admin --name me`, or listen on 127.0.0.1"
        )
    return tokens.one_time()
