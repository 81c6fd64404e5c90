"""What the commands of the tickets share: their settings, which dead tickets, and a Service on MongoDB."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
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
from redrive.systems.tickets.config import with_values
from redrive.systems.tickets.settings import TicketSettings
from redrive.systems.tickets.store import store_url

T = TypeVar("T")


def with_settings(command: Callable[..., Any]) -> Callable[..., Any]:
    """The option --values; the command gets the settings as `settings`."""

    @functools.wraps(command)
    def called(values: Path | None, **options: Any) -> Any:
        return command(settings=with_values(loaded().settings, values), **options)

    text = "A YAML file with kafka.dlq.{enabled,topic,maxRetriesBeforeDLQ}."
    return click.option("--values", type=click.Path(exists=True, dir_okay=False, path_type=Path), help=text)(called)


def which(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say which dead tickets; the command gets them as `chosen`."""

    @functools.wraps(command)
    def called(
        task_types: tuple[str, ...],
        error_type: str | None,
        ticket: tuple[str, ...],
        newer: Any,
        older: Any,
        **rest: Any,
    ) -> Any:
        return command(chosen=Chosen(task_types, error_type, ticket, newer, older), **rest)

    wrapped: Callable[..., Any] = called
    for option in (
        click.option(
            "--older-than", "older", type=span, metavar="DURATION", help="Dead for longer than this: 2h, 90d."
        ),
        click.option("--newer-than", "newer", type=span, metavar="DURATION", help="Dead within this time: 30m, 1d."),
        click.option("--ticket", multiple=True, metavar="ID", help="This ticket. Repeatable."),
        click.option("--error-type", help="With this type of error: its full name, or the last part of it."),
        click.option("--task-type", "task_types", multiple=True, help="Of this type. Repeatable."),
    ):
        wrapped = option(wrapped)
    return wrapped


class Chosen:
    """Which dead tickets."""

    def __init__(
        self,
        task_types: tuple[str, ...],
        error_type: str | None,
        ids: tuple[str, ...],
        newer: timedelta | None,
        older: timedelta | None,
    ) -> None:
        self._task_types = task_types
        self._error_type = error_type
        self._ids = ids
        self._newer = newer
        self._older = older
        self.is_narrow = any((task_types, error_type, ids, newer, older))

    def query(self, topic: str) -> Query:
        now = datetime.now(UTC)
        return Query(
            states=OPEN,
            sources=(topic,),
            error_type=self._error_type,
            message_ids=self._ids or None,
            since=None if self._newer is None else now - self._newer,
            before=None if self._older is None else now - self._older,
        )

    def wants(self, letter: Letter) -> bool:
        """Whether a letter is chosen by what a query cannot ask for."""
        from redrive.systems.tickets.ticket import fields_of, task_type  # needs an extra, and --help needs none

        return not self._task_types or task_type(fields_of(letter.message.body)) in self._task_types


def ask_tickets(settings: Settings, work: Callable[[Service], Awaitable[T]]) -> T:
    """Do that with a Service on the dead tickets."""

    async def declared(service: Service) -> T:
        service.app.declare(settings.of(TicketSettings).topic)
        return await work(service)

    return ask_store(declared, Needs.QUEUES, on_mongodb(settings))


def on_mongodb(settings: Settings) -> Settings:
    """The settings with the dead tickets as letters, which go back to Kafka."""
    own = settings.of(TicketSettings)
    return replace(settings, store=store_url(own), transports={**settings.transports, "default": own.kafka})


async def dead_tickets(service: Service, query: Query, chosen: Chosen, limit: int | None) -> list[Letter]:
    """The dead tickets that are chosen, newest first."""
    found: list[Letter] = []
    async for letter in every_letter(service.app.store.letters, query):
        if chosen.wants(letter):
            found.append(letter)
        if limit is not None and len(found) >= limit:
            break
    return found
