"""Pure: what a replay waits for.

A target that takes nothing is asked again after a pause that grows, and given up if it takes nothing for too long.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from redrive.clock import doubled
from redrive.model import Letter, LetterId
from redrive.transports.base import SendResult, SendStatus

Target: TypeAlias = tuple[str, str]
"""A transport and a source of it."""
SHORTEST_PAUSE, LONGEST_PAUSE = timedelta(seconds=5), timedelta(minutes=1)
PATIENCE = timedelta(minutes=15)
"""Long enough for a broker that is restarted, or a queue that is drained; then somebody has to look at it."""
_LATER = (SendStatus.BUSY, SendStatus.UNKNOWN)


class Wait(Struct, frozen=True, kw_only=True):
    """A target that does not take all that it is sent."""

    transport: str
    source: str
    why: str
    again_at: datetime  # not asked before then
    until: datetime  # if it takes nothing until then, its letters are skipped
    tries: int = 0  # in a row, without anything accepted
    given_up: bool = False

    @property
    def target(self) -> Target:
        return self.transport, self.source


class Waits:
    """All that one replay waits for."""

    def __init__(self, waits: Iterable[Wait] = ()) -> None:
        self._waits = {wait.target: wait for wait in waits}

    def __bool__(self) -> bool:
        return bool(self._waits)

    @property
    def all(self) -> tuple[Wait, ...]:
        return tuple(self._waits.values())

    def of(self, letter: Letter) -> Wait | None:
        return self._waits.get(target_of(letter))

    def next_at(self, now: datetime) -> datetime:
        """When to ask for what is left. What is given up needs no asking."""
        if any(wait.given_up for wait in self.all):
            return now
        return max(min((wait.again_at for wait in self.all), default=now), now + SHORTEST_PAUSE)

    def learn(
        self,
        letters: Sequence[Letter],
        results: Mapping[LetterId, SendResult],
        now: datetime,
        *,
        doubtful: Collection[LetterId] = (),
    ) -> list[Wait]:
        """Learn from the answers of one batch; returns the targets that did not take all of it.

        doubtful   those that may have been taken, and would be there twice if they were sent again: their outcome gets
                   some time to show it
        """
        answers: dict[Target, list[SendResult]] = defaultdict(list)
        for letter in letters:
            answers[target_of(letter)].append(results[letter.id])
        in_doubt = {target_of(letter) for letter in letters if letter.id in doubtful}
        for target, some in answers.items():
            self._learn(target, some, now, LONGEST_PAUSE if target in in_doubt else timedelta())
        return [self._waits[target] for target in answers if target in self._waits]

    def _learn(self, target: Target, answers: Sequence[SendResult], now: datetime, least: timedelta) -> None:
        refusal = next((answer for answer in answers if answer.status in _LATER), None)
        took_some = any(answer.status is SendStatus.ACCEPTED for answer in answers)
        known = self._waits.pop(target, None) if took_some or refusal else None
        if refusal is None:
            return
        if known is None or took_some:  # the time that it has begins anew
            known = Wait(transport=target[0], source=target[1], why="", again_at=now, until=now + PATIENCE)
        tries = known.tries + (not took_some)
        self._waits[target] = replace(
            known,
            why=refusal.why,
            tries=tries,
            again_at=now + max(pause_after(tries), least),
            given_up=now >= known.until,
        )


def pause_after(tries: int) -> timedelta:
    """How long a target is left alone that took nothing so many times in a row."""
    if not tries:
        return timedelta()
    return timedelta(seconds=doubled(SHORTEST_PAUSE.total_seconds(), tries - 1, LONGEST_PAUSE.total_seconds()))


def target_of(letter: Letter) -> Target:
    return letter.transport, letter.message.source
