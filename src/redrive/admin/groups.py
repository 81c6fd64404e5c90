"""The routes of groups: how they stand, and what people say of them."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from litestar import Router, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter
from msgspec import Meta, Struct

from redrive.access.actors import Actor, Role
from redrive.admin.costly import has_text_or_is_long
from redrive.admin.letters import Limit
from redrive.admin.series import span_of
from redrive.admin.wire import from_url
from redrive.forensics.differs import Differences
from redrive.forensics.marks import Mark
from redrive.forensics.notes import GroupNote
from redrive.forensics.query import Query
from redrive.service import FixReport, GroupView, Service, TrendView
from redrive.stores.base import GroupOrder

_Why = Annotated[str, Meta(max_length=2000)]


class Fixing(Struct, frozen=True, forbid_unknown_fields=True):
    """The version that a group is fixed in."""

    version: Annotated[str, Meta(max_length=100)]
    auto: bool = False  # its letters go back by themselves once every worker runs it
    why: _Why = ""


class Muting(Struct, frozen=True, forbid_unknown_fields=True):
    """For how long nobody is to be told of a group, and why."""

    seconds: Annotated[float, Meta(gt=0, le=1000 * 86_400)]
    why: _Why


class Noting(Struct, frozen=True, forbid_unknown_fields=True):
    """What to write down."""

    text: Annotated[str, Meta(min_length=1, max_length=10_000)]


class Assigning(Struct, frozen=True, forbid_unknown_fields=True):
    """Who sees to a group; null: nobody does any more."""

    to: Annotated[str, Meta(min_length=1, max_length=200)] | None


class Unmuted(Struct, frozen=True):
    """The group that is heard of again; none, if it was not muted."""

    group: GroupView | None


@get("/groups", role=Role.VIEWER, costly=has_text_or_is_long)
async def list_groups(
    service: NamedDependency[Service],
    filters: NamedDependency[Query],
    limit: Limit = 50,
    with_muted: FromQuery[bool] = False,
    spark: Annotated[int | None, QueryParameter(ge=2, le=200)] = None,
    last: FromQuery[str] = "24h",
    sort: FromQuery[GroupOrder] = GroupOrder.LETTERS,
    skip: Annotated[int, QueryParameter(ge=0, le=10_000)] = 0,
) -> list[TrendView]:
    """Letters with one cause are one group; the largest first, or sorted otherwise, without the first `skip`. Those
    that are muted are left out, unless they are asked for: `/api/muted-groups` has them. With `spark` each has so many
    counts of the `last` time. Its trend is always of the last day; `standing` is the one word for how it stands."""
    span = span_of(last)
    return await service.trends(
        filters, last=span, spark=spark, limit=limit, with_muted=with_muted, order=sort, skip=skip
    )


@get("/muted-groups", role=Role.VIEWER)
async def list_muted(service: NamedDependency[Service]) -> list[Mark]:
    """The groups that are muted, by whom, until when and why."""
    return await service.muted_groups()


@get("/groups/{id:str}", role=Role.VIEWER)
async def show_group(service: NamedDependency[Service], id: FromPath[str]) -> TrendView:
    """One group, by its id or the beginning of it, with its trend and standing; without a sparkline."""
    return await service.trend(id)


@post("/groups/{id:str}/fix", role=Role.OPERATOR, status_code=200)
async def fix_group(
    service: NamedDependency[Service], actor: NamedDependency[Actor], id: FromPath[str], data: JSONBody[Fixing]
) -> FixReport:
    """It is fixed in that version. When every worker of its sources runs it, its letters go back, if `auto`, or
    somebody is told that they can. A letter that dies on it all the same makes it regressed."""
    return await service.fix(id, data.version, actor=actor, auto=data.auto, why=data.why)


@post("/groups/{id:str}/unfix", role=Role.OPERATOR, status_code=200)
async def unfix_group(service: NamedDependency[Service], actor: NamedDependency[Actor], id: FromPath[str]) -> GroupView:
    """It is not fixed after all."""
    return await service.unfix(id, actor=actor)


@post("/groups/{id:str}/mute", role=Role.OPERATOR, status_code=200)
async def mute_group(
    service: NamedDependency[Service], actor: NamedDependency[Actor], id: FromPath[str], data: JSONBody[Muting]
) -> GroupView:
    """No alert of it is sent until then, and lists leave it out; it comes back by itself."""
    return await service.mute(id, timedelta(seconds=data.seconds), actor=actor, why=data.why)


@post("/groups/{id:str}/unmute", role=Role.OPERATOR, status_code=200)
async def unmute_group(service: NamedDependency[Service], actor: NamedDependency[Actor], id: FromPath[str]) -> Unmuted:
    """People hear of it again."""
    return Unmuted(await service.unmute(id, actor=actor))


@get("/groups/{id:str}/notes", role=Role.VIEWER)
async def list_group_notes(service: NamedDependency[Service], id: FromPath[str]) -> list[GroupNote]:
    """What people wrote down beside it, the oldest first. Who reaches a part of the group only is told none."""
    return await service.group_notes(id)


@post("/groups/{id:str}/notes", role=Role.OPERATOR, status_code=200)
async def note_group(
    service: NamedDependency[Service], actor: NamedDependency[Actor], id: FromPath[str], data: JSONBody[Noting]
) -> list[GroupNote]:
    """Write something down beside it. The newest 200 notes are kept."""
    return await service.note_group(id, data.text, actor=actor)


@post("/groups/{id:str}/assign", role=Role.OPERATOR, status_code=200)
async def assign_group(
    service: NamedDependency[Service], actor: NamedDependency[Actor], id: FromPath[str], data: JSONBody[Assigning]
) -> GroupView:
    """Say who sees to it."""
    return await service.assign(id, data.to, actor=actor)


@get("/groups/{id:str}/differs", role=Role.VIEWER, costly=True)
async def show_differences(service: NamedDependency[Service], id: FromPath[str]) -> Differences:
    """Which values many of its letters have, and few others of its sources do: fields of a JSON body, headers, tenant,
    version and worker, as they are shown. Of a sample: up to 150 of the newest letters of both."""
    return await service.differs(id)


router = Router(
    "/api",
    route_handlers=[
        list_groups,
        list_muted,
        show_group,
        fix_group,
        unfix_group,
        mute_group,
        unmute_group,
        list_group_notes,
        note_group,
        assign_group,
        show_differences,
    ],
    dependencies={"filters": from_url(Query)},
    tags=["groups"],
)
