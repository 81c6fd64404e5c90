"""Alertmanager, API v2: `alertmanager+http://host:9093`. It groups, silences and repeats by itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from redrive.alerts.model import Alert, Kind, Notice, Notifier
from redrive.alerts.notifiers.http import Http

_NO_NAME = re.compile(r"[^a-zA-Z0-9_]")


class Alertmanager(Notifier):
    """Sends alerts to Alertmanager, and again long before it would end them for not hearing of them."""

    keepalive = timedelta(minutes=1)

    def __init__(self, url: str, name: str) -> None:
        self.name = name
        self._http = Http(url, url.partition("://")[0].partition("+")[2])

    async def notify(self, notices: Sequence[Notice]) -> None:
        """Send all in one request. Alertmanager knows no acknowledgement, so it is sent none."""
        if alerts := [_sent(notice.alert) for notice in notices if notice.kind is not Kind.ACKNOWLEDGED]:
            await self._http.post(self._http.at("/api/v2/alerts"), alerts)

    async def check(self) -> None:
        await self._http.get(self._http.at("/api/v2/status"))

    async def aclose(self) -> None:
        await self._http.aclose()


def _sent(alert: Alert) -> dict[str, Any]:
    ends = alert.resolved_at or datetime.now(UTC) + 4 * Alertmanager.keepalive
    sent: dict[str, Any] = {
        "labels": labels_of(alert),
        "annotations": {"summary": alert.summary, **_named(alert.details)},
        "startsAt": alert.starts_at.isoformat(),
        "endsAt": ends.isoformat(),
    }
    if alert.links:
        sent["generatorURL"] = next(iter(alert.links.values()))
    return sent


def labels_of(alert: Alert) -> dict[str, str]:
    """The labels by which Alertmanager knows an alert, for its whole life."""
    own = {"alertname": alert.name, "severity": str(alert.severity), "key": alert.key, "service": "redrive"}
    more = {"group": alert.group, "source": alert.source}
    return {**_named(alert.labels), **{name: text for name, text in more.items() if text}, **own}


def _named(values: Any) -> dict[str, str]:
    """Labels with names that Alertmanager takes; one without a value is left out, as Alertmanager would."""
    pairs = ((_NO_NAME.sub("_", name), str(value)) for name, value in values.items())
    return {f"_{name}" if name[:1].isdigit() else name: value for name, value in pairs if name and value}
