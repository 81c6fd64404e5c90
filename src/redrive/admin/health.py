"""Health, readiness and metrics of the process: for probes and for Prometheus."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from litestar import Response, Router, get
from litestar.di import NamedDependency
from msgspec import Struct

from redrive import __version__
from redrive.access.tokens import Role
from redrive.doctor.findings import Diagnosis
from redrive.errors import RedriveError
from redrive.forensics.stats import Stats
from redrive.service import Service
from redrive.telemetry.metrics import CONTENT_TYPE_LATEST, Metrics

_PATIENCE = 5.0
T = TypeVar("T")


class Alive(Struct, frozen=True):
    """The process answers."""

    status: str
    version: str


class Ready(Struct, frozen=True):
    """Whether it could do its work now: `ok`, or why not, for the store and each transport."""

    status: str
    checks: dict[str, str]


@get("/healthz", role=None, any_parameters=True)
async def is_alive() -> Alive:
    """200 while the process lives, whatever its backends do."""
    return Alive("ok", __version__)


@get("/readyz", role=None, any_parameters=True)
async def is_ready(service: NamedDependency[Service]) -> Response[Ready]:
    """200 if store and transports could do their work now, 503 with which one could not, and why."""
    return readiness(await check_all(service))


@get("/metrics", role=Role.VIEWER, free_on_loopback=True, any_parameters=True, media_type="text/plain")
async def show_metrics(service: NamedDependency[Service], metrics: NamedDependency[Metrics]) -> Response[bytes]:
    """For Prometheus. Needs a viewer's token, except where the server listens on loopback only."""
    await probed(metrics)
    return Response(metrics.render(await counted(service)), headers={"Content-Type": CONTENT_TYPE_LATEST})


@get("/api/doctor", role=Role.ADMIN)
async def examine(service: NamedDependency[Service]) -> Diagnosis:
    """What is reachable, what is unsafe, and how to mend it."""
    return await service.doctor()


def readiness(checks: dict[str, str]) -> Response[Ready]:
    """200 if all of them say `ok`."""
    ready = all(said == "ok" for said in checks.values())
    return Response(Ready("ok" if ready else "unavailable", checks), status_code=200 if ready else 503)


async def check_all(service: Service) -> dict[str, str]:
    """What the store and every transport say of themselves: `ok`, or why not. All are asked at once."""
    backends: dict[str, Awaitable[None]] = {"store": service.app.store.check()}
    backends |= {f"transports.{name}": transport.check() for name, transport in service.app.transports.items()}
    said = await asyncio.gather(*(_said(check, service) for check in backends.values()))
    return dict(zip(backends, said, strict=True))


async def _said(check: Awaitable[None], service: Service) -> str:
    try:
        async with asyncio.timeout(_PATIENCE):
            await check
    except TimeoutError:
        return f"no answer within {_PATIENCE:g} s"
    except RedriveError as error:
        return service.redactor.text(str(error))
    return "ok"


async def probed(metrics: Metrics) -> None:
    """Let every collector that has to look for itself do so."""
    for probe in metrics.probes:
        await _within_patience(probe())


async def counted(service: Service) -> Stats | None:
    """Letters and queues, counted; None where they cannot be counted now."""
    return await _within_patience(service.stats())


async def _within_patience(asked: Awaitable[T]) -> T | None:
    """The answer, or None if it does not come in time: a scrape is answered even while the store is away."""
    try:
        async with asyncio.timeout(_PATIENCE):
            return await asked
    except (RedriveError, TimeoutError):
        return None


router = Router("/", route_handlers=[is_alive, is_ready, show_metrics, examine], tags=["health"])
