"""Alerts of a queue: exhausted tasks, retries that mostly fail, a queue that fills up, OpenSearch away."""

from __future__ import annotations

from collections.abc import Sequence

from redrive.alerts.alerts import Alerts
from redrive.alerts.masking import UrlMask
from redrive.alerts.model import Notifier
from redrive.alerts.notifiers import open_notifiers
from redrive.config.load import load
from redrive.config.settings import Settings
from redrive.systems.workflow.queue import DeadLetterQueue


def alerts_of(
    queue: DeadLetterQueue, *notifiers: Notifier | str, settings: Settings | None = None
) -> Alerts:  # fmt: skip
    """The project's alerts for that queue: `async with alerts_of(app.dlq, "pagerduty://KEY"): …`

    Notifiers are URLs or objects, beside those of the setting `alerts.urls`; thresholds are the settings `alerts.*`.
    """
    chosen = settings or load()
    urls = [*chosen.alerts.urls, *(notifier for notifier in notifiers if isinstance(notifier, str))]
    given = [notifier for notifier in notifiers if not isinstance(notifier, str)]
    every: Sequence[Notifier] = [*open_notifiers(urls), *given]
    return Alerts(queue.store, queue.events, queue.clock, chosen, every, UrlMask(urls))
