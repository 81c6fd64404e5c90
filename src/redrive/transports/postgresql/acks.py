"""What is handled in transactions of its own: which leases it has, and which acks those transactions have committed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from redrive.drivers.postgresql.link import Link, rows
from redrive.drivers.postgresql.pool import Connection, Pool
from redrive.errors import NotNow
from redrive.model import Done, Message
from redrive.transports.base import Delivery, Settlement
from redrive.transports.postgresql.leases import Held
from redrive.transports.postgresql.rows import as_bytes
from redrive.transports.postgresql.sending import PACKAGE
from redrive.transports.postgresql.work import Work

_MOST = 1000  # transactions at a time; how many there are is the handler's `concurrency`


class CommittedAcks:
    """Those of one transport."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._pool: Pool | None = None
        self._held: dict[str, dict[str, Delivery]] = {}  # by source and id
        self._committed: set[Held] = set()

    def watch(self, source: str) -> None:
        """From now on, what is received of it may be asked for."""
        self._held.setdefault(source, {})

    def watches(self, source: str) -> bool:
        return source in self._held

    def add(self, source: str, deliveries: Iterable[Delivery]) -> None:
        """These were received."""
        if source in self._held:
            self._held[source].update((delivery.message.id, delivery) for delivery in deliveries)

    def work(self, message: Message) -> Work:
        """The transaction in which that message is handled."""
        delivery = self._held.get(message.source, {}).get(message.id)
        if delivery is None:
            raise NotNow("its lease was lost: another worker has it")
        if self._pool is None:
            self._pool = self._link.pool(_MOST)
        return Work(self._pool, delivery, self)

    async def acknowledge(self, connection: Connection, delivery: Delivery) -> bool:
        """Delete it in the transaction of that connection. From now on its lease is not lost, though it is gone."""
        token, id = delivery.token
        self._committed.add(delivery.token)
        arguments = (as_bytes(delivery.message.source), id, token)
        [(held,)] = await rows(connection, self._link.sql(PACKAGE, "done_within"), arguments)
        if not held:
            self.was_not_committed(delivery)
        return bool(held)

    def was_not_committed(self, delivery: Delivery) -> None:
        """Its transaction has failed: it is settled otherwise."""
        self._committed.discard(delivery.token)

    async def exists(self, delivery: Delivery) -> bool:
        token, id = delivery.token
        arguments = (as_bytes(delivery.message.source), id, token)
        return bool(await self._link.fetch(self._link.sql(PACKAGE, "exists"), arguments))

    def not_committed(self, lost: set[Held]) -> set[Held]:
        """Those that are lost, and not only gone with the transaction of their handler."""
        return lost - self._committed

    def left(self, source: str, settlements: Sequence[Settlement]) -> list[Settlement]:
        """Those that no transaction has settled."""
        left: list[Settlement] = []
        for item in settlements:
            delivery, held = item.delivery, item.delivery.token
            if self._held[source].get(delivery.message.id) is delivery:
                del self._held[source][delivery.message.id]
            if held not in self._committed or not isinstance(item.outcome, Done):
                left.append(item)
            self._committed.discard(held)
        return left

    async def aclose(self) -> None:
        if self._pool is not None:
            await self._pool.aclose()
