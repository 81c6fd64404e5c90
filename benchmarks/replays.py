"""How fast letters of another framework's worker go back into its queue: a whole replay, from a store in SQLite."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.actors import acting
from benchmarks.harness import async_rate
from redrive import Redrive
from redrive.config.settings import Settings
from redrive.forensics.query import Query
from redrive.integrations.letters import failure_of, letter_of
from redrive.model import Letter, Message
from redrive.service import Service

_BATCH = 500


async def replayed(name: str, url: str, messages: Iterable[Message]) -> float:
    """Letters a second through the transport of that URL, claims, confirmations and the ledger included."""
    with TemporaryDirectory() as place:
        store = f"sqlite:///{Path(place) / 'letters.db'}"
        async with Redrive(settings=Settings(store=store, transports={name: url})) as app:
            letters = [_letter(app, name, message) for message in messages]
            for first in range(0, len(letters), _BATCH):
                await app.store.letters.record(letters[first : first + _BATCH])
            service = Service(app)
            replay = await service.replay(Query(), every=True, actor=acting("benchmark"))

            async def run() -> None:
                report = await service.run_replay(replay.id)
                assert report.replay.total == len(letters), report

            return await async_rate(len(letters), run())


def _letter(app: Redrive, name: str, message: Message) -> Letter:
    now = app.clock.now()
    return letter_of(message, [failure_of(ValueError("no"), at=now)], transport=name, now=now)
