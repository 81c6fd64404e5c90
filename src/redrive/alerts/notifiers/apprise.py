"""Everything else: Slack, e-mail, Teams, Telegram and a hundred more, each by its apprise URL."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from contextvars import ContextVar

from redrive.alerts.model import Kind, Notice, Notifier, Severity, Undelivered
from redrive.alerts.text import body_of, title_of
from redrive.errors import ConfigError, MissingExtra
from redrive.flow.threads import Threads
from redrive.forensics.secrets import hidden_url

try:
    import apprise
except ImportError as error:
    raise MissingExtra("this notifier", "alerts") from error

_TYPES = {
    Severity.INFO: apprise.NotifyType.INFO,
    Severity.WARNING: apprise.NotifyType.WARNING,
    Severity.ERROR: apprise.NotifyType.FAILURE,
    Severity.CRITICAL: apprise.NotifyType.FAILURE,
}


class Apprise(Notifier):
    """Sends one text for all notices of a moment, in a thread: the library waits for its answers."""

    def __init__(self, url: str, name: str) -> None:
        self.name = name
        self._threads = Threads("redrive-alerts")
        self._apprise = apprise.Apprise()
        with _Overheard(), warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of modules that it loads now, and are not ours
            known = self._apprise.add(url)
        if not known:
            raise ConfigError(f"alerts.urls: apprise does not know {hidden_url(url)}, or something in it is missing")

    async def notify(self, notices: Sequence[Notice]) -> None:
        """Send them, but no acknowledgements: those who would read it know already."""
        if told := [notice for notice in notices if notice.kind is not Kind.ACKNOWLEDGED]:
            await self._threads.run(lambda: self._notify(told))

    async def aclose(self) -> None:
        self._threads.close()

    def _notify(self, notices: Sequence[Notice]) -> None:
        with _Overheard() as said:
            taken = self._apprise.notify(
                body=body_of(notices),
                title=title_of(notices),
                notify_type=_type_of(notices),
                body_format=apprise.NotifyFormat.TEXT,
            )
        if not taken:
            raise Undelivered(said.text or "apprise could not deliver it, and does not say why")


def _type_of(notices: Sequence[Notice]) -> apprise.NotifyType:
    opened = [notice.alert.severity for notice in notices if notice.kind is not Kind.RESOLVED]
    return _TYPES[max(opened, key=list(Severity).index)] if opened else apprise.NotifyType.SUCCESS


class _Overheard(logging.Handler):
    """Collects what apprise logs on this call: it answers only that it failed, and logs why."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._lines: list[str] = []

    @property
    def text(self) -> str:
        return "; ".join(self._lines)

    def emit(self, record: logging.LogRecord) -> None:
        if _ear.get() is self:
            self._lines.append(record.getMessage())

    def __enter__(self) -> _Overheard:
        logging.getLogger("apprise").addHandler(self)
        self._before = _ear.set(self)
        return self

    def __exit__(self, *error: object) -> None:
        _ear.reset(self._before)
        logging.getLogger("apprise").removeHandler(self)


_ear: ContextVar[_Overheard | None] = ContextVar("ear", default=None)
"""Goes with the call into whichever thread apprise makes it in, so that two calls do not hear each other."""
