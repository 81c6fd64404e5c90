"""The one way back of a letter: claim, send, confirm, and undo what was not sent. Retries and replays both use it.

    claim     the letter gets an owner and a lease: nobody else sends it
    send      its message goes to the transport it came from, which answers for each
    confirm   what was accepted has no owner any more: it is on its way, and its outcome is awaited. Of a letter that
              died at somebody else's consumer none will come: it is SENT
    undo      what was not sent is as it was before the claim

Who dies after the claim leaves a letter that has an owner. A retry's is rescued when its lease ends (upkeep/rescue.py),
a replay's is claimed again by whoever runs the replay on: the replay itself is the owner.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import TypeAlias

from redrive.clock import Clock
from redrive.errors import ALLOW_IT, NOT_ALLOWED, ConfigError, MissingExtra
from redrive.flow.fits import Fits
from redrive.flow.lineage import sent_back
from redrive.flow.signing import load_keys
from redrive.forensics.query import Query
from redrive.model import Letter, LetterId, Owner, State
from redrive.stores.base import Store
from redrive.transports.base import SendResult, SendStatus, Transport, refused, send_each

Results: TypeAlias = dict[LetterId, SendResult]
_BAD_VALUE = (ValueError, TypeError, OverflowError)  # what a store keeps, and a transport cannot carry
log = logging.getLogger("redrive")


class Resend:
    """The way back of one owner's letters.

    to       the state of a letter on its way: RETRYING or REPLAYING
    replay   the replay that sends them, if one does
    fits     why a message that was edited would not decode: then it is refused, and not sent to die again
    """

    def __init__(
        self,
        store: Store,
        transports: Mapping[str, Transport],
        clock: Clock,
        *,
        to: State,
        owner: Owner,
        lease: timedelta,
        replay: str | None = None,
        fits: Fits = lambda message: None,
    ) -> None:
        self._store = store
        self._letters = store.letters
        self._transports = transports
        self._clock = clock
        self._to = to
        self._owner = owner
        self.lease = lease
        self._replay = replay
        self._fits = fits

    async def claim(self, query: Query, limit: int) -> Sequence[Letter]:
        """Claim letters: they are ours until they are confirmed or undone, or the lease ends."""
        now = self._clock.now()
        await load_keys(self._store, now)  # before anything is ours: what goes back is signed
        until = now + self.lease
        return await self._letters.claim(
            query, to=self._to, owner=self._owner, now=now, until=until, limit=limit, replay=self._replay
        )

    async def send(self, claimed: Sequence[Letter]) -> Results:
        """Send them; what became of each. What a transport accepted is confirmed when that transport has answered:
        it does not matter how the others fare."""
        by_transport: dict[str, list[Letter]] = defaultdict(list)
        for letter in claimed:
            by_transport[letter.transport].append(letter)
        ways = [self._send(transport, letters) for transport, letters in by_transport.items()]
        results: Results = {}
        for found in await asyncio.gather(*ways, return_exceptions=True):  # whatever fails, the others end first
            if isinstance(found, BaseException):
                raise found
            results |= found
        return results

    async def undo(self, claimed: Sequence[Letter], to: State | None = None) -> int:
        """Give them back as they were before the claim, or in that state; returns how many were still ours."""
        undone = 0
        for state in (State.PENDING, State.EXHAUSTED):
            ids = [letter.id for letter in claimed if (to or _before(letter)) is state]
            if ids:
                moved = await self._letters.move(
                    ids, expect=[self._to], to=state, owner=self._owner, now=self._clock.now()
                )
                undone += len(moved)
        return undone

    def may_double(self, letter: Letter, result: SendResult) -> bool:
        """Whether its message may be queued already, and a second one beside it if it is sent again."""
        if result.status is not SendStatus.UNKNOWN:
            return False
        return not self._transports[letter.transport].features.idempotent_send

    async def _send(self, name: str, letters: Sequence[Letter]) -> Results:
        try:
            transport = self._transports[name]
        except KeyError:
            unset = f"this process has no transport {name!r}: set `transports.{name}`"
            missing = refused(ALLOW_IT if name.startswith(NOT_ALLOWED) else unset)
            return {letter.id: missing for letter in letters}
        except (ConfigError, MissingExtra) as error:
            return {letter.id: refused(f"transport {name!r} cannot be opened here: {error}") for letter in letters}
        edited = [letter for letter in letters if letter.version]
        unfit = {letter.id: refused(why) for letter in edited if (why := self._fits(letter.message))}
        fit = [letter for letter in letters if letter.id not in unfit]
        results = unfit | (await self._answers(transport, fit) if fit else {})
        accepted = [id for id, result in results.items() if result.status is SendStatus.ACCEPTED]
        if accepted:
            await self._confirm(accepted, {letter.id for letter in letters if letter.foreign})
        return results

    async def _confirm(self, accepted: Sequence[LetterId], foreign: Collection[LetterId]) -> None:
        now = self._clock.now()
        for to, ids in (
            (self._to, [id for id in accepted if id not in foreign]),
            (State.SENT, [id for id in accepted if id in foreign]),
        ):
            if ids:
                await self._letters.move(ids, expect=[self._to], to=to, owner=self._owner, now=now)

    async def _answers(self, transport: Transport, letters: Sequence[Letter]) -> Results:
        now = self._clock.now()
        messages = [sent_back(letter, now=now, replay=self._replay) for letter in letters]
        try:
            answers = await send_each(transport, messages)
        except _BAD_VALUE as error:
            return await self._one_by_one(transport, letters, error)
        return {letter.id: answer for letter, answer in zip(letters, answers, strict=True)}

    async def _one_by_one(self, transport: Transport, letters: Sequence[Letter], error: Exception) -> Results:
        """Send each by itself: one that holds what the transport cannot carry must not stop the others."""
        if len(letters) == 1:
            log.error("letter %s cannot be sent back", letters[0].id, exc_info=error)
            return {letters[0].id: refused(f"{type(error).__name__}: {error}")}
        results: Results = {}
        for letter in letters:
            results |= await self._answers(transport, [letter])
        return results


def _before(claimed: Letter) -> State:
    """The state before the claim: exhausted if it had been sent back before and no retry is planned, else pending."""
    was_exhausted = claimed.state is State.REPLAYING and claimed.resends > 1 and claimed.next_retry_at is None
    return State.EXHAUSTED if was_exhausted else State.PENDING
