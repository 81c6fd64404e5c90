"""Everything that the messages of one source need on their way, in one place."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any, TypeAlias

from msgspec import Struct

from redrive.clock import Clock
from redrive.flow.classify import Classifier
from redrive.flow.decode import Decoder
from redrive.flow.held import KeyHolds
from redrive.flow.storms import StormGuard
from redrive.forensics.failures import FailureMask
from redrive.limits import Limits
from redrive.model import Holds, Message
from redrive.policy import Policy
from redrive.stores.base import Store
from redrive.telemetry.events import Events
from redrive.transports.base import DeadLetterPlace, Delivery, Transport

Span: TypeAlias = Callable[[Message], AbstractContextManager[Any]]
BatchSpan: TypeAlias = Callable[[Sequence[Message]], AbstractContextManager[Any]]


class Handler(Struct, frozen=True):
    """User code and how it wants to be called."""

    source: str
    call: Callable[..., Awaitable[Any]]
    decode: Decoder
    wants_message: bool
    policy: Policy
    timeout: timedelta
    concurrency: int
    transport: str = "default"
    name: str = ""
    limits: Limits = Limits()
    policy_of: Callable[[Delivery], Policy] | None = None  # where each message has a policy of its own
    decode_wants_message: bool = False  # a decoder of the user's own, with two parameters
    batch: int | None = None  # it takes lists of up to so many; None: one message at a time
    within: timedelta = timedelta()  # how long a batch that is not full waits for more
    exactly_once: bool = False  # its work and its ack are one transaction
    function: Callable[..., Any] | None = None  # as the user wrote it, for who wants to look at it


class Context(Struct, frozen=True):
    """One source's way from receive to ack."""

    handler: Handler
    transport: Transport
    store: Store
    classifier: Classifier
    events: Events
    clock: Clock
    worker: str
    version: str
    body_limit: int
    batch: int
    lease: timedelta
    span: Span | None = None  # around each attempt, where traces are wanted
    batch_span: BatchSpan | None = None  # around each call of a batch handler
    one_store: bool = False  # the transport leases letters of this very store: what it cannot take now is tried again
    dead_letter_place: DeadLetterPlace | None = None  # of the transport itself; letters go there before the store
    holds: KeyHolds | None = None  # which keys are held, where the policy holds them
    storm: StormGuard | None = None  # pauses the source, where the policy has a rule for it
    mask: FailureMask | None = None  # of what is said of failures outside of the store

    @property
    def source(self) -> str:
        return self.handler.source

    @property
    def policy(self) -> Policy:
        return self.handler.policy

    def policy_for(self, delivery: Delivery) -> Policy:
        """What is to be done when this one fails."""
        handler = self.handler
        return handler.policy if handler.policy_of is None else handler.policy_of(delivery)

    @property
    def most_attempts(self) -> int:
        """How often a message may be begun. What shared a batch when its worker died may have done nothing: it gets
        one more attempt, alone, so that only what takes its worker down by itself is buried for it."""
        return self.policy.most_attempts + (self.handler.batch is not None)

    @property
    def records_letters(self) -> bool:
        """Letters are recorded in the store, and not only in a dead-letter place of the transport's own."""
        return self.dead_letter_place is None or not self.dead_letter_place.replaces_store

    @property
    def parks(self) -> bool:
        """Retries wait in the store: the transport cannot delay them, or not without holding up what is behind."""
        features = self.transport.features
        return not features.native_delay or (self.policy.holds is Holds.NOTHING and not features.sets_aside)
