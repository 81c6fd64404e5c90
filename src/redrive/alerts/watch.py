"""Makes alerts of the events of this process. On the path of a message it costs a few dictionary entries."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

from redrive.alerts.model import Alert
from redrive.alerts.rules import BREAKER, DEPLOYED, DOWN, FAILING, FILLING, STORM, Pen, letters
from redrive.clock import Clock
from redrive.config.durations import spoken
from redrive.config.settings import Alerts as Thresholds
from redrive.flow.breaker import Position
from redrive.flow.replay_document import ReplayState
from redrive.model import Failure, Reason, State
from redrive.telemetry import events as facts
from redrive.telemetry.events import Event

_MOST = 1000  # of groups, sources, queues and backends each: past that, further ones are not watched
_MOST_KNOWN = 10_000
_SLOTS = 10
_SILENCE = 30.0  # seconds without a complaint, over twice its pause, after which a backend is taken to be back


class Burst:
    """The letters of one group that were buried since it was last looked at."""

    __slots__ = ("buried", "exhausted", "failure", "source")

    def __init__(self) -> None:
        self.buried = self.exhausted = 0
        self.source = ""
        self.failure: Failure | None = None

    @property
    def error(self) -> str:
        return "" if self.failure is None else f"{self.failure.type}: {self.failure.message}"


class Recent:
    """Counts what happened in the last window, to a tenth of it."""

    def __init__(self, window: float) -> None:
        self._width = window / _SLOTS
        self._slots: deque[list[int]] = deque()

    def add(self, at: float) -> None:
        slot = int(at / self._width)
        if self._slots and self._slots[-1][0] == slot:
            self._slots[-1][1] += 1
        else:
            self._slots.append([slot, 1])
            self.count(at)

    def count(self, at: float) -> int:
        oldest = int(at / self._width) - _SLOTS
        while self._slots and self._slots[0][0] <= oldest:
            self._slots.popleft()
        return sum(count for _, count in self._slots)


class _Outage:
    """A backend that complained, and has not answered since."""

    __slots__ = ("complaints", "last", "pause", "since", "why")

    def __init__(self, at: float) -> None:
        self.since = self.last = at
        self.complaints = 0
        self.pause = 0.0
        self.why = ""


class Watch:
    """A subscriber that notes what may become an alert; `bursts` and `conditions` give it, off the path of messages."""

    def __init__(self, thresholds: Thresholds, clock: Clock, pen: Pen, wake: Callable[[], None]) -> None:
        self._thresholds = thresholds
        self._clock = clock
        self._pen = pen
        self._wake = wake
        self._window = thresholds.window.total_seconds()
        self._bursts: dict[str, Burst] = {}
        self._known: dict[str, bool] = {}  # group -> whether letters of it were exhausted
        self._resolved: dict[str, Recent] = {}
        self._exhausted: dict[str, Recent] = {}
        self._queues: dict[str, tuple[float, facts.QueueMeasured]] = {}  # when, and what
        self._outages: dict[str, _Outage] = {}
        self._open: dict[str, bool] = {}  # target -> whether it was told of since it opened
        self._deployed: dict[str, facts.GroupDeployed] = {}  # since this was last asked
        self._storms: dict[tuple[str, str], facts.SourceStormed] = {}
        self._told_storms: set[tuple[str, str]] = set()
        self._on: dict[type[Event], Callable[[Any], None]] = {
            facts.MessageBuried: self._buried,
            facts.LetterResolved: lambda event: self._count(self._resolved, event.source),
            facts.QueueMeasured: self._measured,
            facts.BackendDown: self._down,
            facts.BackendUp: self._up,
            facts.BreakerMoved: self._moved,
            facts.GroupDeployed: self._was_deployed,
            facts.SourceStormed: self._stormed,
            facts.StormEnded: self._calmed,
            facts.ReplayMoved: self._replay_moved,
        }

    def __call__(self, event: Event) -> None:
        on = self._on.get(type(event))
        if on is not None:
            on(event)

    def bursts(self) -> dict[str, Burst]:
        """The bursts since this was last asked, by group."""
        found, self._bursts = self._bursts, {}
        return found

    def give_back(self, bursts: dict[str, Burst]) -> None:
        """Take back bursts that could not be looked at; what came meanwhile is added to them."""
        for group, old in bursts.items():
            burst = self._bursts.setdefault(group, old)
            if burst is not old:
                burst.buried += old.buried
                burst.exhausted += old.exhausted

    def knows(self, group: str) -> bool:
        return group in self._known

    def know(self, group: str, *, exhausted: bool) -> None:
        """Note that a group was looked at: more letters of it are no news. The oldest are dropped."""
        before = self._known.pop(group, False)
        self._known[group] = before or exhausted
        if len(self._known) > _MOST_KNOWN:
            del self._known[next(iter(self._known))]

    def conditions(self, now: datetime) -> list[Alert]:
        """The alerts of what is so now, as far as this process knows."""
        rules = (self._failing, self._filling, self._down_for_long, self._broken, self._in_storm, self._now_deployed)
        return [alert for rule in rules for alert in rule(now)]

    # -- on the path of a message --------------------------------------------------------------------------------------

    def _was_deployed(self, event: facts.GroupDeployed) -> None:
        if self._thresholds.deployed and event.letters and not event.auto and len(self._deployed) < _MOST:
            self._deployed[event.group] = event
            self._wake()

    def _now_deployed(self, now: datetime) -> list[Alert]:
        """The fixes that were deployed since this was last asked, and whose letters wait for somebody."""
        found, self._deployed = self._deployed, {}
        return [
            self._pen.alert(
                DEPLOYED,
                group,
                f"{event.version} runs everywhere: {letters(event.letters)} that it fixes can go back, with "
                f"`redrive replay --group {group}`",
                now,
                group=group,
                details={"group": group, "version": event.version},
            )
            for group, event in found.items()
        ]

    def _buried(self, event: facts.MessageBuried) -> None:
        if event.reason is Reason.PARKED:  # a retry that waits is no death
            return
        burst = self._bursts.get(event.group)
        if burst is None:
            if len(self._bursts) >= _MOST:
                return
            burst = self._bursts[event.group] = Burst()
        burst.buried += 1
        burst.source = event.source
        burst.failure = event.failure
        known = self._known.get(event.group)
        if event.state is State.EXHAUSTED:
            burst.exhausted += 1
            self._count(self._exhausted, event.source)
            known = known or None
        if known is None:  # news; more of the same waits for the next round
            self._wake()

    def _count(self, recent: dict[str, Recent], source: str) -> None:
        counted = recent.get(source)
        if counted is None:
            if len(recent) >= _MOST:
                return
            counted = recent[source] = Recent(self._window)
        counted.add(self._clock.elapsed())

    def _measured(self, event: facts.QueueMeasured) -> None:
        if event.name in self._queues or len(self._queues) < _MOST:
            self._queues[event.name] = self._clock.elapsed(), event

    def _down(self, event: facts.BackendDown) -> None:
        at = self._clock.elapsed()
        outage = self._outages.get(event.backend)
        if outage is None or at - outage.last > _patience(outage):
            if len(self._outages) >= _MOST:
                return
            outage = self._outages[event.backend] = _Outage(at)
        outage.last = at
        outage.complaints += 1
        outage.pause = event.pause.total_seconds()
        outage.why = event.why

    def _up(self, event: facts.BackendUp) -> None:
        self._outages.pop(event.backend, None)

    def _moved(self, event: facts.BreakerMoved) -> None:
        if event.state == Position.CLOSED:
            self._open.pop(event.target, None)
        elif len(self._open) < _MOST:
            self._open.setdefault(event.target, False)
            self._wake()

    def _stormed(self, event: facts.SourceStormed) -> None:
        if len(self._storms) < _MOST:
            self._storms[event.transport, event.source] = event
            self._wake()

    def _calmed(self, event: facts.StormEnded) -> None:
        self._storms.pop((event.transport, event.source), None)
        self._told_storms.discard((event.transport, event.source))

    def _replay_moved(self, event: facts.ReplayMoved) -> None:
        if event.state == ReplayState.PAUSED:
            self._wake()

    # -- off the path --------------------------------------------------------------------------------------------------

    def _failing(self, now: datetime) -> Iterator[Alert]:
        least, at = self._thresholds.success, self._clock.elapsed()
        resolved, exhausted = _counted(self._resolved, at), _counted(self._exhausted, at)
        for source, failed in exhausted.items() if least is not None else ():
            total = failed + resolved.get(source, 0)
            rate = 100 * (total - failed) / total
            if total >= self._thresholds.success_of and least is not None and rate < least:
                summary = f"only {rate:.0f} % of {total:,} retried letters of {source} succeeded"
                yield self._pen.alert(
                    FAILING, source, summary, now, source=source, count=0, details={"failed": failed, "retried": total}
                )

    def _filling(self, now: datetime) -> Iterator[Alert]:
        full, at = self._thresholds.utilisation, self._clock.elapsed()
        for name, (measured, queue) in list(self._queues.items()):
            if at - measured > self._window:
                del self._queues[name]  # nobody measures it any more
            elif full is not None and queue.most > 0 and 100 * queue.size >= full * queue.most:
                share = 100 * queue.size // queue.most
                summary = f"{name} is {share} % full: {queue.size:,} of {queue.most:,}"
                details = {"size": queue.size, "most": queue.most}
                yield self._pen.alert(FILLING, name, summary, now, source=name, count=0, details=details)

    def _down_for_long(self, now: datetime) -> Iterator[Alert]:
        allowed, at = self._thresholds.backend_down, self._clock.elapsed()
        for name, outage in list(self._outages.items()):
            if at - outage.last > _patience(outage):
                del self._outages[name]
            elif allowed is not None and at - outage.since >= allowed.total_seconds():
                lasts = timedelta(seconds=int(at - outage.since))
                complaints, outage.complaints = outage.complaints, 0
                yield self._pen.alert(
                    DOWN,
                    name,
                    f"{name} does not answer for {spoken(lasts)}: {outage.why}",
                    now - lasts,
                    source=name,
                    count=complaints,
                )

    def _broken(self, now: datetime) -> Iterator[Alert]:
        for target, known in list(self._open.items()) if self._thresholds.breaker else ():
            self._open[target] = True
            summary = f"the circuit breaker of {target} is open: what is sent back to it keeps failing"
            yield self._pen.alert(BREAKER, target, summary, now, source=target, count=int(not known))

    def _in_storm(self, now: datetime) -> Iterator[Alert]:
        for name, storm in list(self._storms.items()) if self._thresholds.storm else ():
            summary = f"{storm.source} is paused by the storm guard: {storm.why}"
            is_new = name not in self._told_storms
            self._told_storms.add(name)
            yield self._pen.alert(STORM, "/".join(name), summary, now, source=storm.source, count=int(is_new))


def _counted(recent: dict[str, Recent], at: float) -> dict[str, int]:
    """The recent counts by source; sources with none are dropped."""
    counts = {source: times.count(at) for source, times in recent.items()}
    for source in [source for source, count in counts.items() if not count]:
        del recent[source], counts[source]
    return counts


def _patience(outage: _Outage) -> float:
    return 2 * outage.pause + _SILENCE
