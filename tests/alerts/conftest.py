"""An app whose alerts go to a notifier that remembers, and an HTTP server that takes real ones."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from redrive import Redrive
from redrive.alerts import Alert, Alerts, Notice, Notifier, Severity
from redrive.config.settings import Alerts as Chosen
from redrive.config.settings import Settings
from redrive.telemetry.events import Event
from redrive.testing.clock import START, ManualClock
from tests.alerts.receiver import Receiver, receiving

SECRET = "s3cr3t-routing-key"
SERVERS = [pytest.param(name, marks=pytest.mark.servers) for name in ("redis", "mongodb", "opensearch")]
on_shared_stores = pytest.mark.parametrize("store", ["sqlite", *SERVERS], indirect=True)
on_every_store = pytest.mark.parametrize("store", ["memory", "sqlite", *SERVERS], indirect=True)


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
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """The URL of an empty store: in memory, if the test does not ask for others."""
    kind, name = getattr(request, "param", "memory"), f"alerts_{uuid4().hex[:12]}"
    match kind:
        case "memory":
            yield "memory://"
        case "sqlite":
            yield f"sqlite:///{tmp_path / 'redrive.db'}"
        case "redis":
            yield f"{request.getfixturevalue('redis_server').url}?prefix={name}"
        case "mongodb":
            yield f"{request.getfixturevalue('mongodb_server').url.rstrip('/')}/alerts?letters={name}"
        case "opensearch":  # making its indexes takes longer than most tests: they are used again
            from tests.conformance.opensearch_indexes import OpenSearchBackend  # not for every reporting_process

            backend = OpenSearchBackend(request.getfixturevalue("opensearch_server"), "alerts")
            yield backend.url
            await backend.aclose()


@pytest.fixture
async def app(clock: ManualClock, store: str) -> AsyncIterator[Redrive]:
    async with an_app(clock, store) as made:
        yield made


@pytest.fixture
def alerts(app: Redrive, notifier: Remembering) -> Alerts:
    """Not started: a test asks for its rounds one by one."""
    return Alerts.of(app, notifiers=[notifier])
