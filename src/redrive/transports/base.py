"""The seam to a broker: what a transport promises, and the values that cross it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from enum import StrEnum
from types import TracebackType
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct

from redrive.errors import TransportUnavailable, Unavailable, UsageError
from redrive.limits import Limits
from redrive.model import Done, Failure, Holds, Letter, Message, MessageId, Outcome, Release, Retry


@contextmanager
def translated_errors() -> Iterator[None]:
    """Raise TransportUnavailable where a backend of the transport is away, whichever it is."""
    try:
        yield
    except TransportUnavailable:
        raise
    except Unavailable as error:
        raise TransportUnavailable(error.name, error.why) from error


class Features(Struct, frozen=True, kw_only=True):
    """What a backend can promise. docs/guarantees.md is generated from these."""

    durable: bool  # what `send` accepted survives a crash of every process
    native_delay: bool  # it can hold a retry back itself; otherwise the core parks it in the store
    counts_attempts: bool  # an attempt that died with its worker is counted too
    keeps_history: bool  # the failures of earlier attempts come back with the delivery
    ordered_by: str  # "source", "key", "none": what comes out in the order it went in, retries aside
    idempotent_send: bool  # an id sent again while it is queued is one message, not two
    shared: bool  # several processes can work on it at once
    urgent_first: bool = True  # of what is ready, the lower `priority` comes first
    delays_sends: bool = False  # `not_before` of what is sent is kept; otherwise the core refuses to send it
    counts_leased: bool = True  # its depths count what other workers hold, too
    sets_aside: bool = True  # a retry can wait without holding up what is behind it; otherwise the core parks it
    sends_within: bool = False  # a message can be sent within a transaction of the user's own (SendsWithin)
    exactly_once: bool = False  # a handler's work in its database and the ack can be one transaction (CommitsWork)


class Delivery(Struct, frozen=True, gc=False):
    """A message leased to us. Until it is settled it comes back to somebody when the lease ends."""

    message: Message
    token: Any  # the transport's own proof of the lease
    failures: tuple[Failure, ...] = ()
    redelivered: bool = False  # some earlier lease on it ended without a settlement, however long ago
    lane: Hashable = None  # those of one lane are attempted one after the other; None: in any order
    perhaps_untried: bool = False  # redelivered, but the broker says so also of what no worker had begun
    unreadable: str = ""  # what of it could not be read, and why: it is buried without an attempt
    is_counted: bool = True  # its attempt is counted; otherwise `begin` of its transport does it (CountsBegun)
    uncountable: str = ""  # redelivered, and why its transport could not count that: it must not be attempted


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


class Block(ABC):
    """Messages that were received together, without the cost of a Delivery for each: none of them was ever tried, or
    has headers or a time to live. As long as all goes well nobody asks for more of them than their bodies."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def bodies(self) -> list[bytes]: ...

    @abstractmethod
    def deliveries(self) -> list[Delivery]:
        """All of them as deliveries, in order."""

    @abstractmethod
    def is_ours(self) -> bool:
        """Whether nothing of it was taken from us since it was received."""

    @abstractmethod
    def join(self, other: Block) -> None:
        """Take in what was received after it."""

    @abstractmethod
    def split(self, number: int) -> Block:
        """Keep so many, and return the others."""


class CannotReturn(Exception):
    """Raised by `settle` for retries that the broker will never take: with what a retry adds, these messages are too
    large for it. Those beside them are settled, or can be settled again."""

    def __init__(self, why: Mapping[int, str]) -> None:
        super().__init__(f"{len(why)} messages cannot be retried: {next(iter(why.values()), '')}")
        self.why = why  # by the id() of the delivery


class SendStatus(StrEnum):
    """What became of one message that was sent."""

    ACCEPTED = "accepted"  # it is durable
    REFUSED = "refused"  # for good: the same message sent again is refused again
    BUSY = "busy"  # for now: a full queue, a broker that takes nothing. It was not taken
    UNKNOWN = "unknown"  # the answer got lost: it may have been taken


class SendResult(Struct, frozen=True, gc=False):
    """The answer for one message, and why it was not accepted."""

    status: SendStatus
    why: str = ""


ACCEPTED = SendResult(SendStatus.ACCEPTED)
_NO_ANSWERS = "its transport does not answer for each message that it sends: it needs a newer version of its plug-in"


def refused(why: object) -> SendResult:
    """Refused for good, and why."""
    return SendResult(SendStatus.REFUSED, str(why))


def busy(why: object) -> SendResult:
    """Not taken now, and why."""
    return SendResult(SendStatus.BUSY, str(why))


def unknown(why: object) -> SendResult:
    """It may have been taken; why nobody knows."""
    return SendResult(SendStatus.UNKNOWN, str(why))


def number_after(after: str | None) -> int:
    """The number that the cursor of a page stands for; 0 without one."""
    if after is not None and not (after.isascii() and after.isdecimal() and len(after) < 19):
        raise UsageError(f"{after!r} is no place in this queue: use `after` as the page before gave it")
    return int(after or 0)


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
        """Carry them out, durably, in one step; returns those whose lease was lost. Repeating it is harmless.

        Raises CannotReturn for retries that the broker will never take: these are buried instead.
        """
        ...

    async def send(self, messages: Sequence[Message]) -> Sequence[SendResult]:
        """Put each into its source. Answers for each message, in their order, when all answers are known: one that is
        not accepted says nothing of those beside it. What is accepted is durable. A message with `not_before`, which
        comes only where the features promise it, is not received before.

        Raises TransportUnavailable where it can say nothing of any message: each is then as if it were UNKNOWN. One
        that is sure that it has taken nothing answers BUSY instead.

        Where sends are idempotent, an id that is still queued stays where it is: as it was, or, if this one was sent
        back from a letter, as this one, so that its outcome finds its letter; whoever holds it has lost it then.
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


async def send_each(transport: Transport, messages: Sequence[Message]) -> Sequence[SendResult]:
    """The answer for each message, also of a transport that can say nothing of any, or is older than answers are."""
    try:
        answers: Sequence[SendResult] | None = await transport.send(messages)
    except TransportUnavailable as error:
        return [unknown(error)] * len(messages)
    if answers is None or len(answers) != len(messages):
        return [unknown(_NO_ANSWERS)] * len(messages)
    return answers


@runtime_checkable
class KeepsOrder(Protocol):
    """A transport whose features say `ordered_by="key"`: a retry can hold up what is behind it."""

    def keep_order(self, source: str, holds: Holds) -> None:
        """From the first receive on: what waits behind a message of that source that is to be retried, or was given
        back. Deliveries get their `lane` by it."""
        ...

    def is_ours(self, delivery: Delivery) -> bool:
        """Asked before it is attempted: its partition may have moved to another worker since it was received."""
        ...


@runtime_checkable
class MovesKeys(Protocol):
    """A transport in which a key has one worker at a time, until it moves to another."""

    @property
    def moves(self) -> int:
        """How often some have come to us; changed before the first message of theirs is received."""
        ...


@runtime_checkable
class KnowsWorkers(Protocol):
    """A transport whose broker can know a worker by its name, and gives it what it had when it is started again."""

    def join_as(self, worker: str) -> None:
        """Before the first receive, where the user has given this worker a name."""
        ...


@runtime_checkable
class ReceivesBlocks(Protocol):
    """A transport that can hand out messages to a batch handler at less than the cost of a Delivery each."""

    async def receive_block(self, source: str, limit: int) -> Sequence[Delivery] | Block:
        """As `receive`; a Block, if none of them needs a second look."""
        ...

    def settle_block(self, block: Block) -> Sequence[Delivery]:
        """All of it is done; returns what was lost meanwhile. What has to be written for that, it writes later: a
        crash may repeat them."""
        ...


@runtime_checkable
class Prefetches(Protocol):
    """A transport whose broker sends messages ahead, and no more than it was told."""

    def prefetch(self, source: str, number: int) -> None:
        """Before the first receive: whoever receives of that source holds up to so many at a time."""
        ...


class DeadLetterPlace(Protocol):
    """A place for dead letters in the broker itself, such as a dead-letter topic or queue."""

    name: str  # of the broker, as its errors call it
    replaces_store: bool  # a letter that it has taken is not recorded in the store as well

    async def bury(self, letters: Sequence[Letter]) -> Sequence[SendResult]:
        """Publish them there. Answers for each letter, in their order, when all answers are known; what is accepted is
        durable. One that is refused for good (it is too large) is recorded in the store. The others that are not
        accepted come again.

        Raises TransportUnavailable where it can say nothing of any letter: all of them come again then.
        """
        ...

    async def refer(self, letters: Sequence[Letter]) -> None:
        """Letters that it has refused are in the store now: leave a note of each for whoever reads that place, or do
        nothing. Raises TransportUnavailable when it cannot now, and is then asked again."""
        ...


@runtime_checkable
class HasDeadLetterPlace(Protocol):
    """A transport that has such places. Letters are published there before they are recorded in the store, and both
    before their message is acknowledged."""

    def dead_letter_place(self, source: str) -> DeadLetterPlace | None:
        """That of one source; None: its letters are recorded in the store only."""
        ...


@runtime_checkable
class Finds(Protocol):
    """A transport that can show what it holds without leasing it."""

    async def find(
        self,
        source: str,
        *,
        ids: Collection[MessageId] | None = None,
        containing: bytes | None = None,
        since: datetime | None = None,
        limit: int = 1000,
    ) -> Sequence[Message]:
        """The messages of that source that are queued, delayed or leased now, in the order they were sent.

        ids          only those with one of these
        containing   only those with these bytes in their body
        since        only those enqueued then or later
        """
        ...


class QueueState(StrEnum):
    """Where a message stands in its queue."""

    READY = "ready"
    DELAYED = "delayed"
    LEASED = "leased"


class Queued(Struct, frozen=True):
    """A message in its queue, as it stands."""

    message: Message  # its `attempt` is the one that is being made, or the next
    state: QueueState
    failures: tuple[Failure, ...] = ()
    until: datetime | None = None  # delayed: its next attempt is not before; leased: when the lease ends
    holder: str = ""  # leased: by whom, as his transport calls itself (`Lists.holder`)
    place: str = ""  # where it is, if a source has several places: a partition and offset, a retry topic


class Listing(Struct, frozen=True):
    """Some messages of a queue, where the next page begins (None: that was all), and what could not be shown."""

    messages: tuple[Queued, ...] = ()
    after: str | None = None
    notes: tuple[str, ...] = ()  # for people


@runtime_checkable
class Lists(Protocol):
    """A transport that can show how its messages stand, without leasing or changing anything."""

    @property
    def holder(self) -> str:
        """What others see as the holder of our leases; empty where nobody else can see them."""
        ...

    async def listing(
        self, source: str, *, state: QueueState | None = None, after: str | None = None, limit: int = 100
    ) -> Listing:
        """A page of that queue. It moves on while somebody pages through it.

        state   only those that stand so
        after   where the page before has ended
        """
        ...


@runtime_checkable
class CountsBegun(Protocol):
    """A transport that counts an attempt when it begins, and not when its message is received: what a worker had only
    fetched when it died was not attempted. Such deliveries come with `is_counted=False`."""

    async def begin(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        """Count the attempts of these, durably: they are made as soon as it returns. Returns those whose lease is
        lost, which nobody must attempt. Repeating it is harmless."""
        ...

    def begin_at_once(self, source: str, at_once: bool) -> None:
        """From the next receive on, count the attempts of that source when they are received, or not. Asked for where
        attempts are so short that all of them begin at once."""
        ...


@runtime_checkable
class KeepsLimits(Protocol):
    """A transport that can keep a rate, and share a source fairly among tenants, over all its workers."""

    def limit(self, source: str, limits: Limits) -> None:
        """Keep to these from now on. Called before the first `receive` of that source."""
        ...


@runtime_checkable
class TakesTurns(Protocol):
    """A transport that knows how the tenants of a fair source fare."""

    async def tenants(self, source: str, limit: int = 1000) -> Sequence[Any]:
        """Each with name, waiting, rounds_without_processing, current_priority, total_processed,
        consecutive_batch_count and last_processed_at; the last served first. Nobody where a source is not fair."""
        ...


class Paused(Struct, frozen=True):
    """A source that nobody receives from: who has paused it, when and why."""

    source: str
    by: str  # a person, or the rule that did it
    at: datetime
    why: str = ""
    until: datetime | None = None  # when it ends by itself; None: when somebody resumes it
    storm: bool = False  # the storm guard has done it, and ends it when what it tries succeeds
    probe_at: datetime | None = None  # when that tries again

    def is_over(self, now: datetime) -> bool:
        return self.until is not None and self.until <= now


@runtime_checkable
class Pausable(Protocol):
    """A transport that keeps itself, durably and for all its workers, which sources are paused."""

    async def pause(self, paused: Paused) -> Paused:
        """Let nobody receive from that source until it is resumed, or until that time. What is leased may end, and
        sending goes on; what waits for its retry waits on. Returns the pause that holds now: if the source was paused
        already, the first."""
        ...

    async def resume(self, source: str) -> Paused | None:
        """End the pause of that source; returns it, or None if there was none."""
        ...

    async def pauses(self) -> Sequence[Paused]:
        """The sources that are paused now."""
        ...


@runtime_checkable
class FollowsPauses(Protocol):
    """A transport whose broker has no place for it: Redrive keeps in the store which sources are paused, and tells
    the transport of each worker."""

    async def set_paused(self, sources: Collection[str]) -> None:
        """From now on `receive`, also one that is under way, hands out nothing of these sources, and goes on with all
        others. What was prefetched of them and handed out to nobody goes back, and no attempt of it is counted. Called
        before the first `receive`, with every change, and each second while something is paused."""
        ...


@runtime_checkable
class HasSources(Protocol):
    """A transport whose broker knows a source even while nothing is in it."""

    async def has_source(self, source: str) -> bool:
        """Whether the broker has it. Makes nothing."""
        ...


@runtime_checkable
class SendsWithin(Protocol):
    """A transport in a database, which can send within a transaction of the user's own."""

    async def send_within(self, connection: Any, message: Message) -> None:
        """Send it with one statement on that connection: the message exists exactly when that transaction commits.

        UsageError, before anything is sent, if the connection has no transaction, is closed, or leads elsewhere.
        """
        ...


@runtime_checkable
class CommitsWork(Protocol):
    """A transport in a database, in which an ack can be committed together with what a handler writes there."""

    def commit_work(self, source: str) -> None:
        """From the next receive on, `work` is asked for that source."""
        ...

    def work(self, message: Message) -> Work:
        """The transaction in which a message that was received is handled."""
        ...


class Work(Protocol):
    """`async with work as connection:` at the end of the block the message is acknowledged in the same transaction, and
    all of it committed. What the block raises rolls it back; so does a lease that was lost, which raises NotNow."""

    delivery: Delivery

    async def __aenter__(self) -> Any: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None: ...


class Examined(Protocol):
    """How a broker differs from what a transport needs of it. Each text is for people."""

    @property
    def missing(self) -> Sequence[str]:
        """Queues and exchanges that are not there."""
        ...

    @property
    def clashes(self) -> Sequence[str]:
        """Those that somebody declared otherwise."""
        ...

    @property
    def alarms(self) -> Sequence[str]:
        """Why the broker takes no messages now."""
        ...

    @property
    def unseen(self) -> str:
        """Why not everything could be looked at; empty: it was."""
        ...


@runtime_checkable
class HasTopology(Protocol):
    """A transport whose sources need more than one queue each, and that can say whether all of it is there."""

    @property
    def makes_queues(self) -> bool:
        """Whether a worker makes what is missing when it starts."""
        ...

    async def examined(self, sources: Sequence[str]) -> Examined:
        """Look at what these sources need. Makes nothing."""
        ...


class Demand(Struct, frozen=True):
    """What the handler of a source asks of its queue."""

    source: str
    attempts: int
    timeout: timedelta  # of one attempt
    waits: timedelta  # between all its attempts, together
    longest_wait: timedelta  # between two of them


class Advice(Struct, frozen=True):
    """What is wrong with a source, and how to mend it. Both are for people."""

    text: str
    mend: str
    is_failure: bool = False  # something does not work, or is lost


@runtime_checkable
class Advises(Protocol):
    """A transport whose sources are set up by others, and that can say what is wrong with them."""

    async def advice(self, demands: Sequence[Demand]) -> Sequence[Advice]:
        """Look at how these sources are set up. Makes and changes nothing."""
        ...


__all__ = [
    "ACCEPTED",
    "Advice",
    "Advises",
    "Block",
    "CannotReturn",
    "CommitsWork",
    "CountsBegun",
    "DeadLetterPlace",
    "Delivery",
    "Demand",
    "Depth",
    "Examined",
    "Features",
    "Finds",
    "FollowsPauses",
    "HasDeadLetterPlace",
    "HasSources",
    "HasTopology",
    "KeepsLimits",
    "KeepsOrder",
    "KnowsWorkers",
    "Listing",
    "Lists",
    "MovesKeys",
    "Outcome",
    "Pausable",
    "Paused",
    "Prefetches",
    "QueueState",
    "Queued",
    "ReceivesBlocks",
    "SendResult",
    "SendStatus",
    "SendsWithin",
    "Settlement",
    "TakesTurns",
    "Transport",
    "Work",
    "busy",
    "number_after",
    "refused",
    "send_each",
    "unknown",
]
