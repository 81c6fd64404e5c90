"""What the shell completes after Tab: sources, groups, letters, replays. Quick, bounded, and silent whatever is wrong.

A person waits for it at each Tab: the store is asked for a moment, and a store that is away has nothing to complete.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from redrive.service import Home

MOST = 50
_PATIENCE = 1.5  # seconds

Find = Callable[["Home", str], Awaitable[Sequence[tuple[str, str]]]]
"""Values that begin with what was typed, each with a word about it."""


def completed(find: Find) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """The completion of an argument or an option, as click takes it."""

    def complete(ctx: click.Context, parameter: click.Parameter, typed: str) -> list[CompletionItem]:
        try:
            with _silence():
                found = _asked(ctx, find, typed)
        except Exception:  # no configuration, no store, no permission: there is nothing to complete
            return []
        return [CompletionItem(value, help=about) for value, about in found if value.startswith(typed)][:MOST]

    return complete


def _asked(ctx: click.Context, find: Find, typed: str) -> Sequence[tuple[str, str]]:
    import asyncio

    from redrive.cli.session import Needs, ask

    async def work(service: Home) -> Sequence[tuple[str, str]]:
        async with asyncio.timeout(_PATIENCE):
            return await find(service, typed)

    with ctx.scope(cleanup=False):
        return ask(work, Needs.LETTERS)


@contextlib.contextmanager
def _silence() -> Any:
    """Nothing may be written between two keys of a person, by us or by a driver."""
    import logging

    logging.disable(logging.CRITICAL)
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
        logging.disable(logging.NOTSET)


async def _sources(service: Home, typed: str) -> Sequence[tuple[str, str]]:
    """Those that have letters, and those of a queue in a file; a broker would take too long to ask."""
    from redrive.service import Service

    if not isinstance(service, Service):
        return [(source, "") for source in (await service.sources()).sources]
    app = service.app
    found = {tally.source for tally in await app.store.letters.tallies()}
    for name, url in app.settings.transports.items():
        if url.startswith("sqlite://"):
            found |= (await app.transport(name).depths()).keys()
    return sorted((source, "") for source in found)


async def _groups(service: Home, typed: str) -> Sequence[tuple[str, str]]:
    from redrive.forensics.query import Query

    return [(group.id, f"{group.count} {group.error_type}") for group in await service.groups(Query(), limit=MOST)]


async def _letters(service: Home, typed: str) -> Sequence[tuple[str, str]]:
    from redrive.forensics.query import Query

    page = await service.letters(Query(id_prefix=typed or None), limit=MOST)
    return [(letter.id, f"{letter.source} {letter.error_type}") for letter in page.letters]


async def _replays(service: Home, typed: str) -> Sequence[tuple[str, str]]:
    return [(replay.id, f"{replay.state}") for replay in await service.list_replays(MOST)]


a_source, a_group, a_letter, a_replay = map(completed, (_sources, _groups, _letters, _replays))
