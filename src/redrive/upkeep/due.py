"""Automatic retries: letters whose time has come go back to their source.

Any number of processors may run: a claim has one owner, and a dead owner's claims are rescued (rescue.py). What
was sent is watched until its outcome is known, so that no more than `parallel` are on their way for one target, and
so that a target that keeps failing is left alone (flow/breaker.py).
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import timedelta

from redrive.clock import Clock
from redrive.errors import Unavailable, Unsendable
from redrive.flow.breaker import Breaker, BreakerRule, Position
from redrive.flow.lineage import sent_back
from redrive.forensics.query import Query
from redrive.model import Letter, LetterId, Owner, State
from redrive.stores.base import Store
from redrive.telemetry.events import BackendDown, BreakerMoved, Events, LettersMoved, LettersRetried
from redrive.transports.base import Transport

Target = tuple[str, str]  # transport, source
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
    ) -> None:
        self._store = store
        self._transports = transports
        self._events = events
        self._clock = clock
        self._owner = owner
        self._lease = lease
        self._parallel = parallel
        self._rule = breaker or BreakerRule()
        self._breakers: dict[Target, Breaker] = {}
        self._away: dict[Target, dict[LetterId, int]] = defaultdict(dict)  # sent, outcome not known: its resends

    async def cycle(self) -> int:
        """One round; how many letters were sent."""
        sent = 0
        for target in await self._targets():
            await self._watch(target)
            sent += await self._send(target, self._room(target))
        return sent

    async def _targets(self) -> list[Target]:
        """Everything that has letters pending or on their way."""
        waiting = {tally.source for tally in await self._store.letters.tallies() if tally.state is State.PENDING}
        named = [(transport, source) for transport in self._transports for source in sorted(waiting)]
        return named + [target for target, away in self._away.items() if away and target not in named]

    def _room(self, target: Target) -> int:
        return self._breaker(target).room(self._parallel - len(self._away[target]))

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
        before = breaker.position
        if state is State.RESOLVED:
            breaker.succeeded()
        elif state in (State.PENDING, State.EXHAUSTED, State.RETRYING):  # retrying: by now another processor has it
            breaker.failed()
        else:
            breaker.forgotten()
        if breaker.position is not before:
            self._tell(target, breaker)

    def _tell(self, target: Target, breaker: Breaker) -> None:
        self._events.emit(BreakerMoved(target="/".join(target), state=breaker.position))

    async def _send(self, target: Target, room: int) -> int:
        """Claim, send, confirm."""
        if room <= 0:
            return 0
        transport, source = target
        now = self._clock.now()
        query = Query(transports=(transport,), sources=(source,), states=(State.PENDING,), due=now)
        letters = await self._store.letters.claim(
            query, to=State.RETRYING, owner=self._owner, now=now, until=now + self._lease, limit=room
        )
        if not letters:
            return 0
        try:
            await self._transports[transport].send([sent_back(letter, now=now) for letter in letters])
        except Unsendable as error:
            letters = await self._without_refused(target, letters, error)
            if not letters:
                return 0
        except Unavailable as error:
            await self._take_back(target, letters, error)
            return 0
        await self._confirm(target, letters)
        return len(letters)

    async def _confirm(self, target: Target, letters: Sequence[Letter]) -> None:
        ids = [letter.id for letter in letters]
        await self._store.letters.move(
            ids, expect=[State.RETRYING], to=State.RETRYING, owner=self._owner, now=self._clock.now()
        )
        self._away[target].update((letter.id, letter.resends) for letter in letters)
        breaker = self._breaker(target)
        breaker.sent(len(letters))
        if breaker.position is Position.HALF_OPEN:
            self._tell(target, breaker)
        self._events.emit(LettersRetried(source=target[1], count=len(letters)))

    async def _without_refused(self, target: Target, letters: Sequence[Letter], error: Unsendable) -> list[Letter]:
        """What would never be taken waits for nothing more; somebody has to look at it."""
        gone = [letter.id for letter in letters if (letter.message.source, letter.message.id) in error.why]
        log.warning("%d letters cannot go back to %s: %s", len(gone), target[1], error)
        await self._store.letters.move(
            gone, expect=[State.RETRYING], to=State.EXHAUSTED, owner=self._owner, now=self._clock.now()
        )
        self._events.emit(LettersMoved(to=State.EXHAUSTED, count=len(gone), actor=self._owner))
        return [letter for letter in letters if letter.id not in gone]

    async def _take_back(self, target: Target, letters: Sequence[Letter], error: Unavailable) -> None:
        """The transport is away: they wait on, and this target is left alone for a while."""
        ids = [letter.id for letter in letters]
        await self._store.letters.move(
            ids, expect=[State.RETRYING], to=State.PENDING, owner=self._owner, now=self._clock.now()
        )
        self._learn(target, State.PENDING)
        self._events.emit(BackendDown(backend=error.name, why=str(error), pause=self._rule.wait))

    def _breaker(self, target: Target) -> Breaker:
        if target not in self._breakers:
            self._breakers[target] = Breaker(self._rule, self._clock.elapsed)
        return self._breakers[target]
