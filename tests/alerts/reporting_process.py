"""A process that reports one alert again and again until its stdin is closed: `reporting_process STORE URL CLAIM`."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime, timedelta

from redrive.alerts import Alerts, dispatch
from redrive.telemetry.events import BackendDown, Event
from tests.alerts.conftest import an_alert, an_app


async def main(store: str, url: str) -> None:
    app = an_app(store=store, urls=(url,), interval=timedelta(milliseconds=20), grace=timedelta(milliseconds=100))
    app.events.subscribe(tell_outages)
    async with app, Alerts.of(app) as alerts:
        ended = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
        print("reports", flush=True)
        while not ended.done():
            alerts.report(an_alert("shared", at=datetime.now(UTC)))
            await asyncio.wait([ended], timeout=0.02)


def tell_outages(event: Event) -> None:
    """A process that cannot reach the store tells by itself: whoever reads a failed test should know."""
    if isinstance(event, BackendDown):
        print(event, file=sys.stderr, flush=True)


if __name__ == "__main__":
    dispatch._CLAIM = timedelta(seconds=float(sys.argv[3]))
    asyncio.run(main(*sys.argv[1:3]))
