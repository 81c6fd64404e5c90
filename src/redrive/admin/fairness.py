"""The route of fairness: who has the turns."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from redrive.access.tokens import Role
from redrive.admin.letters import service_of
from redrive.admin.openapi import operation
from redrive.admin.wire import answer, parameters
from redrive.forensics.turns import Turns

router = APIRouter(tags=["fairness"])


@router.get("/api/fairness", **operation(Role.VIEWER, list[Turns]))
async def show_fairness(request: Request) -> Response:
    """How the tenants of each source fare, where they take turns; empty where no transport shares a source."""
    parameters(request)
    return answer(await service_of(request).fairness())
