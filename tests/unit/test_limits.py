"""Rates, fairness and delays as a handler or a sender asks for them: what cannot be meant is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from redrive import Fair, Rate, Redrive
from redrive.errors import ConfigError, UsageError
from redrive.limits import Limits
from redrive.testing.builders import make_message
from redrive.testing.clock import ManualClock
from redrive.transports.memory import MemoryTransport
from redrive.transports.sqlite import SqliteTransport

MINUTE = timedelta(minutes=1)
WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "no number": (lambda: Rate("many", "1m"), "1 or more"),  # type: ignore[arg-type]
    "none at all": (lambda: Rate(0, "1m"), "1 or more"),
    "a bare span": (lambda: Rate(1, 60), "per"),  # type: ignore[arg-type]
    "no span": (lambda: Rate(1, "0s"), "longer than nothing"),
    "too short": (lambda: Rate(1, "1us"), "a millisecond or longer"),
    "no row": (lambda: Fair(in_a_row=0), "1 or more"),
    "no weight": (lambda: Fair(weights={"acme": 0}), "'acme' has 0"),
    "a weight that is text": (lambda: Fair(weights={"acme": "gold"}), "'acme' has 'gold'"),  # type: ignore[dict-item]
}


@pytest.mark.parametrize(("make", "said"), WRONG.values(), ids=WRONG.keys())
def test_terms_that_cannot_be_meant_are_refused(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make()


@pytest.mark.parametrize("limits", [{"rate": "100/60s"}, {"fair": "yes"}])
def test_a_handler_takes_a_rate_and_a_fair(limits: dict[str, Any]) -> None:
    app = Redrive(transport="memory://", store="memory://")
    with pytest.raises(ConfigError, match=r"it takes"):
        app.handler("orders", **limits)(lambda order: None)


def test_terms_in_words() -> None:
    assert str(Limits(Rate(100, "60s", adaptive=True), Fair())) == (
        "rate=Rate(100, 0:01:00, adaptive=True) and fair=Fair(in_a_row=3)"
    )
    assert not Limits().asks


def test_a_handler_with_a_rate_takes_no_more_ahead_than_it_handles_at_once() -> None:
    class KeepsLimits(MemoryTransport):
        def limit(self, source: str, limits: Limits) -> None:
            """Nothing, here."""

    transport = KeepsLimits(clock=ManualClock(), lease=MINUTE)
    app = Redrive(transport=transport, store="memory://")
    app.handler("slow", rate=Rate(10, "1m"), concurrency=4)(lambda order: None)
    app.handler("quick", fair=True, concurrency=4)(lambda order: None)
    assert app.context(app.handlers["slow"]).batch == 4
    assert app.context(app.handlers["quick"]).batch == app.settings.batch


async def test_a_delay_becomes_the_time_before_which_it_is_not_received() -> None:
    clock = ManualClock()
    async with Redrive(transport="memory://", store="memory://", clock=clock) as app:
        assert app.message("orders", {}, delay="10m").not_before == clock.now() + 10 * MINUTE
        assert app.message("orders", {}).not_before is None
        with pytest.raises(ConfigError, match="delay"):
            app.message("orders", {}, delay="0s")


async def test_a_transport_that_cannot_delay_refuses_a_delay() -> None:
    transport = MemoryTransport(clock=ManualClock(), lease=MINUTE, native_delay=False)
    app = Redrive(transport=transport, store="memory://")
    with pytest.raises(UsageError, match="transport 'default' cannot delay a message"):
        await app.send("orders", {}, delay="10m")
    assert await transport.depths() == {}


async def test_a_delay_outlives_a_restart(tmp_path: Path) -> None:
    """A queue that is opened heals what was sent by a clock ahead of ours: what is meant to wait is not that."""
    clock, url = ManualClock(), f"sqlite:///{tmp_path / 'queue.db'}"
    first = SqliteTransport(url, clock=clock, lease=MINUTE)
    await first.send([make_message(id="later", not_before=clock.now() + 10 * MINUTE)])
    await first.aclose()
    second = SqliteTransport(url, clock=clock, lease=MINUTE)
    await second.send([make_message(id="now")])
    assert [one.message.id for one in await clock.eventually(second.receive("orders", 10))] == ["now"]
    assert (await second.depths())["orders"].delayed == 1
    await second.aclose()
