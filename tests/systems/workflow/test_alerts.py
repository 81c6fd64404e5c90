"""People are told of what the document wants them told of, by the notifiers of the project."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from redrive.alerts.model import Notice, Notifier
from redrive.config.settings import Settings
from redrive.errors import ConfigError
from redrive.systems.workflow import DeadLetterQueue, RetryPolicy, alerts_of
from redrive.testing.clock import ManualClock
from redrive.testing.waiting import until
from tests.systems.workflow.helpers import Worker, enqueued, failing


class Person(Notifier):
    name = "person"

    def __init__(self) -> None:
        self.heard: dict[str, str] = {}

    async def notify(self, notices: Sequence[Notice]) -> None:
        self.heard |= {one.alert.name: one.alert.summary for one in notices}

    async def check(self) -> None:
        return None

    async def aclose(self) -> None:
        return None


def _settings() -> Settings:
    quick = Settings().alerts
    return Settings(alerts=replace(quick, interval=timedelta(milliseconds=20)))


async def test_exhausted_tasks_failing_retries_and_a_full_queue_are_told() -> None:
    person = Person()
    async with DeadLetterQueue(max_size=100) as dlq, alerts_of(dlq, person, settings=_settings()):
        for number in range(90):
            await enqueued(dlq, f"t{number}", retry_policy=RetryPolicy.IMMEDIATE, max_retries=1)
        await dlq.run_retry_cycle(failing(ValueError("malformed")))
        await until(lambda: {"LettersExhausted", "RetriesFailing", "QueueFilling"} <= person.heard.keys())
        assert person.heard["QueueFilling"] == "workflow is 90 % full: 90 of 100"
        assert person.heard["RetriesFailing"].startswith("workflow succeeded in 0.0 % of ")


async def _told(dlq: DeadLetterQueue, **options: Any) -> set[str]:
    """The rules of the document that fire now."""
    settings = Settings(alerts=replace(Settings().alerts, new_group=False, exhausted=None, growth=None))
    alerts = alerts_of(dlq, settings=settings, **options)
    await alerts.round()
    return {incident.alert.name for incident in await alerts.incidents.list()}


@pytest.mark.parametrize(("tasks", "told"), [(80, set()), (81, {"QueueFilling"})])
async def test_a_queue_that_is_more_than_80_percent_full(tasks: int, told: set[str]) -> None:
    async with DeadLetterQueue(max_size=100) as dlq:
        for number in range(tasks):
            await enqueued(dlq, f"t{number}")
        assert await _told(dlq) == told


@pytest.mark.parametrize(("tasks", "told"), [(100, set()), (101, {"ManyExhausted"})])
async def test_more_than_100_exhausted_tasks(tasks: int, told: set[str]) -> None:
    """Of the whole queue, whatever their groups."""
    async with DeadLetterQueue() as dlq:
        for number in range(tasks):
            await enqueued(dlq, f"t{number}", max_retries=1)
        await dlq.run_retry_cycle(failing(ValueError("malformed")))
        assert await _told(dlq) - {"RetriesFailing"} == told
        assert await _told(dlq, exhausted=None) - {"RetriesFailing", "ManyExhausted"} == set()


async def test_less_than_half_of_all_retries_succeed(clock: ManualClock) -> None:
    """A failed retry counts, whether or not others will follow it; what nobody retried yet is no failure."""
    async with DeadLetterQueue(clock=clock) as dlq:
        assert await _told(dlq) == set()
        await enqueued(dlq, "good")
        await dlq.run_retry_cycle(Worker())
        await enqueued(dlq, "bad", max_retries=3)
        await dlq.run_retry_cycle(failing())
        assert (await dlq.get_statistics())["status_breakdown"]["exhausted"] == 0
        assert await _told(dlq) == set(), "half of them"
        await dlq.run_retry_cycle(failing())
        assert await _told(dlq) == {"RetriesFailing"}


async def test_the_settings_move_and_end_the_rules() -> None:
    async with DeadLetterQueue(max_size=100) as dlq:
        for number in range(100):
            await enqueued(dlq, f"t{number}", max_retries=1)
        await dlq.run_retry_cycle(failing(ValueError("malformed")))
        thresholds = replace(Settings().alerts, success=None, utilisation=None, exhausted=None, new_group=False)
        alerts = alerts_of(dlq, settings=Settings(alerts=replace(thresholds, growth=None)), exhausted=99)
        await alerts.round()
        assert {incident.alert.name for incident in await alerts.incidents.list()} == {"ManyExhausted"}
    with pytest.raises(ConfigError, match="exhausted='many'"):
        alerts_of(dlq, settings=Settings(), exhausted="many")  # type: ignore[arg-type]
