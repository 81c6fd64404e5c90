"""Which facts are alerts: the rules as data, and the alert that each of them makes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from redrive.alerts.model import Alert, Severity
from redrive.config.durations import spoken
from redrive.config.settings import Alerts as Thresholds
from redrive.errors import ConfigError
from redrive.forensics.query import Query
from redrive.forensics.redact import Redactor
from redrive.model import OPEN, State

_LONGEST = 300


class Rule(Struct, frozen=True):
    """One rule: what it is called, how bad it is, what it says, and the setting that moves or ends it."""

    name: str
    severity: Severity
    setting: str
    about: Callable[[Thresholds], str]
    lasting: bool
    gone: Callable[[str], Query] | None = None  # of a group: letters whose absence resolves it

    def is_on(self, thresholds: Thresholds) -> bool:
        return getattr(thresholds, self.setting.partition(".")[2]) not in (None, False)


EXHAUSTED = Rule(
    "LettersExhausted",
    Severity.ERROR,
    "alerts.exhausted",
    lambda t: f"{t.exhausted} or more letters of one group are exhausted",
    lasting=False,
    gone=lambda group: Query(groups=(group,), states=(State.EXHAUSTED,)),
)
NEW_GROUP = Rule(
    "NewGroup",
    Severity.WARNING,
    "alerts.new_group",
    lambda t: "letters have a cause that was never seen before",
    lasting=False,
    gone=lambda group: Query(groups=(group,), states=OPEN),
)
GROWING = Rule(
    "GroupGrowing",
    Severity.ERROR,
    "alerts.growth",
    lambda t: f"a group got {t.growth} or more letters within {spoken(t.window)}",
    lasting=True,
)
FAILING = Rule(
    "RetriesFailing",
    Severity.WARNING,
    "alerts.success",
    lambda t: (
        f"less than {t.success} % of {t.success_of} or more retried letters of a source succeeded "
        f"within {spoken(t.window)}"
    ),
    lasting=True,
)
FILLING = Rule(
    "QueueFilling",
    Severity.WARNING,
    "alerts.utilisation",
    lambda t: f"a queue with a bound is {t.utilisation} % full",
    lasting=True,
)
DOWN = Rule(
    "BackendDown",
    Severity.CRITICAL,
    "alerts.backend_down",
    lambda t: f"a store or transport does not answer for {'' if t.backend_down is None else spoken(t.backend_down)}",
    lasting=True,
)
BREAKER = Rule(
    "BreakerOpen",
    Severity.WARNING,
    "alerts.breaker",
    lambda t: "the circuit breaker of a target is open",
    lasting=True,
)
STORM = Rule(
    "SourceStorm",
    Severity.CRITICAL,
    "alerts.storm",
    lambda t: "a source is paused, because it buries more than its policy allows",
    lasting=True,
)
REPLAY_PAUSED = Rule(
    "ReplayPaused",
    Severity.ERROR,
    "alerts.replay_paused",
    lambda t: "a replay paused by itself, and waits for somebody",
    lasting=True,
)
REGRESSED = Rule(
    "GroupRegressed",
    Severity.ERROR,
    "alerts.regressed",
    lambda t: "a letter died on the version that its group is fixed in",
    lasting=True,
)
DEPLOYED = Rule(
    "FixDeployed",
    Severity.WARNING,
    "alerts.deployed",
    lambda t: "every worker runs the version that a group is fixed in, and its letters wait for a replay",
    lasting=False,
    gone=lambda group: Query(groups=(group,), states=(State.PENDING, State.EXHAUSTED)),
)
RULES = (
    EXHAUSTED,
    NEW_GROUP,
    GROWING,
    FAILING,
    FILLING,
    DOWN,
    BREAKER,
    REPLAY_PAUSED,
    STORM,
    REGRESSED,
    DEPLOYED,
)
BY_NAME = {rule.name: rule for rule in RULES}


class Pen:
    """Writes alerts: redacted, with the link to the console where there is one."""

    def __init__(self, redactor: Redactor, console: str | None) -> None:
        if console is not None and not console.startswith(("http://", "https://")):
            raise ConfigError(f"alerts.console = {console!r}: it takes an address such as https://redrive.example.org")
        self._redactor = redactor
        self._console = None if console is None else console.rstrip("/")

    def alert(self, rule: Rule, about: str, summary: str, now: datetime, **more: Any) -> Alert:
        """The alert of a rule; `about` tells two alerts of one rule apart."""
        details = {name: self.clean(str(value)) for name, value in more.pop("details", {}).items()}
        return Alert(
            key=f"{rule.name}:{about}",
            name=rule.name,
            severity=rule.severity,
            summary=self.clean(summary),
            starts_at=now,
            details=details,
            links=self.links(more.get("group")),
            lasting=rule.lasting,
            **more,
        )

    def masked(self, alert: Alert) -> Alert:
        """One that somebody else has written, without the secrets in it."""
        text = self._redactor.text
        details = {name: text(str(value)) for name, value in alert.details.items()}
        labels = {name: text(str(value)) for name, value in alert.labels.items()}
        return replace(alert, summary=text(alert.summary), details=details, labels=labels)

    def clean(self, text: str) -> str:
        masked = " ".join(self._redactor.text(text).split())
        return masked if len(masked) <= _LONGEST else f"{masked[: _LONGEST - 1]}…"

    def links(self, group: str | None) -> dict[str, str]:
        if self._console is None:
            return {}
        return {"console": f"{self._console}/" + (f"#group={group}" if group else "")}


def letters(count: int) -> str:
    return f"{count:,} letter{'' if count == 1 else 's'}"
