"""Alerts of a queue: exhausted tasks, retries that mostly fail, a queue that fills up, OpenSearch away."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from redrive.alerts.alerts import Alerts
from redrive.alerts.masking import UrlMask
from redrive.alerts.model import Alert, Notifier, Severity
from redrive.alerts.notifiers import open_notifiers
from redrive.alerts.rules import FAILING, FILLING, Pen, Rule
from redrive.config.load import load
from redrive.config.settings import Settings
from redrive.errors import ConfigError, Unavailable
from redrive.forensics.redact import Redactor
from redrive.systems.workflow.queue import DeadLetterQueue
from redrive.systems.workflow.statistics import Health
from redrive.systems.workflow.task import SOURCE

_MANY = 100
MANY_EXHAUSTED = Rule(
    "ManyExhausted",
    Severity.WARNING,
    "",
    lambda thresholds: f"more than {_MANY} tasks of the queue are exhausted",
    lasting=True,
)


class QueueAlerts(Alerts):
    """The alerts of the project, and the three of the workflow document, which look at the whole queue:

    utilisation    more than 80 % full                                          (`alerts.utilisation`)
    exhausted      more than 100 exhausted tasks                                (`exhausted` of `alerts_of`)
    success rate   less than 50 % of all retries that were ever made succeeded  (`alerts.success`)
    """

    def __init__(self, queue: DeadLetterQueue, settings: Settings, exhausted: int | None, *rest: Any) -> None:
        ours = replace(settings.alerts, success=None, utilisation=None)  # of these two, the core's rules differ
        super().__init__(queue.store, queue.events, queue.clock, replace(settings, alerts=ours), *rest)
        self._queue = queue
        self._thresholds = settings.alerts
        self._exhausted = exhausted
        self._pen = Pen(Redactor.of(settings.redact), settings.alerts.console)
        self._health: Health | None = None  # as last seen, for when the store is away

    async def round(self) -> None:
        with suppress(Unavailable):
            self._health = await self._queue.get_health()
        for alert in self._conditions():
            self.report(alert)
        await super().round()

    def _conditions(self) -> Iterator[Alert]:
        if self._health is None:
            return
        health, full, least = self._health, self._thresholds.utilisation, self._thresholds.success
        if full is not None and health.utilization > full:
            yield self._alert(FILLING, f"is {health.utilization:g} % full: {health.size:,} of {health.max_size:,}")
        if self._exhausted is not None and health.exhausted > self._exhausted:
            yield self._alert(MANY_EXHAUSTED, f"has {health.exhausted:,} exhausted tasks")
        if least is not None and health.retries and health.success_rate < least:
            yield self._alert(FAILING, f"succeeded in {health.success_rate:.1f} % of {health.retries:,} retries")

    def _alert(self, rule: Rule, summary: str) -> Alert:
        return self._pen.alert(rule, SOURCE, f"{SOURCE} {summary}", self._queue.clock.now(), source=SOURCE, count=0)


def alerts_of(
    queue: DeadLetterQueue,
    *notifiers: Notifier | str,
    settings: Settings | None = None,
    exhausted: int | None = _MANY,
) -> Alerts:
    """The project's alerts for that queue: `async with alerts_of(app.dlq, "pagerduty://KEY"): …`

    Notifiers are URLs or objects, beside those of the setting `alerts.urls`; thresholds are the settings `alerts.*`.
    More exhausted tasks in all than `exhausted` are an alert of their own; None: they are not.
    """
    if exhausted is not None and (not isinstance(exhausted, int) or exhausted < 0):
        raise ConfigError(f"exhausted={exhausted!r}: it is a number of tasks, or None for no alert")
    chosen = settings or load()
    urls = [*chosen.alerts.urls, *(notifier for notifier in notifiers if isinstance(notifier, str))]
    given = [notifier for notifier in notifiers if not isinstance(notifier, str)]
    every: Sequence[Notifier] = [*open_notifiers(urls), *given]
    return QueueAlerts(queue, chosen, exhausted, every, UrlMask(urls))
