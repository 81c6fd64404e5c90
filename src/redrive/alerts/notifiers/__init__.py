"""Which notifier a URL means. Nothing is imported before it is asked for."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from importlib import import_module

from redrive.alerts.masking import UrlMask
from redrive.alerts.model import Notifier
from redrive.errors import ConfigError
from redrive.forensics.secrets import hidden_url

# scheme -> module:class, which takes the URL and the name of the notifier; every other scheme is apprise's
NOTIFIERS = {
    "alertmanager+http": "redrive.alerts.notifiers.alertmanager:Alertmanager",
    "alertmanager+https": "redrive.alerts.notifiers.alertmanager:Alertmanager",
    "pagerduty": "redrive.alerts.notifiers.pagerduty:PagerDuty",
    "pagerduty+http": "redrive.alerts.notifiers.pagerduty:PagerDuty",
    "pagerduty+https": "redrive.alerts.notifiers.pagerduty:PagerDuty",
    "webhook+http": "redrive.alerts.notifiers.webhook:Webhook",
    "webhook+https": "redrive.alerts.notifiers.webhook:Webhook",
}
_ANY = "redrive.alerts.notifiers.apprise:Apprise"


def open_notifiers(urls: Iterable[str]) -> list[Notifier]:
    """A notifier for each URL. ConfigError for a URL that makes no sense; its text does not show the URL."""
    return [open_notifier(url) for url in dict.fromkeys(urls)]


def open_notifier(url: str) -> Notifier:
    scheme, is_url, rest = url.partition("://")
    if not is_url or not rest:
        raise ConfigError(f"alerts.urls: {hidden_url(url)} is no URL of a notifier: write it like pagerduty://KEY")
    module, _, name = NOTIFIERS.get(scheme, _ANY).partition(":")
    make: Callable[[str, str], Notifier] = getattr(import_module(module), name)
    with UrlMask([url]):
        return make(url, name_of(url))


def name_of(url: str) -> str:
    """A name such as `slack-3f9a1c`: of this notifier only, the same in every process, without a secret."""
    scheme = url.partition("://")[0].partition("+")[0].lower()
    return f"{scheme}-{hashlib.sha256(url.encode()).hexdigest()[:6]}"
