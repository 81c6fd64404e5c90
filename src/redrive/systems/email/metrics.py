"""The metrics of the contract, under its names. What this process did is counted as it happens; what is in Redis comes
as a Snapshot when somebody scrapes."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

from redrive.errors import MissingExtra
from redrive.model import Stage
from redrive.systems.email.gateway import EmailGateway
from redrive.systems.email.snapshot import Memory, Snapshot, Turn, Watch
from redrive.telemetry.events import Event, LettersPruned, MessageBuried, MessageRetried
from redrive.telemetry.metrics import Metrics

try:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
except ImportError as error:
    raise MissingExtra("metrics", "server") from error

_DELAYS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 120.0)
AGES = (60.0, 600.0, 3_600.0, 21_600.0, 86_400.0, 259_200.0, 604_800.0)
"""Of dead letters: a minute to a week."""
_MOST_COMPANIES = 500
_OTHERS = "(others)"


class EmailMetrics:
    """Collects the contract's metrics for Prometheus."""

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self.snapshot: Snapshot | None = None
        self._attempts: Counter[int] = Counter()
        self._successes: Counter[int] = Counter()
        self._delay_counts = [0] * (len(_DELAYS) + 1)
        self._delay_sum = 0.0
        self._buried = 0
        self._trimmed = 0

    def attempted(self, attempt: int, *, sent: bool) -> None:
        """Count an attempt that ended."""
        self._attempts[attempt] += 1
        self._successes[attempt] += sent

    def delayed(self, seconds: float) -> None:
        """Count a retry that was scheduled."""
        self._delay_counts[bisect_left(_DELAYS, seconds)] += 1
        self._delay_sum += seconds

    def observe(self, event: Event) -> None:
        """Count failed attempts, delays, burials and what was trimmed; a subscriber to events."""
        match event:
            case MessageRetried(source=source, failure=failure, after=after) if source == self._queue:
                self.attempted(failure.attempt, sent=False)
                self.delayed(after.total_seconds())
            case MessageBuried(source=source, failure=failure) if source == self._queue:
                self._buried += 1
                if failure.stage is not Stage.DELIVERY:
                    self.attempted(failure.attempt, sent=False)
            case LettersPruned(count=count):
                self._trimmed += count

    def collect(self) -> Iterator[Metric]:
        yield from self._of_attempts()
        yield CounterMetricFamily("dlq_entries", "Jobs moved to the DLQ", value=self._buried)
        yield CounterMetricFamily("dlq_trimmed", "Dead letters exported and trimmed, or purged", value=self._trimmed)
        if self.snapshot is not None:
            yield from _of_letters(self.snapshot)
            yield from _of_turns(self.snapshot.turns)
            yield from _of_memory(self.snapshot.memory)

    def _of_attempts(self) -> Iterator[Metric]:
        attempts = CounterMetricFamily("retry_attempts", "Attempts made, by their number", labels=["attempt"])
        rate = GaugeMetricFamily("retry_success_rate", "Share of attempts that succeeded", labels=["attempt"])
        for number, count in sorted(self._attempts.items()):
            attempts.add_metric([str(number)], count)
            rate.add_metric([str(number)], self._successes[number] / count)
        yield attempts
        yield rate
        delays = HistogramMetricFamily("retry_backoff_delay_seconds", "Delays before the next attempt")
        delays.add_metric([], _buckets(_DELAYS, self._delay_counts), self._delay_sum)
        yield delays


def counted(values: Iterable[float], bounds: tuple[float, ...]) -> list[int]:
    """How many values fall under each bound, and over the last."""
    counts = [0] * (len(bounds) + 1)
    for value in values:
        counts[bisect_left(bounds, value)] += 1
    return counts


def _of_letters(snapshot: Snapshot) -> Iterator[Metric]:
    yield GaugeMetricFamily("dlq_size", "Dead letters there are", value=snapshot.size)
    ages = HistogramMetricFamily("dlq_age_seconds", "Age of the dead letters there are")
    ages.add_metric([], _buckets(AGES, counted(snapshot.ages, AGES)), sum(snapshot.ages))
    yield ages
    codes = _labelled(snapshot.codes)
    yield _gauge("dlq_by_error_code", "Dead letters by the code of their last failure", "error_code", codes)
    yield _gauge("dlq_by_company", "Dead letters by company", "companyId", _labelled(snapshot.companies))


def _of_turns(turns: tuple[Turn, ...]) -> Iterator[Metric]:
    shown = sorted(turns, key=lambda turn: (-turn.rounds_without_processing, -turn.total_processed))[:_MOST_COMPANIES]
    for name, about, field in _TURNS:
        values = {turn.company_id: getattr(turn, field) for turn in shown}
        yield _gauge(name, about, "companyId", values)


def _of_memory(memory: Memory | None) -> Iterator[Metric]:
    """The memory of Redis under the names of redis_exporter, so that alert rules hold with either."""
    if memory is None:
        return
    yield GaugeMetricFamily("redis_memory_used_bytes", "Memory that Redis uses", value=memory.used)
    yield GaugeMetricFamily("redis_memory_max_bytes", "Its maxmemory; 0: unbounded", value=memory.most)
    yield CounterMetricFamily(
        "redis_rejected_connections", "Connections that Redis refused", value=memory.rejected_connections
    )
    errors = CounterMetricFamily("redis_errors", "Errors that Redis answered", labels=["err"])
    errors.add_metric(["OOM"], memory.oom_errors)
    yield errors


def _gauge(name: str, about: str, label: str, values: Mapping[str, int]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, about, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _labelled(counts: Mapping[str, int]) -> dict[str, int]:
    """The largest counts, and the others together, so that a scrape stays small."""
    ranked = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    shown: dict[str, int] = defaultdict(int)
    for place, (name, count) in enumerate(ranked):
        shown[name if place < _MOST_COMPANIES else _OTHERS] += count
    return dict(shown)


def _buckets(bounds: tuple[float, ...], counts: list[int]) -> list[tuple[str, float]]:
    total, found = 0, list[tuple[str, float]]()
    for bound, count in zip([*map(str, bounds), "+Inf"], counts, strict=True):
        total += count
        found.append((bound, total))
    return found


_TURNS: tuple[tuple[str, str, str], ...] = (
    ("tenant_jobs_processed", "Jobs that the company had processed", "total_processed"),
    ("tenant_current_priority", "How urgent the company is; 1 is the most", "current_priority"),
    ("tenant_consecutive_batch", "Jobs it had in a row", "consecutive_batch_count"),
    ("tenant_rounds_without_processing", "Rounds it waited", "rounds_without_processing"),
)


def measured(gateway: EmailGateway) -> tuple[Metrics, Watch]:
    """The metrics of an app and of its e-mail, in one scrape."""
    email, app = gateway.email, gateway.app
    own, metrics = EmailMetrics(email.queue), Metrics(app.events)
    watch = Watch(app, email)
    metrics.registry.register(own)
    app.events.subscribe(own.observe)
    gateway.on_sent = lambda attempt: own.attempted(attempt, sent=True)

    async def look() -> None:
        own.snapshot = None  # of a Redis that is away there is none
        own.snapshot = await watch.snapshot()

    metrics.probes.append(look)
    return metrics, watch
