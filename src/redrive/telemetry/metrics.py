"""Prometheus metrics: counters that follow the events of this process, gauges that are read when somebody scrapes.

Every label has few values: sources are those of handlers, the rest are our own words. A counter knows what this
process did; `redrive_letters` and `redrive_queue` come from the store and the transports, so they are the same
whichever process is asked.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter as Tally
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any

from redrive import __version__
from redrive.errors import MissingExtra
from redrive.flow.breaker import Position
from redrive.forensics.measured import Measured
from redrive.forensics.stats import SourceStats, Stats
from redrive.processes.merge import Family
from redrive.telemetry import events as facts
from redrive.telemetry.events import Event, Events

try:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Info
    from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric
    from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
except ImportError as error:
    raise MissingExtra("metrics", "server") from error

__all__ = ["CONTENT_TYPE_LATEST", "Metric", "Metrics", "rendered"]

_BOUNDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_OUTCOMES = ("done", "retried", "buried", "released", "behind")
_MOST_SOURCES = 200
_OTHERS = "(others)"


class Metrics:
    """Subscribes to the events of an app. `render` gives what a scrape is answered with."""

    def __init__(self, events: Events) -> None:
        self.registry = CollectorRegistry()
        self.probes: list[Callable[[], Awaitable[object]]] = []  # asked before a scrape, by collectors that must look
        self._sources: set[str] = set()  # that this process receives, or received, from
        self._attempts = _Attempts()
        self._snapshot = _Snapshot()
        self.registry.register(self._attempts)
        self.registry.register(self._snapshot)
        counted = self._counter
        self._messages = counted("messages", "Messages settled, by what became of them", "source", "outcome")
        self._calls = counted("batch_calls", "Calls of batch handlers", "source")
        self._called_with = counted("batch_messages", "Messages that batch handlers were called with", "source")
        self._buried = counted("letters_buried", "Messages that became a letter", "source", "category", "reason")
        self._refused = counted("letters_refused", "Times that the store would not have a letter", "source")
        self._resolved = counted("letters_resolved", "Letters whose message succeeded after all", "source")
        self._sent_back = counted("letters_retried", "Letters that automatic retries sent back", "source")
        self._leases = counted("lease_lost", "Deliveries that somebody else settled before us")
        self._down = counted("backend_down", "Times that a backend did not answer", "backend")
        self._logins = counted("logins_failed", "Times that somebody showed a token that is unknown or revoked")
        self._replays = counted("replays", "Replays, by the state they came to", "state")
        self._alerts_sent = counted("alerts_sent", "Alerts that a notifier took", "notifier")
        self._alerts_failed = counted("alerts_failed", "Times that a notifier did not take alerts", "notifier")
        self._alerts_dropped = counted("alerts_dropped", "Alerts that nobody was told of", "notifier")
        self._incidents = counted("incidents", "Incidents, by the state they came to", "state")
        self._breakers = Gauge(
            "redrive_breaker_open", "1: the circuit breaker lets nothing pass", ["target"], registry=self.registry
        )
        self._bounded = Gauge(
            "redrive_queue_utilisation", "How full a queue with a bound is, 1: full", ["queue"], registry=self.registry
        )
        self._workers = Gauge(
            "redrive_worker", "1: this process receives from that source", ["source"], registry=self.registry
        )
        self._upkeep = Gauge(
            "redrive_upkeep_last_run_timestamp_seconds",
            "When this process last brought a task of upkeep to its end",
            ["task"],
            registry=self.registry,
        )
        self._upkeep_every = Gauge(
            "redrive_upkeep_interval_seconds", "How often that task is to run", ["task"], registry=self.registry
        )
        Info("redrive_build", "Which Redrive this is", registry=self.registry).info({"version": __version__})
        self._on: dict[type[Event], Callable[[Any], None]] = {
            facts.BatchSettled: self._settled,
            facts.BatchHandled: self._handled,
            facts.MessageBuried: lambda e: self._buried.labels(e.source, e.failure.category, e.reason).inc(),
            facts.LetterRefused: lambda e: self._refused.labels(e.source).inc(),
            facts.LetterResolved: lambda e: self._resolved.labels(e.source).inc(),
            facts.LeaseLost: lambda e: self._leases.inc(len(e.messages)),
            facts.BackendDown: lambda e: self._down.labels(e.backend).inc(),
            facts.LoginFailed: lambda e: self._logins.inc(),
            facts.BreakerMoved: lambda e: self._breakers.labels(e.target).set(e.state == Position.OPEN),
            facts.ReplayMoved: lambda e: self._replays.labels(e.state).inc(),
            facts.QueueMeasured: lambda e: self._bounded.labels(e.name).set(e.size / e.most if e.most else 0),
            facts.AlertsSent: lambda e: self._alerts_sent.labels(e.notifier).inc(e.count),
            facts.NotifierDown: lambda e: self._alerts_failed.labels(e.notifier).inc(),
            facts.AlertsDropped: lambda e: self._alerts_dropped.labels(e.notifier).inc(e.count),
            facts.LettersRetried: lambda e: self._sent_back.labels(e.source).inc(e.count),
            facts.WorkerStarted: self._started,
            facts.WorkerStopped: lambda e: self._stopped(),
            facts.UpkeepRan: self._kept_up,
            facts.IncidentMoved: lambda e: self._incidents.labels(e.state).inc(),
        }
        self.close = events.subscribe(self._observe)

    def render(self, measured: Measured | None) -> bytes:
        """The text of a scrape. Without what was measured in store and transports, the counters still come."""
        self._snapshot.measured = measured
        return generate_latest(self.registry)

    def collected(self, measured: Measured | None) -> list[Metric]:
        """The same as objects of the library."""
        self._snapshot.measured = measured
        return list(self.registry.collect())

    def _counter(self, name: str, about: str, *labels: str) -> Counter:
        return Counter(f"redrive_{name}", about, labels, registry=self.registry)

    def _observe(self, event: Event) -> None:
        on = self._on.get(type(event))
        if on is not None:
            on(event)

    def _handled(self, event: facts.BatchHandled) -> None:
        self._calls.labels(event.source).inc()
        self._called_with.labels(event.source).inc(event.messages)

    def _settled(self, event: facts.BatchSettled) -> None:
        for outcome in _OUTCOMES:
            if count := getattr(event, outcome):
                self._messages.labels(event.source, outcome).inc(count)
        self._attempts.observe(event.source, event.seconds)

    def _started(self, event: facts.WorkerStarted) -> None:
        self._sources |= {*event.sources}
        for source in event.sources:
            self._workers.labels(source).set(1)
            for outcome in _OUTCOMES:
                self._messages.labels(source, outcome)  # 0 from the start: a rate needs something to grow from

    def _stopped(self) -> None:
        for source in self._sources:
            self._workers.labels(source).set(0)

    def _kept_up(self, event: facts.UpkeepRan) -> None:
        self._upkeep.labels(event.task).set(event.at.timestamp())
        self._upkeep_every.labels(event.task).set(event.every.total_seconds())


class _Attempts:
    """A histogram that takes a whole batch at the price of a bisection each.

    The library's own takes a lock and walks its buckets for each value, which at full speed costs more than the
    rest of telemetry together.
    """

    def __init__(self) -> None:
        self._counts: dict[str, list[int]] = {}
        self._sums: dict[str, float] = defaultdict(float)

    def observe(self, source: str, seconds: Iterable[float]) -> None:
        counts = self._counts.setdefault(source, [0] * (len(_BOUNDS) + 1))
        total = 0.0
        for value in seconds:
            if value:  # nothing at all is what was buried or given back without an attempt
                counts[bisect_left(_BOUNDS, value)] += 1
                total += value
        self._sums[source] += total

    def collect(self) -> Iterator[Metric]:
        family = HistogramMetricFamily("redrive_attempt_seconds", "How long attempts took", labels=["source"])
        for source, counts in sorted(self._counts.items()):
            family.add_metric([source], list(_cumulated(counts)), self._sums[source])
        yield family


class _Given:
    """A collector of what is known already."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        for family in self._families:
            metric = Metric(family.name, family.about, family.kind)
            for name, labels, value in family.samples:
                metric.add_sample(name, dict(labels), value)
            yield metric


def rendered(families: Iterable[Family]) -> bytes:
    """The text of a scrape that is answered with these."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Given(families))
    return generate_latest(registry)


def _cumulated(counts: list[int]) -> Iterator[tuple[str, float]]:
    total = 0
    for bound, count in zip([*map(str, _BOUNDS), "+Inf"], counts, strict=True):
        total += count
        yield bound, total


class _Snapshot:
    """Letters and queues as they were counted for this scrape."""

    def __init__(self) -> None:
        self.measured: Measured | None = None

    def collect(self) -> Iterator[Metric]:
        measured = self.measured
        complete = measured is not None and all(measured.up.values())
        yield GaugeMetricFamily("redrive_stats_up", "1: store and transports could be counted", value=complete)
        if measured is None:
            return
        yield _gauge("redrive_backend_up", "1: it answered when it was asked for this", "backend", measured.up)
        yield _gauge("redrive_replays_under_way", "Replays not at their end", "standing", measured.replays)
        oldest = {measured.oldest.source: measured.oldest.at.timestamp()} if measured.oldest else {}
        yield _gauge(
            "redrive_oldest_letter_timestamp_seconds", "When the open letter that waits longest died", "source", oldest
        )
        yield from _counted(measured.stats)


def _counted(stats: Stats) -> Iterator[Metric]:
    letters = GaugeMetricFamily("redrive_letters", "Letters", labels=["state", "source"])
    queue = GaugeMetricFamily("redrive_queue", "Messages in the queue", labels=["source", "kind"])
    for name, group in _named(stats.sources):
        _add(letters, queue, name, group)
    yield letters
    yield queue
    paused = GaugeMetricFamily("redrive_paused", "1: nobody receives from it, by whom it is", labels=["source", "by"])
    for source in stats.sources[:_MOST_SOURCES]:
        if source.paused is not None:
            paused.add_metric([source.source, "storm" if source.paused.storm else "person"], 1)
    yield paused


def _gauge(name: str, about: str, label: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, about, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _named(sources: list[SourceStats]) -> Iterator[tuple[str, list[SourceStats]]]:
    """Sources one by one, those past the bound together, so that a scrape stays small."""
    for source in sources[:_MOST_SOURCES]:
        yield source.source, [source]
    if rest := sources[_MOST_SOURCES:]:
        yield _OTHERS, rest


def _add(letters: GaugeMetricFamily, queue: GaugeMetricFamily, name: str, group: list[SourceStats]) -> None:
    states: Tally[str] = Tally()
    for source in group:
        states.update({str(state): count for state, count in source.states.items()})
    for state, count in sorted(states.items()):
        letters.add_metric([state, name], count)
    depths = [source.queued for source in group if source.queued is not None]
    for kind in ("ready", "delayed", "leased") if depths else ():
        queue.add_metric([name, kind], sum(getattr(depth, kind) for depth in depths))
