"""Tells in the terminal what goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from redrive.alerts.model import Notice, Notifier
from redrive.demo.stage import Stage
from redrive.service import Service
from redrive.telemetry import events as facts
from redrive.telemetry.events import Event

_EVERY = 15.0


class Terminal(Notifier):
    """Takes the alerts, so that there are incidents: whoever is on call reads this terminal."""

    name = "terminal"

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    async def notify(self, notices: Sequence[Notice]) -> None:
        for notice in notices:
            if notice.kind in ("opened", "resolved"):
                self._stage.say(f"alert {notice.kind}: {notice.alert.name}: {notice.alert.summary}")


class Narrator:
    """Says what happens, and every few seconds how it stands."""

    def __init__(self, stage: Stage, service: Service) -> None:
        self._stage = stage
        self.service = service
        stage.events.subscribe(self._hear)

    def _hear(self, event: Event) -> None:
        tell = _SAID.get(type(event))
        if tell is not None:
            self._stage.say(tell(event))

    async def run(self) -> None:
        while True:
            stats = await self.service.stats()
            letters = ", ".join(f"{count} {state}" for state, count in sorted(stats.states.items()))
            self._stage.say(f"sent {self._stage.sent}, letters: {letters or 'none yet'}")
            await self._stage.clock.sleep(_EVERY)


_SAID: dict[type[Event], Callable[[Any], str]] = {
    facts.SourceStormed: lambda event: f"{event.source} is held by the storm guard: {event.why}",
    facts.StormEnded: lambda event: f"{event.source} goes on: its probes succeeded",
    facts.GroupDeployed: lambda event: f"{event.version} runs everywhere, which mends group {event.group}",
    facts.GroupRegressed: lambda event: (
        f"group {event.group} has regressed: it was said to be mended in {event.version}"
    ),
}
