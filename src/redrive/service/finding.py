"""Which sources there are, and on which transport: by this app, by the workers that run, by the brokers, by letters."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from redrive.errors import Unavailable, UnknownSource, UsageError
from redrive.flow.pauses import pauses_of
from redrive.forensics.query import Query
from redrive.transports.base import HasSources, Transport
from redrive.upkeep.heartbeat import beats

if TYPE_CHECKING:
    from redrive.app import Redrive


class SourceFinder:
    """Looks for sources. Makes nothing.

    reaches   whether all of a source is in the scope of whoever asks: no other is named to them
    """

    def __init__(self, app: Redrive, reaches: Callable[[str], bool] = lambda source: True) -> None:
        self._app = app
        self._reaches = reaches

    async def known(self) -> set[str]:
        """Every source that has a handler here, a worker somewhere, a letter or a message, is declared or paused: as
        far as the transports answer, and whoever asks reaches it."""
        app = self._app
        known = app.sources | {tally.source for tally in await app.store.letters.tallies()} | set(await self.workers())
        for name, transport in app.transports.items():
            with suppress(Unavailable):
                known |= await self._held_by(name, transport)
        return {source for source in known if self._reaches(source)}

    async def transport_of(self, source: str, given: str | None = None, *, force: bool = False, hint: str = "") -> str:
        """The name of its transport. Raises UnknownSource for a source that nobody knows, unless it is forced.

        given   the transport that somebody has named; needed where two have such a source
        """
        if given is not None:
            self._app.transport(given)  # or it says which there are
        names = await self._transports_of(source)
        if given is None and len(names) > 1:
            raise UsageError(f"{source!r} is a source of the transports {' and '.join(names)}: say which (transport)")
        if given is not None and (given in names or force):
            return given
        if not names and force:
            return "default"
        if not names or given is not None:
            raise UnknownSource(source, await self.known(), hint)
        return names[0]

    async def _transports_of(self, source: str) -> list[str]:
        own = self._app.known_transport(source)
        if own is not None:
            return [own]
        worked_on = (await self.workers()).get(source, set()) & self._app.transports.keys()
        return sorted(worked_on) or await self._found(source) or await self._of_letters(source)

    async def _found(self, source: str) -> list[str]:
        """The transports that have it. One that does not answer counts only if no other has it."""
        found: list[str] = []
        away: Unavailable | None = None
        for name, transport in self._app.transports.items():
            try:
                if await self._has(name, transport, source):
                    found.append(name)
            except Unavailable as error:
                away = error
        if away is not None and not found:
            raise away
        return found

    async def _has(self, name: str, transport: Transport, source: str) -> bool:
        if isinstance(transport, HasSources) and await transport.has_source(source):
            return True
        return source in await self._held_by(name, transport)

    async def _held_by(self, name: str, transport: Transport) -> set[str]:
        """What has messages there, or is paused."""
        pauses = pauses_of(transport, name, self._app.store.documents, self._app.clock)
        paused = () if pauses is None else await pauses.pauses()
        return {*await transport.depths(), *(pause.source for pause in paused)}

    async def _of_letters(self, source: str) -> list[str]:
        page = await self._app.store.letters.search(Query(sources=(source,)), limit=1)
        return [letter.transport for letter in page.letters if letter.transport in self._app.transports]

    async def workers(self) -> dict[str, set[str]]:
        """The transports of each source that a worker has said it works on, also one that was lost."""
        found: dict[str, set[str]] = {}
        for _, beat in (await beats(self._app.store.documents)).values():
            for working in beat.sources:
                found.setdefault(working.source, set()).add(working.transport)
        return found
