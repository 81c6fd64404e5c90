"""Health, readiness and metrics of the process: for probes and for Prometheus."""

from __future__ import annotations

import asyncio
from typing import Any

from litestar import Request, Response, Router, get
from litestar.di import NamedDependency
from msgspec import Struct

from redrive import __version__
from redrive.access.actors import Role
from redrive.admin.access import sees_details
from redrive.answers import ask_each
from redrive.doctor.findings import Diagnosis
from redrive.errors import Unavailable
from redrive.forensics.measured import Measured
from redrive.service import Service
from redrive.telemetry.metrics import CONTENT_TYPE_LATEST, Metrics

_PATIENCE = 5.0


class Alive(Struct, frozen=True):
    """The process answers."""

    status: str
    version: str


class Ready(Struct, frozen=True, omit_defaults=True):
    """Whether it could do its work now and, for who has a token or asks on loopback, `ok` or why not of the store and
    each transport."""

    status: str
    checks: dict[str, str] | None = None


@get("/healthz", role=None, any_parameters=True)
async def is_alive() -> Alive:
    """200 while the process lives, whatever its backends do."""
    return Alive("ok", __version__)


@get("/readyz", role=None, any_parameters=True)
async def is_ready(request: Request[Any, Any, Any], service: NamedDependency[Service]) -> Response[Ready]:
    """200 if store and transports could do their work now, else 503. Which one could not, and why, is said to who has a
    token, and on loopback."""
    return await readiness(request, await service.check_backends())


@get("/metrics", role=Role.VIEWER, whole=True, free_on_loopback=True, any_parameters=True, media_type="text/plain")
async def show_metrics(service: NamedDependency[Service], metrics: NamedDependency[Metrics]) -> Response[bytes]:
    """For Prometheus. Needs a viewer's token, except where the server listens on loopback only."""
    return Response(metrics.render(await measured(service, metrics)), headers={"Content-Type": CONTENT_TYPE_LATEST})


@get("/api/doctor", role=Role.ADMIN, whole=True, costly=True)
async def examine(service: NamedDependency[Service]) -> Diagnosis:
    """What is reachable, what is unsafe, and how to mend it."""
    return await service.doctor()


async def readiness(request: Request[Any, Any, Any], checks: dict[str, str]) -> Response[Ready]:
    """200 if all of them say `ok`; an outsider hears nothing but that."""
    ready = all(said == "ok" for said in checks.values())
    said = Ready("ok" if ready else "unavailable", checks if await _may_see(request) else None)
    return Response(said, status_code=200 if ready else 503)


async def _may_see(request: Request[Any, Any, Any]) -> bool:
    try:
        return await sees_details(request)
    except Unavailable:
        return False  # the store is away, so nobody can say whose token that is


async def measured(service: Service, metrics: Metrics) -> Measured:
    """What a scrape shows of store and transports; every collector that has to look for itself does so meanwhile."""
    probes = {str(number): probe for number, probe in enumerate(metrics.probes)}
    async with asyncio.TaskGroup() as group:
        group.create_task(ask_each(probes, patience=_PATIENCE))
        found = group.create_task(service.measured())
    return found.result()


router = Router("/", route_handlers=[is_alive, is_ready, show_metrics, examine], tags=["health"])
