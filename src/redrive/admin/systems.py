"""The route of systems: which of them have routes here, so that a page can offer what they do."""

from __future__ import annotations

from litestar import get
from litestar.di import NamedDependency
from msgspec import Struct

from redrive.access.actors import Role
from redrive.service import Service
from redrive.systems.use import in_use


class SystemView(Struct, frozen=True):
    """A system that is in use."""

    name: str
    about: str


@get("/api/systems", role=Role.VIEWER, tags=["systems"])
async def list_systems(service: NamedDependency[Service]) -> list[SystemView]:
    """The systems whose routes this server has."""
    return [SystemView(system.name, system.about) for system in in_use(service.app.settings) if system.routes]
