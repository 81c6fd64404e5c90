"""People are told of what the document wants them told of, by the notifiers of the project."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from msgspec.structs import replace

from redrive.alerts.model import Notice, Notifier
from redrive.config.settings import Settings
from redrive.systems.workflow import DeadLetterQueue, RetryPolicy, alerts_of
from redrive.testing.waiting import until
from tests.systems.workflow.helpers import enqueued, failing


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
    return Settings(alerts=replace(quick, interval=timedelta(milliseconds=20), success_of=5))


async def test_exhausted_tasks_failing_retries_and_a_full_queue_are_told() -> None:
    person = Person()
    async with DeadLetterQueue(max_size=10) as dlq, alerts_of(dlq, person, settings=_settings()) as alerts:
        for number in range(9):
            await enqueued(dlq, f"t{number}", retry_policy=RetryPolicy.IMMEDIATE, max_retries=1)
        await dlq.run_retry_cycle(failing(ValueError("malformed")))
        await dlq.get_statistics()
        await until(lambda: {"LettersExhausted", "RetriesFailing", "QueueFilling"} <= person.heard.keys())
        assert person.heard["QueueFilling"] == "workflow is 90 % full: 9 of 10"
        assert person.heard["RetriesFailing"].startswith("only 0 % of 9 retried letters of workflow succeeded")
        assert {one.alert.name for one in await alerts.incidents.list()} >= {"LettersExhausted", "QueueFilling"}
