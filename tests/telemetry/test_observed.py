"""What a process tells of its own work: the rate of the last minute, and breakers as long as they are not closed."""

from __future__ import annotations

from redrive.flow.breaker import Position
from redrive.telemetry.events import BatchSettled, BreakerMoved, Events
from redrive.telemetry.observed import Observed, OpenBreaker
from redrive.testing.clock import START, ManualClock


def _settled(done: int, buried: int = 0) -> BatchSettled:
    return BatchSettled(source="orders", done=done, retried=5, buried=buried, released=5, seconds=())


async def test_a_rate_is_of_the_last_minute_and_of_what_is_over() -> None:
    events, clock = Events(), ManualClock()
    observed = Observed(events, clock)
    events.emit(_settled(done=90, buried=10))
    await clock.advance(10)
    assert observed.rates() == {"orders": 10.0}
    for _ in range(13):
        events.emit(_settled(done=20))
        await clock.advance(5)
        observed.rates()
    assert observed.rates() == {"orders": 4.0}


def test_a_breaker_is_known_until_it_closes() -> None:
    events = Events()
    observed = Observed(events, ManualClock())
    events.emit(BreakerMoved(target="default/orders", state=Position.OPEN))
    assert observed.breakers() == (OpenBreaker("default/orders", Position.OPEN, START),)
    events.emit(BreakerMoved(target="default/orders", state=Position.HALF_OPEN))
    assert [breaker.position for breaker in observed.breakers()] == [Position.HALF_OPEN]
    events.emit(BreakerMoved(target="default/orders", state=Position.CLOSED))
    assert observed.breakers() == ()
