"""A real Alertmanager: an alert arrives once, goes on, and ends when it is resolved."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from redrive.alerts import Alerts, Kind, Notice, Severity
from redrive.alerts.notifiers import open_notifier
from redrive.service import Service
from redrive.testing.clock import ManualClock
from redrive.testing.waiting import until
from tests.actors import acting
from tests.alerts.conftest import an_alert, an_app
from tests.alerts.receiver import Receiver
from tests.servers.fixtures import StartsMonitor
from tests.servers.prometheus import Alertmanager

CONFIG = """
route: {receiver: hook, group_wait: 0s, group_interval: 1s, repeat_interval: 1h, group_by: [alertname]}
receivers: [{name: hook, webhook_configs: [{url: "http://HOST/", send_resolved: true}]}]
"""


@pytest.fixture
def alertmanager(alertmanager_server: StartsMonitor[Alertmanager], receiver: Receiver) -> Alertmanager:
    return alertmanager_server(CONFIG.replace("HOST", receiver.host))


@pytest.fixture
async def ask(alertmanager: Alertmanager) -> AsyncIterator[Any]:
    async with httpx.AsyncClient(base_url=f"{alertmanager.url}/api/v2") as client:

        async def alerts() -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = (await client.get("/alerts")).json()
            return found

        yield alerts


async def test_an_alert_arrives_once_and_resolves(alertmanager: Alertmanager, receiver: Receiver, ask: Any) -> None:
    url = alertmanager.url.replace("http", "alertmanager+http", 1)
    app = an_app(urls=(url,), interval=timedelta(milliseconds=20))
    async with app, Alerts.of(app) as alerts, Alerts.of(app) as another:
        for one in (alerts, another, alerts):
            one.report(an_alert("QueueFilling:dlq", at=datetime.now(UTC), source="dlq", labels={"team": "shop"}))
        firing = (await receiver.got(1))[0]
        await Service(app).resolve("QueueFilling:dlq", actor=acting("ann"))
        await until(lambda: any(one.json["status"] == "resolved" for one in receiver.requests))
    sent = firing.json
    assert (sent["status"], len(sent["alerts"])) == ("firing", 1)
    assert sent["alerts"][0]["labels"] == {
        "alertname": "Own",
        "severity": "error",
        "key": "QueueFilling:dlq",
        "service": "redrive",
        "source": "dlq",
        "team": "shop",
    }
    assert sent["alerts"][0]["annotations"] == {"summary": "it burns"}
    assert [one.json["status"] for one in receiver.requests] == ["firing", "resolved"]


async def test_it_ends_by_itself_where_nobody_keeps_it_alive(alertmanager: Alertmanager, ask: Any) -> None:
    notifier = open_notifier(alertmanager.url.replace("http", "alertmanager+http", 1))
    now = datetime.now(UTC)
    alert = an_alert(
        "k",
        at=now,
        severity=Severity.CRITICAL,
        links={"console": "https://redrive.example/#group=g"},
        labels={"1st-word": "x", "empty": ""},
    )
    try:
        await notifier.check()
        await notifier.notify([Notice(id="n", kind=Kind.OPENED, alert=alert, count=1, since=1)])
        await notifier.notify([Notice(id="n", kind=Kind.ACKNOWLEDGED, alert=alert, count=1, since=1)])
    finally:
        await notifier.aclose()
    [found] = await ask()
    assert timedelta(minutes=3) < datetime.fromisoformat(found["endsAt"]) - now < timedelta(minutes=5)
    assert notifier.keepalive == timedelta(minutes=1)
    assert found["generatorURL"] == "https://redrive.example/#group=g"
    assert found["labels"]["_1st_word"] == "x"
    assert "empty" not in found["labels"]


async def test_what_goes_on_is_sent_again_before_it_would_end(
    alertmanager: Alertmanager, ask: Any, clock: ManualClock
) -> None:
    url = alertmanager.url.replace("http", "alertmanager+http", 1)
    async with an_app(clock, urls=(url,)) as app:
        alerts = Alerts.of(app)
        alerts.report(an_alert(at=datetime.now(UTC)))
        await alerts.round()
        [before] = await ask()
        await clock.advance(61)
        await alerts.round()
        [after] = await ask()
        for one in alerts.notifiers:
            await one.aclose()
    assert after["fingerprint"] == before["fingerprint"]
    assert datetime.fromisoformat(after["endsAt"]) > datetime.fromisoformat(before["endsAt"])
