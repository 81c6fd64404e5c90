"""What the checks of several integrations share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from redrive.app import Redrive
from redrive.doctor.cluster import is_made
from redrive.doctor.files import is_missing
from redrive.doctor.findings import Finding, failure
from redrive.errors import RedriveError
from redrive.forensics.query import Query
from redrive.model import Letter
from redrive.stores.base import Store

T = TypeVar("T")
_SAMPLE = 200


def ways_back(app: Redrive, schemes: Mapping[str, str]) -> list[str]:
    """The names of the transports that have one of these schemes."""
    return [name for name, url in app.settings.transports.items() if url.partition("://")[0] in schemes]


async def asked_of_store(app: Redrive, question: Callable[[Store], Awaitable[T]]) -> T | None:
    """The answer of the store; None, if it does not answer, which another check says, or is not there yet: to look into
    it would make it."""
    if is_missing(app.urls["store"]):
        return None
    try:
        return await question(app.store) if await is_made(app.store) else None
    except RedriveError:
        return None


async def samples_of(app: Redrive, transport: str) -> Sequence[Letter]:
    """The latest letters of that transport, as far as the store tells."""
    query = Query(transports=(transport,))
    page = await asked_of_store(app, lambda store: store.letters.search(query, limit=_SAMPLE))
    return () if page is None else page.letters


async def away(app: Redrive, transport: str) -> list[Finding]:
    """A failure, if nothing can be sent back through that transport now."""
    about = f"transports.{transport}"
    try:
        await app.transport(transport).check()
    except RedriveError as error:
        return [failure(about, str(error), f"start it, or correct `{about}`: until then nothing can be replayed")]
    return []


async def lost_ways(app: Redrive, framework: str, scheme: str) -> list[Finding]:
    """A failure, if there are letters under that name, which a middleware gives them by itself, and no transport."""
    if framework in app.settings.transports or not await samples_of(app, framework):
        return []
    mend = f'set `transports.{framework}`, as in "{scheme}://…"'
    return [failure(f"transports.{framework}", f"letters of {framework} have no way back to their workers", mend)]
