"""The routes of letters: seeing them, in groups and one by one, and acting on them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

from litestar import Router, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter
from msgspec import Meta, Struct

from redrive.access.actors import Actor, Role
from redrive.access.trail import Phase
from redrive.access.trail_store import Filter
from redrive.admin.costly import has_text, is_filtered
from redrive.admin.edits import edit_letter, preview_edit, undo_edit
from redrive.admin.problems import Unreadable
from redrive.admin.wire import from_url
from redrive.forensics.ancestry import LetterLineage
from redrive.forensics.carried import CarriedMessage
from redrive.forensics.query import Query
from redrive.forensics.stats import Stats
from redrive.forensics.views import Detail
from redrive.service import RetryReport, Service, Sources, Summaries
from redrive.service.shown_settings import ShownSetting
from redrive.stores.base import Cursor

Ids = Annotated[tuple[str, ...], Meta(min_length=1, max_length=1000)]
Limit = Annotated[int, QueryParameter(ge=1, le=1000)]
_TOLD = 10_000  # letters that an answer names


class Named(Struct, frozen=True, forbid_unknown_fields=True):
    """Letters by their ids."""

    ids: Ids


class Selected(Struct, frozen=True, forbid_unknown_fields=True):
    """Letters by their ids, or by a query. An empty query takes `all: true`, too."""

    ids: Ids | None = None
    query: Query | None = None
    all: bool = False


class Because(Struct, frozen=True, forbid_unknown_fields=True):
    """Why, for the audit trail."""

    reason: Annotated[str, Meta(max_length=1000)]


class Counted(Struct, frozen=True):
    """How many letters a query selects."""

    count: int


class Purged(Struct, frozen=True):
    """How many were deleted."""

    purged: int


class Archived(Struct, frozen=True):
    """How many were archived, and which: what `unarchive` takes to undo it. No ids where they are too many to tell."""

    archived: int
    ids: list[str] | None


class Unarchived(Struct, frozen=True):
    """How many were taken back."""

    unarchived: int


@get("/letters", role=Role.VIEWER, costly=has_text)
async def list_letters(
    service: NamedDependency[Service],
    filters: NamedDependency[Query],
    after: FromQuery[Cursor | None] = None,
    limit: Limit = 50,
) -> Summaries:
    """Newest first. A list takes its parameter again and again: `states=pending&states=exhausted`."""
    return await service.letters(filters, after=after, limit=limit)


@post("/count", role=Role.VIEWER, status_code=200, reads=True, costly=True)
async def count_letters(service: NamedDependency[Service], data: JSONBody[Query]) -> Counted:
    """How many letters a query selects."""
    return Counted(await service.count(data))


@get("/letters/{id:str}", role=Role.VIEWER)
async def show_letter(service: NamedDependency[Service], id: FromPath[str]) -> Detail:
    """Every attempt with its stack, headers, body and lineage, redacted. By the letter's id or its message's."""
    return await service.letter(id)


@get("/letters/{id:str}/lineage", role=Role.VIEWER)
async def show_lineage(service: NamedDependency[Service], id: FromPath[str]) -> LetterLineage:
    """What it waits for and what waits for it, the replays it was in with what became of it there, and its versions."""
    return await service.lineage(id)


@get("/settings", role=Role.ADMIN, whole=True)
async def show_settings(service: NamedDependency[Service]) -> list[ShownSetting]:
    """Every setting that this process runs with: its value with secrets masked, and where that comes from."""
    return service.settings()


@get("/letters/{id:str}/message", role=Role.VIEWER)
async def carry_message(
    service: NamedDependency[Service],
    actor: NamedDependency[Actor],
    id: FromPath[str],
    reason: Annotated[str, QueryParameter(max_length=1000)] = "",
) -> CarriedMessage:
    """The message alone, for `redrive debug --server`: `redacted`, unless whoever asks may unmask and gives a reason,
    which is kept in the audit trail."""
    return await service.message(id, actor=actor, reason=reason)


@post("/letters/{id:str}/unmask", role=Role.VIEWER, status_code=200)
async def unmask_letter(
    service: NamedDependency[Service], actor: NamedDependency[Actor], id: FromPath[str], data: JSONBody[Because]
) -> CarriedMessage:
    """The message of one letter as it is, secrets included. It takes a token that may unmask, whatever its role."""
    return await service.unmask(id, actor=actor, reason=data.reason)


@post("/letters/retry", role=Role.OPERATOR, status_code=200)
async def retry_letters(
    service: NamedDependency[Service], actor: NamedDependency[Actor], data: JSONBody[Named]
) -> RetryReport:
    """Send these back now. `letters` says what the ledger says of each: sent, skipped or waiting and why, or refused,
    because it is on its way already, resolved or archived."""
    return await service.retry(data.ids, actor=actor)


@post("/letters/archive", role=Role.OPERATOR, status_code=200, costly=True)
async def archive_letters(
    service: NamedDependency[Service], actor: NamedDependency[Actor], data: JSONBody[Selected]
) -> Archived:
    """Done with. What is on its way keeps its course. `ids` are those that this archived, null where they are more
    than 10,000."""
    ids: list[str] = []

    def tell(archived: Sequence[str]) -> None:
        if len(ids) <= _TOLD:  # past it they are not told, and need not be kept
            ids.extend(archived)

    total = await service.archive(await _query(service, data), actor=actor, every=data.all, tell=tell)
    return Archived(total, ids if total <= _TOLD else None)


@post("/letters/unarchive", role=Role.OPERATOR, status_code=200, costly=True)
async def unarchive_letters(
    service: NamedDependency[Service], actor: NamedDependency[Actor], data: JSONBody[Selected]
) -> Unarchived:
    """Back to what they were: pending, exhausted, sent or resolved. None of them is retried by itself."""
    return Unarchived(await service.unarchive(await _query(service, data), actor=actor, every=data.all))


@post("/letters/purge", role=Role.ADMIN, status_code=200, costly=True)
async def purge_letters(
    service: NamedDependency[Service], actor: NamedDependency[Actor], data: JSONBody[Selected]
) -> Purged:
    """Delete them for good, with all their versions, except those on their way."""
    return Purged(await service.purge(await _query(service, data), actor=actor, every=data.all))


async def _query(service: Service, data: Selected) -> Query:
    if (data.ids is None) == (data.query is None):
        raise Unreadable("say which letters, by `ids` or by `query`, and not by both")
    return await service.named(data.ids) if data.ids is not None else data.query or Query()


@get("/stats", role=Role.VIEWER)
async def show_stats(service: NamedDependency[Service]) -> Stats:
    """Letters by state, category and source, and how full the queues are. What did not answer within 5 seconds is in
    `unanswered`, with the reason; without the store `total` and `open` are null."""
    return await service.stats()


@get("/sources", role=Role.VIEWER)
async def list_sources(service: NamedDependency[Service]) -> Sources:
    """Every source that has a handler here, a letter, or a message waiting; `details` has its queue, its letters, its
    workers and their versions, and whether it is paused or in a storm. What does not answer is in `unanswered`."""
    return await service.sources_in_detail()


@get("/audit", role=Role.ADMIN, costly=is_filtered)
async def show_audit(
    service: NamedDependency[Service],
    limit: Limit = 50,
    before: Annotated[int | None, QueryParameter(ge=1)] = None,
    actor_has: FromQuery[str] = "",
    action: FromQuery[str] = "",
    about: FromQuery[str] = "",
    outcome: FromQuery[Phase | None] = None,
    since: FromQuery[datetime | None] = None,
) -> list[dict[str, Any]]:
    """Who did what, newest first, each act once with its outcome; `began` where that is not known."""
    if since is not None and since.tzinfo is None:
        raise Unreadable("since has no time zone", "write it as 2026-01-31T12:00:00Z")
    only = Filter(actor=actor_has, action=action, about=about, outcome=outcome, since=since)
    return await service.audit(limit, only=only, before=before)


router = Router(
    "/api",
    route_handlers=[
        list_letters,
        show_letter,
        show_lineage,
        show_settings,
        carry_message,
        unmask_letter,
        retry_letters,
        count_letters,
        archive_letters,
        purge_letters,
        unarchive_letters,
        edit_letter,
        preview_edit,
        undo_edit,
        show_stats,
        list_sources,
        show_audit,
    ],
    dependencies={"filters": from_url(Query)},
    tags=["letters"],
)
