"""One stream of facts. Metrics, logs and alerts subscribe to it; nothing else reports.

Facts about successes come in batches, because there are many; facts about failures come one by one, because
each of them is a story.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TypeAlias

from msgspec import Struct

from redrive.model import Failure, Letter, LetterId, MessageId, Reason, State


class Event(Struct, frozen=True, kw_only=True):
    """One observed fact."""


class BatchSettled(Event, frozen=True):
    """A batch was carried out. `seconds` has how long each attempt took."""

    source: str
    done: int
    retried: int
    buried: int
    released: int
    seconds: tuple[float, ...]
    behind: int = 0  # set aside behind another of their key: not one of the buried


class BatchHandled(Event, frozen=True):
    """A batch handler was called with so many messages."""

    source: str
    messages: int
    seconds: float


class MessageRetried(Event, frozen=True):
    """An attempt failed and another will follow."""

    source: str
    message: MessageId
    tenant: str | None
    correlation_id: str | None
    failure: Failure
    after: timedelta


class MessageBuried(Event, frozen=True):
    """A message became a letter, or died again and rejoined its own."""

    source: str
    message: MessageId
    tenant: str | None
    correlation_id: str | None
    letter: LetterId
    group: str
    reason: Reason
    state: State
    failure: Failure

    @classmethod
    def of(cls, letter: Letter, source: str) -> MessageBuried:
        """The event of a letter that was written by the worker of that source."""
        return cls(
            source=source,
            message=letter.message.id,
            tenant=letter.message.tenant,
            correlation_id=letter.message.correlation_id,
            letter=letter.id,
            group=letter.group,
            reason=letter.reason,
            state=letter.state,
            failure=letter.last,
        )


class KeysHeld(Event, frozen=True):
    """Messages were set aside behind another of their key, which is dead."""

    source: str
    count: int


class KeyHoldFull(Event, frozen=True):
    """As many letters or keys are held as the policy allows: these messages stay in the broker, and are asked again."""

    source: str
    messages: int
    why: str


class KeyReleased(Event, frozen=True):
    """A dead message held its key for as long as it may: those behind it follow without it."""

    source: str
    letter: LetterId
    behind: int


class SourceStormed(Event, frozen=True):
    """A source buries more than its policy allows: it is paused over all its workers, each of which says so."""

    source: str
    transport: str
    why: str


class StormProbed(Event, frozen=True):
    """A source in a storm was tried with one message: it `succeeded`, `failed`, or was `given back`."""

    source: str
    transport: str
    outcome: str


class StormEnded(Event, frozen=True):
    """A source is in no storm any more: it was probed, or somebody has decided it."""

    source: str
    transport: str


class LetterRefused(Event, frozen=True):
    """The store will not have a letter, as it is; its message stays where it came from."""

    source: str
    message: MessageId
    why: str


class LetterResolved(Event, frozen=True):
    """A message that had been buried succeeded."""

    source: str
    letter: LetterId
    replay: str | None


class LettersMoved(Event, frozen=True):
    """Somebody, or upkeep, moved letters."""

    to: State
    count: int
    actor: str


class LettersPruned(Event, frozen=True):
    """Letters were deleted, for that reason."""

    count: int
    why: str


class LeaseLost(Event, frozen=True):
    """A delivery was settled by somebody else before us; its handler may have run twice."""

    source: str
    messages: tuple[MessageId, ...]


class LoginFailed(Event, frozen=True):
    """Somebody at that address showed a token that is unknown or revoked."""

    address: str
    times: int  # by now, from there


class BackendDown(Event, frozen=True):
    """A store or transport does not answer; what we hold is kept, and we go slower."""

    backend: str
    why: str
    pause: timedelta


class BackendUp(Event, frozen=True):
    """It answers again."""

    backend: str


class BreakerMoved(Event, frozen=True):
    """The circuit breaker of a target opened, closed, or lets one letter try."""

    target: str
    state: str


class ReplayMoved(Event, frozen=True):
    """A replay started, paused, went on, ended, or was cancelled."""

    replay: str
    state: str
    actor: str
    total: int
    why: str = ""  # it is paused


class GroupDeployed(Event, frozen=True):
    """Every worker of a group's sources runs the version that the group is fixed in."""

    group: str
    version: str
    auto: bool  # its letters go back by themselves
    letters: int  # that wait for it


class GroupRegressed(Event, frozen=True):
    """A letter died on the version that its group is fixed in, or on a newer one."""

    group: str
    version: str  # that it is fixed in
    died_on: str
    letter: LetterId


class LettersRetried(Event, frozen=True):
    """Automatic retries were sent back to their source."""

    source: str
    count: int


class QueueMeasured(Event, frozen=True):
    """A queue with a bound was measured: when something changes, and every minute while nothing does.

    Past most of its bound it is an alert (alerts/rules.py), until it is measured again or for five minutes not at all.
    """

    name: str
    size: int
    most: int


class AlertsSent(Event, frozen=True):
    """A notifier took so many alerts."""

    notifier: str
    count: int


class NotifierDown(Event, frozen=True):
    """A notifier does not take alerts; it is tried again after the pause. Never an alert itself."""

    notifier: str
    why: str
    pause: timedelta


class AlertsDropped(Event, frozen=True):
    """Alerts that nobody will be told of, and why."""

    notifier: str
    count: int
    why: str


class IncidentMoved(Event, frozen=True):
    """An incident was opened, acknowledged or resolved, by a rule or by somebody."""

    incident: str
    name: str
    state: str
    actor: str


class WorkerStarted(Event, frozen=True):
    """This process receives from these sources."""

    worker: str
    sources: tuple[str, ...]


class WorkerStopped(Event, frozen=True):
    """This process has stopped; what it had not begun was given back."""

    worker: str
    released: int


class ProcessStarted(Event, frozen=True):
    """A worker process of a supervisor runs."""

    process: int
    pid: int


class ProcessDied(Event, frozen=True):
    """A worker process ended though nobody had told it to. `pause`: until it is started again; None: it is not."""

    process: int
    pid: int
    cause: str
    lived: timedelta
    pause: timedelta | None


class UpkeepRan(Event, frozen=True):
    """A task of upkeep came to its end; it is done again after `every`."""

    task: str  # `retries`, `holds`, `rescue`, `replays`, `prune`, `fixes`, `texts`, `series`, `past`
    at: datetime
    every: timedelta


class Acted(Event, frozen=True):
    """Somebody did something through the service: the audit trail."""

    actor: str
    action: str
    detail: str
    at: datetime


Subscriber: TypeAlias = Callable[[Event], None]


class Events:
    """Hands each fact to every subscriber. A subscriber that fails is reported, and changes nothing."""

    def __init__(self) -> None:
        self._subscribers: list[Subscriber] = []

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call it with each event from now on; returns a function that ends it."""
        self._subscribers.append(subscriber)
        return lambda: self._subscribers.remove(subscriber)

    def emit(self, event: Event) -> None:
        for subscriber in tuple(self._subscribers):
            try:
                subscriber(event)
            except Exception:
                logging.getLogger("redrive").exception("a subscriber failed on %s", type(event).__name__)
