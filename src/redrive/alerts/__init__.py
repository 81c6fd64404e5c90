"""Alerts: what people should know, told once, by whatever notifier they have.

watch.py       events of this process become alerts; O(1) on the path of a message
rules.py       which facts are alerts, as data with thresholds
regressions.py  which fixed groups have regressed, and which are muted
incidents.py   the life of an alert in the store: opened, told, acknowledged, resolved; shared by all processes
courier.py     one notifier, with patience
alerts.py      the background task that joins them
notifiers/     Alertmanager, PagerDuty, webhooks, and everything that apprise knows
"""

from redrive.alerts.alerts import Alerts, alerting
from redrive.alerts.model import Alert, Kind, Notice, Notifier, Severity, Undelivered

__all__ = ["Alert", "Alerts", "Kind", "Notice", "Notifier", "Severity", "Undelivered", "alerting"]
