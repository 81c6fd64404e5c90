"""The route of fairness: who has the turns."""

from __future__ import annotations

from litestar import get
from litestar.di import NamedDependency

from redrive.access.actors import Role
from redrive.forensics.turns import Fairness
from redrive.service import Service


@get("/api/fairness", role=Role.VIEWER, tags=["fairness"])
async def show_fairness(service: NamedDependency[Service]) -> Fairness:
    """How the tenants of each source fare, where they take turns; empty where no transport shares a source.
    Transports that could not be asked are in `unanswered`."""
    return await service.fairness()
