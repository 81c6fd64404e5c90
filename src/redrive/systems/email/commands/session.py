"""The settings of the e-mail system, and what its commands share."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import click
from msgspec.structs import replace

from redrive.cli.options import span
from redrive.cli.session import Needs, ask_store, loaded
from redrive.config.settings import Settings
from redrive.forensics.query import Query
from redrive.model import OPEN, Letter
from redrive.service import Service
from redrive.stores.paging import every_letter
from redrive.systems.email.dlq import dlq_url
from redrive.systems.email.rules import canonical_code
from redrive.systems.email.settings import EmailSettings
from redrive.systems.email.shape import code_of
from redrive.systems.email.snapshot import NO_CODE

T = TypeVar("T")


def email_settings() -> Settings:
    """The settings of this call, with the queue and the letters of the e-mail system."""
    settings = loaded().settings
    return replace(
        settings,
        store=dlq_url(settings.of(EmailSettings)),
        transports={**settings.transports, "default": settings.of(EmailSettings).redis},
    )


def ask_email(work: Callable[[Service], Awaitable[T]]) -> T:
    """Do that with a Service on the DLQ."""

    async def declared(service: Service) -> T:
        service.app.declare(email_settings().of(EmailSettings).queue)
        return await work(service)

    return ask_store(declared, Needs.QUEUES, email_settings())


def dead(**changes: Any) -> Query:
    """The query of what is in the DLQ."""
    return Query(states=OPEN, sources=(loaded().settings.of(EmailSettings).queue,), **changes)


def which(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say which dead letters; the command gets them as `query`."""

    @functools.wraps(command)
    def with_query(
        code: str | None,
        company: tuple[str, ...],
        older_than: timedelta | None,
        newer_than: timedelta | None,
        **rest: Any,
    ) -> Any:
        now = datetime.now(UTC)
        query = dead(
            code=code,
            tenants=company or None,
            before=None if older_than is None else now - older_than,
            since=None if newer_than is None else now - newer_than,
        )
        return command(query=query, **rest)

    wrapped: Callable[..., Any] = with_query
    for option in (
        click.option("--newer-than", type=span, metavar="DURATION", help="Died within this time: 30m, 1d."),
        click.option("--older-than", type=span, metavar="DURATION", help="Died longer ago than this: 2h, 30d."),
        click.option("--company", multiple=True, metavar="ID", help="Of this company. Repeatable."),
        click.option("--code", help="With this code of the last failure: 421, 550, Throttling, none …"),
    ):
        wrapped = option(wrapped)
    return wrapped


async def by_code(service: Service, query: Query) -> Query:
    """The same letters, chosen by the code that their entry shows: a store knows only what a server has said."""
    if query.code is None:
        return query
    wanted, wide = canonical_code(query.code), replace(query, code=None)
    ids = [letter.id async for letter in every_letter(service.app.store.letters, wide) if shown_code(letter) == wanted]
    return replace(wide, ids=tuple(ids))


def shown_code(letter: Letter) -> str:
    """The code of a letter as its entry has it; `none` where there is none."""
    return code_of(letter) or NO_CODE


def is_narrowed(query: Query) -> bool:
    """Whether any option narrows the query."""
    return any(
        value is not None
        for value in (query.code, query.tenants, query.before, query.since, query.message_ids, query.ids)
    )
