"""What Prometheus, an alert and a log reader see."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from redrive.config.settings import Settings
from redrive.forensics.measured import Measured
from redrive.forensics.stats import stats_of
from redrive.model import Reason, State
from redrive.systems.email import EmailGateway
from redrive.systems.email.logs import AttemptLog
from redrive.systems.email.metrics import measured
from redrive.telemetry.events import BackendUp, BatchSettled, Event, MessageBuried, MessageRetried
from redrive.telemetry.metrics import Metrics
from redrive.testing.builders import make_failure
from redrive.testing.clock import START
from redrive.testing.waiting import until
from tests.systems.email.jobs import job
from tests.systems.email.mailserver import Mailbox
from tests.systems.email.world import running, with_email

HERE = Path(__file__).parent
RULES = HERE.parents[2] / "src/redrive/systems/email/rules.yml"
Samples = dict[tuple[str, str], float]


async def scraped(metrics: Metrics) -> tuple[Samples, str]:
    """Every value by its name and its one label."""
    for probe in metrics.probes:
        await probe()
    text = metrics.render(Measured(stats_of([], {}, START), {})).decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {(one.name, ",".join(one.labels.values())): one.value for one in samples}, text


async def test_a_scrape_has_the_metrics_of_the_contract(
    settings: Settings,
    mailbox: Mailbox,
) -> None:
    mailbox.once["ana@example.com"] = ["421 busy", "421 busy"]
    mailbox.always["bob@example.com"] = "550 no"
    async with running(with_email(settings, rate=None)) as gateway:
        metrics, watch = measured(gateway)
        settled: list[BatchSettled] = []
        gateway.app.events.subscribe(lambda event: settled.append(event) if isinstance(event, BatchSettled) else None)
        await gateway.add_all([job("o-1"), job("o-2", "evil", to="bob@example.com"), job("o-3", to="c@example.com")])
        await until(lambda: sum(one.done + one.buried for one in settled) == 3)
        found, text = await scraped(metrics)
        await watch.aclose()
    assert found["retry_attempts_total", "1"] == 3
    assert found["retry_attempts_total", "2"] == found["retry_attempts_total", "3"] == 1
    assert found["retry_success_rate", "1"] == pytest.approx(1 / 3)
    assert found["retry_success_rate", "3"] == 1
    assert found["retry_backoff_delay_seconds_count", ""] == 2
    assert found["dlq_entries_total", ""] == found["dlq_size", ""] == found["dlq_age_seconds_count", ""] == 1
    assert found["dlq_by_error_code", "550"] == found["dlq_by_company", "evil"] == 1
    assert found["tenant_jobs_processed", "acme"] >= 2
    assert 1 <= found["tenant_current_priority", "acme"] <= 5
    for name in ("tenant_consecutive_batch", "tenant_rounds_without_processing"):
        assert (name, "acme") in found
    assert found["redis_memory_max_bytes", ""] == 512 * 2**20
    assert 0 < found["redis_memory_used_bytes", ""] < 512 * 2**20
    assert {("redis_rejected_connections_total", ""), ("redis_errors_total", "OOM")} <= set(found)
    labels = set(re.findall(r"^(?:dlq_by|tenant|retry)_\w+\{(\w+)=", text, re.MULTILINE))
    assert labels == {"attempt", "error_code", "companyId", "le"}


async def test_a_scrape_is_answered_while_redis_is_away(settings: Settings) -> None:
    gone = with_email(settings, redis="redis://127.0.0.1:1/0")
    async with EmailGateway(gone) as gateway:
        metrics, watch = measured(gateway)
        with pytest.raises(Exception, match="unavailable"):
            await metrics.probes[0]()
        text = metrics.render(None).decode()
        await watch.aclose()
    assert "dlq_entries_total 0.0" in text
    assert "dlq_size" not in text


def promtool(*words: str, place: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["promtool", *words], cwd=place, capture_output=True, text=True, timeout=60)


@pytest.mark.usefixtures("prometheus_server")
def test_the_alert_rules_fire_when_they_should_and_only_then(tmp_path: Path) -> None:
    shutil.copy(RULES, tmp_path)
    shutil.copy(HERE / "rules_test.yml", tmp_path)
    checked = promtool("check", "rules", "rules.yml", place=tmp_path)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    tested = promtool("test", "rules", "rules_test.yml", place=tmp_path)
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_every_rule_is_tested_and_asks_for_metrics_that_there_are() -> None:
    rules, tests = RULES.read_text(), (HERE / "rules_test.yml").read_text()
    names = re.findall(r"- alert: (\w+)", rules)
    assert len(names) == 8
    assert all(f"alertname: {name}" in tests for name in names)


FIELDS = [
    *("level", "message", "jobId", "companyId", "attempt", "maxAttempts", "errorCode", "errorReason"),
    *("nextRetryDelay", "isRetryable", "timestamp"),
]


def logged(event: Event) -> list[dict[str, Any]]:
    stream, others = io.StringIO(), list[Event]()
    AttemptLog("email:send", 5, others.append, stream=stream)(event)
    return [json.loads(line) for line in stream.getvalue().splitlines()] or [{"others": len(others)}]


def test_a_failed_attempt_is_a_line_with_exactly_the_documents_fields() -> None:
    failure = make_failure(attempt=3, code="421", message="Service temporarily unavailable", at=START)
    after = timedelta(milliseconds=4234, microseconds=700)
    (line,) = logged(
        MessageRetried(
            source="email:send", message="o-1", tenant="acme", correlation_id=None, failure=failure, after=after
        )
    )
    assert list(line) == FIELDS
    assert line["level"] == "warn"
    assert line["message"] == "Job failed, scheduling retry"
    assert (line["jobId"], line["companyId"], line["attempt"], line["maxAttempts"]) == ("o-1", "acme", 3, 5)
    assert (line["errorCode"], line["errorReason"]) == ("421", "Service temporarily unavailable")
    assert (line["nextRetryDelay"], line["isRetryable"]) == (4234, True)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["timestamp"])


def test_a_buried_job_is_a_line_without_another_delay() -> None:
    failure = make_failure(attempt=1, code="550", message="no, password=hunter2", retryable=False)
    (line,) = logged(
        MessageBuried(
            source="email:send",
            message="o-1",
            tenant="acme",
            correlation_id=None,
            letter="l",
            group="g",
            reason=Reason.PERMANENT,
            state=State.PENDING,
            failure=failure,
        )
    )
    assert list(line) == FIELDS
    assert (line["level"], line["nextRetryDelay"], line["isRetryable"]) == ("error", None, False)
    assert "hunter2" not in line["errorReason"]


def test_other_facts_go_their_own_way() -> None:
    assert logged(BackendUp(backend="redis")) == [{"others": 1}]
