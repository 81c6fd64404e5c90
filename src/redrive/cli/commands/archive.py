"""`redrive archive` and `redrive unarchive`: letters that are done with, and those that are not after all."""

from __future__ import annotations

import click
from msgspec.structs import replace

from redrive.cli.completing import a_letter
from redrive.cli.confirm import confirm, not_empty
from redrive.cli.exits import NOTHING, Stopped, saying_how_far
from redrive.cli.lazy import common
from redrive.cli.options import as_json, every, filters, until_now, yes
from redrive.cli.output import letters_said, say, tell_json
from redrive.cli.progress import Bar
from redrive.cli.session import actor, again, ask
from redrive.forensics.query import Query
from redrive.model import State
from redrive.service import Home


@click.command()
@click.argument("ids", shell_complete=a_letter, nargs=-1)
@filters
@every
@yes
@as_json
@common
def archive(ids: tuple[str, ...], query: Query, every: bool, yes: bool, as_json: bool) -> None:
    """Put letters away as done with, by their IDs or by a filter. They are kept, and not retried any more.

    \b
    redrive archive xkqj2m7pxw3abcde
    redrive archive --group 4kq2m7pxw3ab --older-than 7d
    """
    if ids and not query.is_empty:
        raise Stopped("give IDs or a filter, not both")
    if ids:
        total = ask(lambda service: _these(service, ids))
    else:
        not_empty(query, every=every, verb="archive")
        total = _by_filter(until_now(query), yes)
    tell_json({"archived": total}) if as_json else say(f"{letters_said(total)} archived")
    if total < max(1, len(ids)):
        raise click.exceptions.Exit(NOTHING)


async def _these(service: Home, ids: tuple[str, ...]) -> int:
    """Archive these letters, each looked up first: a wrong id archives nothing at all."""
    return await service.archive(await service.named(ids), actor=actor())


def _by_filter(query: Query, yes: bool) -> int:
    total = ask(lambda service: service.count(query))
    if total == 0:
        raise Stopped("no letter matches: nothing was archived", NOTHING)
    confirm(f"Archive {letters_said(total)}? They will not be retried any more.", yes=yes)
    with Bar("archiving", total) as bar, saying_how_far(lambda: _so_far(bar.done, total)):
        return ask(lambda service: service.archive(query, actor=actor(), progress=bar))


@click.command()
@click.argument("ids", shell_complete=a_letter, nargs=-1)
@filters
@every
@yes
@as_json
@common
def unarchive(ids: tuple[str, ...], query: Query, every: bool, yes: bool, as_json: bool) -> None:
    """Take archived letters back to what they were, by their IDs or by a filter. None is retried by itself.

    \b
    redrive unarchive xkqj2m7pxw3abcde
    redrive unarchive --group 4kq2m7pxw3ab
    """
    if ids and not query.is_empty:
        raise Stopped("give IDs or a filter, not both")
    if ids:
        total = ask(lambda service: _back(service, ids))
    else:
        not_empty(query, every=every, verb="unarchive")
        total = _back_by_filter(until_now(query), yes)
    tell_json({"unarchived": total}) if as_json else say(f"{letters_said(total)} taken back")
    if total < max(1, len(ids)):
        raise click.exceptions.Exit(NOTHING)


async def _back(service: Home, ids: tuple[str, ...]) -> int:
    return await service.unarchive(await service.named(ids), actor=actor())


def _back_by_filter(query: Query, yes: bool) -> int:
    total = ask(lambda service: service.count(replace(query, states=(State.ARCHIVED,))))
    if total == 0:
        raise Stopped("no archived letter matches: nothing was taken back", NOTHING)
    confirm(f"Take {letters_said(total)} back? None of them is retried by itself.", yes=yes)
    return ask(lambda service: service.unarchive(query, actor=actor()))


def _so_far(done: int, total: int) -> str:
    return f"{done:,} of {letters_said(total)} archived. The same again goes on with the rest:\n{again()}"
