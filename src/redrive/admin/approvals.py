"""The routes of approvals: what waits for a second person, and what that person says."""

from __future__ import annotations

from typing import Annotated

from litestar import Router, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody
from msgspec import Meta, Struct

from redrive.access.actors import Actor, Role
from redrive.access.approvals import Approval
from redrive.admin.background import Background
from redrive.admin.letters import Limit
from redrive.service import Service


class No(Struct, frozen=True, forbid_unknown_fields=True):
    """Why not."""

    reason: Annotated[str, Meta(max_length=1000)]


@get("/", role=Role.OPERATOR)
async def list_approvals(
    service: NamedDependency[Service], actor: NamedDependency[Actor], limit: Limit = 50
) -> list[Approval]:
    """What waits, or waited, for a second person, newest first; only what the asker's scope holds."""
    return await service.four_eyes.seen_by(actor, limit)


@get("/{id:str}", role=Role.OPERATOR)
async def show_approval(
    service: NamedDependency[Service], actor: NamedDependency[Actor], id: FromPath[str]
) -> Approval:
    """Who asked for what, on how many letters, and what was decided."""
    return await service.four_eyes.seen(id, actor)


@post("/{id:str}/approve", role=Role.OPERATOR, status_code=200)
async def approve(
    service: NamedDependency[Service],
    background: NamedDependency[Background],
    actor: NamedDependency[Actor],
    id: FromPath[str],
) -> Approval:
    """Say yes, as somebody else than whoever asked: it is carried out on exactly what was frozen."""
    await service.four_eyes.seen(id, actor)
    approval = await service.four_eyes.approve(id, actor=actor)
    if approval.replay is not None:
        background.run(approval.replay)
    return approval


@post("/{id:str}/refuse", role=Role.OPERATOR, status_code=200)
async def refuse(
    service: NamedDependency[Service], actor: NamedDependency[Actor], id: FromPath[str], data: JSONBody[No]
) -> Approval:
    """Say no, and why."""
    await service.four_eyes.seen(id, actor)
    return await service.four_eyes.refuse(id, actor=actor, why=data.reason)


@post("/{id:str}/withdraw", role=Role.OPERATOR, status_code=200)
async def withdraw(service: NamedDependency[Service], actor: NamedDependency[Actor], id: FromPath[str]) -> Approval:
    """Take back what one asked for oneself."""
    await service.four_eyes.seen(id, actor)
    return await service.four_eyes.withdraw(id, actor=actor)


router = Router(
    "/api/approvals",
    route_handlers=[list_approvals, show_approval, approve, refuse, withdraw],
    tags=["approvals"],
)
