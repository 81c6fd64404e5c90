"""Replays of tasks: the console and the CLI send a letter back, and the app that can run it finds it in the store.

A workflow has no broker. What is sent back is a small document in the store that keeps the letters; the processor of
any app on that store takes it, by compare-and-set and for the time of a lease, and runs the task.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from redrive.clock import Clock
from redrive.errors import StoreUnavailable, TransportUnavailable, UsageError
from redrive.flow.lineage import lineage
from redrive.model import Letter, LetterId, Message, Owner, State
from redrive.registry import open_store
from redrive.stores.base import Store
from redrive.systems.workflow.task import SOURCE
from redrive.transports.base import ACCEPTED, Delivery, Depth, Features, SendResult, Settlement, refused, unknown

KIND = "workflow-replay"


class Sent(Struct, frozen=True, kw_only=True):
    """One letter on its way back."""

    letter: LetterId
    replay: str | None
    owner: Owner | None = None
    until: datetime | None = None


class Inbox:
    """What was sent back and waits for a processor."""

    def __init__(
        self, store: Store, clock: Clock, now: Callable[[], datetime], *, owner: Owner, lease: timedelta
    ) -> None:
        self._store = store
        self._clock = clock
        self._now = now
        self._owner = owner
        self._lease = lease
        self._mine: set[LetterId] = set()

    def has(self, letter: Letter) -> bool:
        return letter.id in self._mine

    async def take(self, room: int) -> Sequence[Letter]:
        """At most so many, each for us alone."""
        if room <= 0:
            return []
        taken: list[Letter] = []
        for document in await self._store.documents.list(KIND):
            if len(taken) == room:
                break
            letter = await self._taken(document.id, msgspec.convert(document.body, Sent), document.version)
            if letter is not None:
                taken.append(letter)
        return taken

    async def _taken(self, id: str, sent: Sent, version: int) -> Letter | None:
        now = self._now()
        if id in self._mine or (sent.until is not None and sent.until > now):
            return None
        mine = replace(sent, owner=self._owner, until=now + self._lease)
        if not await self._store.documents.put(KIND, id, msgspec.to_builtins(mine), expect=version):
            return None
        letter = await self._store.letters.get(sent.letter)
        if letter is None or letter.state is not State.REPLAYING:  # archived, or resolved, meanwhile
            await self._store.documents.delete(KIND, id)
            return None
        self._mine.add(id)
        return replace(letter, replay=sent.replay)

    async def forget(self, letter: Letter) -> None:
        """Its outcome is written."""
        if letter.id in self._mine:
            await self._store.documents.delete(KIND, letter.id)
            self._mine.discard(letter.id)

    async def give_back(self, letter: Letter) -> None:
        """Another may have it."""
        self._mine.discard(letter.id)
        sent = Sent(letter=letter.id, replay=letter.replay)
        await self._store.documents.put(KIND, letter.id, msgspec.to_builtins(sent))


class WorkflowTransport:
    """Sends letters back to the workflow apps on a store."""

    features = Features(
        durable=True,
        native_delay=False,
        counts_attempts=False,
        keeps_history=False,
        ordered_by="none",
        idempotent_send=True,
        shared=True,
    )

    def __init__(self, store: Store, *, owned: bool = False) -> None:
        self._store = store
        self._owned = owned

    async def send(self, messages: Sequence[Message]) -> Sequence[SendResult]:
        return [await self._sent(message) for message in messages]

    async def _sent(self, message: Message) -> SendResult:
        origin = lineage(message)
        if origin is None:
            return refused(
                f"a workflow is not started by a message: run it with app.execute_workflow_parallel(…), "
                f"or send {message.id!r} to another source"
            )
        sent = Sent(letter=origin.letter, replay=origin.replay)
        try:
            await self._store.documents.put(KIND, origin.letter, msgspec.to_builtins(sent))
        except StoreUnavailable as error:
            return unknown(error)
        return ACCEPTED

    async def receive(self, source: str, limit: int) -> Sequence[Delivery]:
        raise UsageError(
            "nothing is received from a workflow transport: the app's own retry processor runs what was sent back"
        )

    async def extend(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        return []

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Delivery]:
        return []

    async def depths(self) -> dict[str, Depth]:
        waiting = len(await self._store.documents.list(KIND))
        return {SOURCE: Depth(ready=waiting, delayed=0, leased=0)} if waiting else {}

    async def check(self) -> None:
        try:
            await self._store.check()
        except StoreUnavailable as error:
            raise TransportUnavailable(error.name, error.why) from error

    async def aclose(self) -> None:
        if self._owned:
            await self._store.aclose()


def open_transport(url: str, *, clock: Clock, lease: timedelta) -> WorkflowTransport:
    """`workflow+sqlite:///workflow.db`, `workflow+opensearch://host:9200/mahavishnu_dlq`: where its store is."""
    store = url if url.startswith("workflow+opensearch") else url.removeprefix("workflow+")
    return WorkflowTransport(open_store(store), owned=True)
