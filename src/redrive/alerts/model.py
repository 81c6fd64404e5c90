"""The values of alerts: Alert, Notice, Notifier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from msgspec import Struct, field

from redrive.errors import RedriveError


class Severity(StrEnum):
    """How much an alert matters; the words are PagerDuty's."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"

    def reaches(self, least: Severity) -> bool:
        ranks = list(Severity)
        return ranks.index(self) >= ranks.index(least)


class Alert(Struct, frozen=True, kw_only=True):
    """Something that a person should know. The same key is the same alert, whoever reports it and how often.

    A lasting alert is a condition: it is reported again and again while it is so, and resolves when nobody reports
    it any more. Any other is a fact: it stays until it is cleared.
    """

    key: str
    name: str  # of the rule: `BackendDown`
    severity: Severity
    summary: str
    starts_at: datetime
    details: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)  # few values, and the same for the alert's whole life
    group: str | None = None
    source: str | None = None
    links: Mapping[str, str] = field(default_factory=dict)  # text -> address
    resolved_at: datetime | None = None
    count: int = 1  # how often it happened since it was last reported
    lasting: bool = False


class Kind(StrEnum):
    """What a notice says of its alert."""

    OPENED = "opened"
    REPEATED = "repeated"  # it is still so, or happened again
    ACKNOWLEDGED = "acknowledged"
    RESOLVED = "resolved"


class Notice(Struct, frozen=True, kw_only=True):
    """One alert, as it is sent. The same id is the same notice, sent twice."""

    id: str
    kind: Kind
    alert: Alert
    count: int  # how often it happened since it was opened
    since: int  # of these, since it was last told
    by: str = ""  # who acknowledged or resolved it


class Undelivered(RedriveError):
    """A notifier did not take a notice. If it is not retryable, the same notice will never be taken."""

    def __init__(self, why: str, *, retryable: bool = True, after: timedelta | None = None) -> None:
        super().__init__(why)
        self.retryable = retryable
        self.after = after  # what the other side asks us to wait


class Notifier(Protocol):
    """Takes notices to somebody. Inherit from it and write `notify`; the rest may stay as it is."""

    name: str
    """Short, without a secret: it is a metric's label, and kept with what it has still to be told."""
    keepalive: timedelta | None = None
    """Whether, and how often, it has to hear of an alert that goes on, or takes it for resolved."""

    async def notify(self, notices: Sequence[Notice]) -> None:
        """Send all of these; raise Undelivered, or anything else, if that failed. The same notice may come twice."""
        ...

    async def check(self) -> None:
        """Raise Undelivered, saying why, if it cannot be reached. Sends nothing to anybody."""
        return

    async def aclose(self) -> None:
        """Close what it has opened."""
        return
