"""An app whose alerts go to a notifier that remembers, and an HTTP server that takes real ones."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any

import pytest

from redrive import Redrive
from redrive.alerts import Alert, Alerts, Notice, Notifier, Severity
from redrive.config import Settings
from redrive.settings import Alerts as Chosen
from redrive.telemetry.events import Event
from redrive.testing.clock import START, ManualClock
from tests.alerts.receiver import Receiver, receiving

SECRET = "s3cr3t-routing-key"


class Remembering(Notifier):
    """Takes everything, or what it is told to raise."""

    def __init__(self, name: str = "remembering", keepalive: timedelta | None = None) -> None:
        self.name = name
        self.keepalive = keepalive
        self.batches: list[list[Notice]] = []
        self.fails: list[Exception] = []

    @property
    def notices(self) -> list[Notice]:
        return [one for batch in self.batches for one in batch]

    @property
    def told(self) -> list[tuple[str, str]]:
        return [(str(one.kind), one.alert.key) for one in self.notices]

    async def notify(self, notices: Sequence[Notice]) -> None:
        if self.fails:
            raise self.fails.pop(0)
        self.batches.append(list(notices))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def notifier() -> Remembering:
    return Remembering()


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as made:
        yield made


def an_app(clock: Any = None, store: Any = "memory://", **chosen: Any) -> Redrive:
    settings = Settings(store=store, transports={"default": "memory://"}, worker="w", alerts=Chosen(**chosen))
    return Redrive(settings=settings, clock=clock)


def an_alert(key: Any = "k", *, at: Any = START, **more: Any) -> Alert:
    return Alert(**({"name": "Own", "severity": Severity.ERROR, "summary": "it burns"} | more), key=key, starts_at=at)


def seen(app: Redrive) -> list[Event]:
    events: list[Event] = []
    app.events.subscribe(events.append)
    return events


@pytest.fixture
async def app(clock: ManualClock) -> AsyncIterator[Redrive]:
    async with an_app(clock) as made:
        yield made


@pytest.fixture
def alerts(app: Redrive, notifier: Remembering) -> Alerts:
    """Not started: a test asks for its rounds one by one."""
    return Alerts.of(app, notifiers=[notifier])
