"""While the store is away it is told all the same."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from redrive import Redrive
from redrive.alerts import Alerts, Undelivered
from redrive.config.settings import Alerts as Chosen
from redrive.config.settings import Settings
from redrive.errors import StoreUnavailable
from redrive.stores.memory import MemoryStore
from redrive.telemetry.events import (
    AlertsDropped,
    BackendDown,
    BackendUp,
)
from redrive.testing.clock import ManualClock
from tests.alerts.conftest import Remembering, an_alert, seen
from tests.alerts.test_rules import rounds


class Moody(MemoryStore):
    """A store that is away while it is told to be."""

    def __init__(self) -> None:
        super().__init__()
        self.away = False
        for part in (self.documents, self.letters):
            for name in ("get", "list", "put", "delete", "count", "groups"):
                if hasattr(part, name):
                    setattr(part, name, self._guarded(getattr(part, name)))

    def _guarded(self, call: Any) -> Any:
        async def guarded(*arguments: Any, **options: Any) -> Any:
            if self.away:
                raise StoreUnavailable("store", "gone")
            return await call(*arguments, **options)

        return guarded


@pytest.fixture
async def moody(clock: ManualClock) -> AsyncIterator[tuple[Moody, Redrive]]:
    store = Moody()
    settings = Settings(transports={"default": "memory://"}, worker="w", alerts=Chosen())
    async with Redrive(store=store, settings=settings, clock=clock) as app:
        yield store, app


async def test_while_the_store_is_away_it_is_told_all_the_same_and_written_down_later(
    moody: tuple[Moody, Redrive], clock: ManualClock, notifier: Remembering
) -> None:
    store, app = moody
    events = seen(app)
    alerts = Alerts.of(app, notifiers=[notifier])
    alerts.listen()
    alerts.report(an_alert("before"))
    await rounds(alerts, clock)
    store.away = True
    alerts.clear("before")  # only the store knows it
    alerts.report(an_alert("during"))
    await rounds(alerts, clock, 12)
    assert notifier.told == [("opened", "before"), ("opened", "during"), ("opened", "BackendDown:store")]
    assert any(isinstance(one, BackendDown) for one in events)
    store.away = False
    await rounds(alerts, clock, 2)
    assert [one.backend for one in events if isinstance(one, BackendUp)] == ["store"]
    assert notifier.told[3:] == [("resolved", "before")]
    states = {one.alert.key: str(one.state) for one in await alerts.incidents.list()}
    assert states == {"before": "resolved", "during": "open", "BackendDown:store": "open"}
    await rounds(alerts, clock, 20)
    assert notifier.told[4:] == [("resolved", "BackendDown:store")]


async def test_what_was_not_told_when_the_process_ended_without_a_store_is_counted(
    moody: tuple[Moody, Redrive], notifier: Remembering
) -> None:
    store, app = moody
    events = seen(app)
    store.away = True
    notifier.fails = [Undelivered("down") for _ in range(10)]
    async with Alerts.of(app, notifiers=[notifier]) as alerts:
        alerts.report(an_alert())
    assert [one.count for one in events if isinstance(one, AlertsDropped)] == [1]
