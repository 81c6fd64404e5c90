"""What a scrape says after some facts."""

from datetime import timedelta

import pytest
from prometheus_client.parser import text_string_to_metric_families

from redrive import __version__
from redrive.flow.breaker import Position
from redrive.forensics.measured import Measured, Oldest
from redrive.forensics.stats import SourceStats, Stats
from redrive.model import State
from redrive.telemetry import events as facts
from redrive.telemetry.events import Events
from redrive.telemetry.metrics import Metrics
from redrive.transports.base import Depth
from tests.telemetry.facts import NOW, buried


@pytest.fixture
def events() -> Events:
    return Events()


@pytest.fixture
def metrics(events: Events) -> Metrics:
    return Metrics(events)


def value(metrics: Metrics, name: str, measured: Measured | None = None, **labels: str) -> float | None:
    for family in text_string_to_metric_families(metrics.render(measured).decode()):
        for sample in family.samples:
            if sample.name == name and sample.labels == labels:
                return sample.value
    return None


def batch(**changes: object) -> facts.BatchSettled:
    shape = {"source": "orders", "done": 0, "retried": 0, "buried": 0, "released": 0, "seconds": (), **changes}
    return facts.BatchSettled(**shape)  # type: ignore[arg-type]


def test_messages_are_counted_by_their_outcome(events: Events, metrics: Metrics) -> None:
    events.emit(batch(done=90, retried=7, buried=3))
    events.emit(batch(done=10, released=2))
    found = {
        outcome: value(metrics, "redrive_messages_total", source="orders", outcome=outcome)
        for outcome in ("done", "retried", "buried", "released")
    }
    assert found == {"done": 100, "retried": 7, "buried": 3, "released": 2}


def test_attempts_fall_into_buckets(events: Events, metrics: Metrics) -> None:
    events.emit(batch(seconds=(0.001, 0.002, 0.3, 1000.0, 0.0)))  # the last was not attempted
    assert value(metrics, "redrive_attempt_seconds_bucket", source="orders", le="0.001") == 1
    assert value(metrics, "redrive_attempt_seconds_bucket", source="orders", le="0.005") == 2
    assert value(metrics, "redrive_attempt_seconds_bucket", source="orders", le="0.5") == 3
    assert value(metrics, "redrive_attempt_seconds_bucket", source="orders", le="+Inf") == 4
    assert value(metrics, "redrive_attempt_seconds_count", source="orders") == 4
    assert value(metrics, "redrive_attempt_seconds_sum", source="orders") == pytest.approx(1000.303)


def test_letters_leases_backends_and_replays_are_counted(events: Events, metrics: Metrics) -> None:
    events.emit(buried())
    events.emit(facts.LetterRefused(source="orders", message="m", why="too deep"))
    events.emit(facts.LetterResolved(source="orders", letter="x", replay=None))
    events.emit(facts.LeaseLost(source="orders", messages=("a", "b")))
    events.emit(facts.BackendDown(backend="redrive.db", why="", pause=timedelta()))
    events.emit(facts.ReplayMoved(replay="r", state="running", actor="me", total=3))
    assert value(metrics, "redrive_letters_buried_total", source="orders", category="network", reason="attempts") == 1
    assert value(metrics, "redrive_letters_refused_total", source="orders") == 1
    assert value(metrics, "redrive_letters_resolved_total", source="orders") == 1
    assert value(metrics, "redrive_lease_lost_total") == 2
    assert value(metrics, "redrive_backend_down_total", backend="redrive.db") == 1
    assert value(metrics, "redrive_replays_total", state="running") == 1
    assert value(metrics, "redrive_build_info", version=__version__) == 1


def test_a_breaker_is_open_until_it_is_not(events: Events, metrics: Metrics) -> None:
    found = []
    for position in (Position.OPEN, Position.HALF_OPEN, Position.CLOSED):
        events.emit(facts.BreakerMoved(target="default/orders", state=position))
        found.append(value(metrics, "redrive_breaker_open", target="default/orders"))
    assert found == [1, 0, 0]


def stats(count: int) -> Measured:
    sources = [SourceStats(f"s{n:04}", {State.PENDING: 1, State.RESOLVED: 2}, Depth(1, 2, 3)) for n in range(count)]
    return Measured(Stats(NOW, 3 * count, count, {}, {}, sources), {"store": True, "transports.default": True})


def test_the_store_and_the_queues_are_shown_as_they_were_counted(metrics: Metrics) -> None:
    assert value(metrics, "redrive_letters", stats(1), state="resolved", source="s0000") == 2
    assert value(metrics, "redrive_queue", stats(1), source="s0000", kind="leased") == 3
    assert value(metrics, "redrive_stats_up", stats(1)) == 1


def test_without_a_count_old_numbers_are_not_shown_again(metrics: Metrics) -> None:
    metrics.render(stats(1))
    assert value(metrics, "redrive_letters", None, state="resolved", source="s0000") is None
    assert value(metrics, "redrive_stats_up", None) == 0


def test_a_scrape_stays_small_however_many_sources_there_are(metrics: Metrics) -> None:
    text = metrics.render(stats(5000)).decode()
    assert text.count("redrive_letters{") == 201 * 2
    assert value(metrics, "redrive_letters", stats(5000), state="resolved", source="(others)") == 4800 * 2


def test_closed_metrics_observe_no_more(events: Events, metrics: Metrics) -> None:
    metrics.close()
    events.emit(batch(done=1))
    assert value(metrics, "redrive_messages_total", source="orders", outcome="done") is None


def test_a_backend_that_did_not_answer_is_named_and_the_rest_is_shown(metrics: Metrics) -> None:
    measured = Measured(stats(1).stats, {"store": True, "transports.kafka": False}, None, {"waiting": 1})
    assert value(metrics, "redrive_backend_up", measured, backend="transports.kafka") == 0
    assert value(metrics, "redrive_backend_up", measured, backend="store") == 1
    assert value(metrics, "redrive_stats_up", measured) == 0
    assert value(metrics, "redrive_letters", measured, state="resolved", source="s0000") == 2
    assert value(metrics, "redrive_replays_under_way", measured, standing="waiting") == 1


def test_the_oldest_letter_has_the_time_it_died(metrics: Metrics) -> None:
    measured = Measured(stats(1).stats, {}, Oldest("orders", NOW))
    assert value(metrics, "redrive_oldest_letter_timestamp_seconds", measured, source="orders") == NOW.timestamp()


def test_a_worker_is_there_until_it_stopped_and_its_counters_begin_at_zero(events: Events, metrics: Metrics) -> None:
    events.emit(facts.WorkerStarted(worker="w", sources=("orders",)))
    assert value(metrics, "redrive_worker", source="orders") == 1
    assert value(metrics, "redrive_messages_total", source="orders", outcome="buried") == 0
    events.emit(facts.WorkerStopped(worker="w", released=0))
    assert value(metrics, "redrive_worker", source="orders") == 0


def test_upkeep_says_when_it_last_ran_and_how_often_it_is_to(events: Events, metrics: Metrics) -> None:
    events.emit(facts.UpkeepRan(task="retries", at=NOW, every=timedelta(seconds=5)))
    assert value(metrics, "redrive_upkeep_last_run_timestamp_seconds", task="retries") == NOW.timestamp()
    assert value(metrics, "redrive_upkeep_interval_seconds", task="retries") == 5


def test_letters_sent_back_by_automatic_retries_are_counted(events: Events, metrics: Metrics) -> None:
    events.emit(facts.LettersRetried(source="orders", count=7))
    assert value(metrics, "redrive_letters_retried_total", source="orders") == 7
