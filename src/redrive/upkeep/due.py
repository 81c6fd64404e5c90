"""Automatic retries: letters whose time has come go back to their source.

Any number of processors may run: a claim has one owner, no more than `parallel` letters are on their way for one target
(upkeep/parallel.py), and a dead owner's claims are rescued (upkeep/rescue.py). Each processor watches what it has sent
until the outcome is known, so that a target that keeps failing is left alone (flow/breaker.py).
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial

from redrive.clock import Clock
from redrive.flow.breaker import Breaker, BreakerRule, Position
from redrive.flow.fits import Fits
from redrive.flow.resend import Resend, Results
from redrive.flow.waiting import Target
from redrive.forensics.query import Query
from redrive.model import Letter, LetterId, Owner, State
from redrive.stores.base import Store
from redrive.telemetry.events import BackendDown, BreakerMoved, Events, LettersMoved, LettersRetried
from redrive.transports.base import SendStatus, Transport
from redrive.upkeep.parallel import Parallel

log = logging.getLogger("redrive")


class Due:
    """Sends back what is due, target by target."""

    def __init__(
        self,
        store: Store,
        transports: Mapping[str, Transport],
        events: Events,
        clock: Clock,
        *,
        owner: Owner,
        lease: timedelta,
        parallel: int,
        breaker: BreakerRule | None = None,
        fits: Fits = lambda message: None,
    ) -> None:
        self._store = store
        self._transports = transports
        self._events = events
        self._clock = clock
        self._owner = owner
        self._most = parallel
        self._way = Resend(store, transports, clock, to=State.RETRYING, owner=owner, lease=lease, fits=fits)
        self._parallel = Parallel(store, self._way, clock, limit=parallel)
        self._rule = breaker or BreakerRule()
        self._breakers: dict[Target, Breaker] = {}
        self._away: dict[Target, dict[LetterId, int]] = defaultdict(dict)  # sent, outcome not known: its resends

    async def cycle(self) -> int:
        """One round; how many letters were sent."""
        sent = 0
        for target in await self._targets():
            await self._watch(target)
            sent += await self._send(target)
        return sent

    async def _targets(self) -> list[Target]:
        """The targets that have letters pending or on their way."""
        waiting = {tally.source for tally in await self._store.letters.tallies() if tally.state is State.PENDING}
        named = [(transport, source) for transport in self._transports for source in sorted(waiting)]
        return named + [target for target, away in self._away.items() if away and target not in named]

    async def _watch(self, target: Target) -> None:
        """Learn what became of what we sent."""
        away = self._away[target]
        if not away:
            return
        page = await self._store.letters.search(Query(ids=tuple(away)), limit=len(away))
        found = {letter.id: letter for letter in page.letters}
        for id, resends in list(away.items()):
            letter = found.get(id)
            if letter is not None and letter.state is State.RETRYING and letter.resends == resends:
                continue
            del away[id]
            self._learn(target, None if letter is None else letter.state)

    def _learn(self, target: Target, state: State | None) -> None:
        breaker = self._breaker(target)
        if state is State.RESOLVED:
            breaker.succeeded()
        elif state in (State.PENDING, State.EXHAUSTED, State.RETRYING):  # retrying: by now another processor has it
            breaker.failed()
        else:
            breaker.forgotten()

    async def _send(self, target: Target) -> int:
        """Claim, send, confirm; undo what was not sent."""
        most = self._breaker(target).capacity(self._most)
        letters = await self._parallel.claim(target, most) if most > 0 else []
        results = await self._way.send(letters)
        sent = [letter for letter in letters if results[letter.id].status is SendStatus.ACCEPTED]
        if sent:
            self._note_sent(target, sent)
        if len(sent) < len(letters):
            await self._exhaust(target, letters, results)
            await self._put_off(target, letters, results)
        return len(sent)

    def _note_sent(self, target: Target, letters: Sequence[Letter]) -> None:
        self._away[target].update((letter.id, letter.resends) for letter in letters)
        self._breaker(target).sent(len(letters))
        self._events.emit(LettersRetried(source=target[1], count=len(letters)))

    async def _exhaust(self, target: Target, letters: Sequence[Letter], results: Results) -> None:
        """Move to exhausted what the target will never take: somebody has to look at it."""
        refused = [letter for letter in letters if results[letter.id].status is SendStatus.REFUSED]
        if refused:
            log.warning("%d letters cannot go back to %s: %s", len(refused), target[1], results[refused[0].id].why)
            await self._way.undo(refused, State.EXHAUSTED)
            self._events.emit(LettersMoved(to=State.EXHAUSTED, count=len(refused), actor=self._owner))

    async def _put_off(self, target: Target, letters: Sequence[Letter], results: Results) -> None:
        """Give back what was not taken now; if the target goes on so, its breaker opens.

        What may have been taken, and would be queued twice, stays claimed until its lease ends (upkeep/rescue.py): its
        outcome may come before.
        """
        later = [letter for letter in letters if results[letter.id].status in (SendStatus.BUSY, SendStatus.UNKNOWN)]
        if later:
            await self._way.undo([letter for letter in later if not self._way.may_double(letter, results[letter.id])])
            self._learn(target, State.PENDING)
            why = results[later[0].id].why
            self._events.emit(BackendDown(backend=target[0], why=why, pause=self._rule.wait))

    def _breaker(self, target: Target) -> Breaker:
        if target not in self._breakers:
            self._breakers[target] = Breaker(self._rule, self._clock.elapsed, partial(self._announce, target))
        return self._breakers[target]

    def _announce(self, target: Target, position: Position) -> None:
        self._events.emit(BreakerMoved(target="/".join(target), state=position))
