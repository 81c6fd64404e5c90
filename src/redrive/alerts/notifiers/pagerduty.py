"""PagerDuty, Events API v2: `pagerduty://ROUTING_KEY`, or `pagerduty://ROUTING_KEY@events.eu.pagerduty.com`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redrive.alerts.incidents import incident_id
from redrive.alerts.model import Kind, Notice, Notifier
from redrive.alerts.notifiers.http import Http
from redrive.errors import ConfigError

_HOST = "events.pagerduty.com"
_LONGEST_SUMMARY = 1024
_LONGEST_KEY = 255
_ACTIONS = {
    Kind.OPENED: "trigger",
    Kind.REPEATED: "trigger",
    Kind.ACKNOWLEDGED: "acknowledge",
    Kind.RESOLVED: "resolve",
}


class PagerDuty(Notifier):
    """Sends one event for each notice. An alert's key is its dedup key, so the same incident is triggered once."""

    def __init__(self, url: str, name: str) -> None:
        self.name = name
        scheme, _, rest = url.partition("://")
        key, has_host, host = rest.partition("@")
        self._key = key.strip("/")
        if not self._key:
            raise ConfigError("alerts.urls: pagerduty:// needs the routing key of a service: pagerduty://KEY")
        plain = "http" if scheme.endswith("+http") else "https"
        self._http = Http(f"{plain}://{host if has_host else _HOST}", plain)

    async def notify(self, notices: Sequence[Notice]) -> None:
        for notice in notices:
            await self._http.post(self._http.at("/v2/enqueue"), self._event(notice))

    async def check(self) -> None:
        """Check only that somebody listens: every request would trigger something."""
        await self._http.reach()

    async def aclose(self) -> None:
        await self._http.aclose()

    def _event(self, notice: Notice) -> dict[str, Any]:
        action = _ACTIONS[notice.kind]
        event: dict[str, Any] = {
            "routing_key": self._key,
            "event_action": action,
            "dedup_key": dedup_key(notice.alert.key),
        }
        return event if action != "trigger" else event | _described(notice)


def dedup_key(key: str) -> str:
    return key if len(key) <= _LONGEST_KEY else incident_id(key)


def _described(notice: Notice) -> dict[str, Any]:
    alert = notice.alert
    payload: dict[str, Any] = {
        "summary": alert.summary[:_LONGEST_SUMMARY],
        "source": alert.source or "redrive",
        "severity": str(alert.severity),
        "timestamp": alert.starts_at.isoformat(),
        "class": alert.name,
        "custom_details": {**alert.details, **alert.labels, "count": notice.count},
    }
    if alert.group is not None:
        payload["group"] = alert.group
    links = [{"href": address, "text": text} for text, address in alert.links.items()]
    return {"payload": payload, "client": "Redrive", "links": links}
