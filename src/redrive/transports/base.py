"""The seam to a broker: what a transport promises, and the values that cross it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from msgspec import Struct

from redrive.model import Done, Failure, Message, Outcome, Release, Retry


class Features(Struct, frozen=True, kw_only=True):
    """What a backend can promise. docs/guarantees.md is generated from these."""

    durable: bool  # what `send` accepted survives a crash of every process
    native_delay: bool  # it can hold a message back itself; otherwise the core parks it in the store
    counts_attempts: bool  # an attempt that died with its worker is counted too
    keeps_history: bool  # the failures of earlier attempts come back with the delivery
    ordered_by: str  # "source", "key", "none": what comes out in the order it went in, retries aside
    idempotent_send: bool  # an id sent again while it is queued is one message, not two
    shared: bool  # several processes can work on it at once


class Delivery(Struct, frozen=True, gc=False):
    """A message leased to us. Until it is settled it comes back to somebody when the lease ends."""

    message: Message
    token: Any  # the transport's own proof of the lease
    failures: tuple[Failure, ...] = ()
    redelivered: bool = False  # some earlier lease on it ended without a settlement, however long ago


class Settlement(Struct, frozen=True, gc=False):
    """What to do with one delivery. A buried one is `Done` to its transport: its letter is durable already."""

    delivery: Delivery
    outcome: Done | Retry | Release
    failure: Failure | None = None  # to be kept with the message, where it is retried


class Depth(Struct, frozen=True):
    """How many messages a source holds."""

    ready: int
    delayed: int
    leased: int

    @property
    def total(self) -> int:
        return self.ready + self.delayed + self.leased


class Transport(Protocol):
    """Moves messages. Raises TransportUnavailable, and no error of its driver, when it cannot now."""

    features: Features

    async def receive(self, source: str, limit: int) -> Sequence[Delivery]:
        """Lease up to `limit` messages, the most urgent first; waits for at least one. Safe to cancel."""
        ...

    async def extend(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        """Renew those leases; returns those that are lost, so that nobody settles them."""
        ...

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Delivery]:
        """Carry them out, durably, in one step; returns those whose lease was lost. Repeating it is harmless."""
        ...

    async def send(self, messages: Sequence[Message]) -> None:
        """Put each into its source; returns when they are durable.

        Where sends are idempotent, an id that is still queued stays where it is: as it was, or, if this one was sent
        back from a letter, as this one, so that its outcome finds its letter.
        """
        ...

    async def depths(self) -> dict[str, Depth]:
        """How full each source is."""
        ...

    async def check(self) -> None:
        """Raise TransportUnavailable, saying why, if it could not do its work now."""
        ...

    async def aclose(self) -> None:
        """Let go of everything; leases not settled are left to end."""
        ...


__all__ = ["Delivery", "Depth", "Features", "Outcome", "Settlement", "Transport"]
