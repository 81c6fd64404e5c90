"""The retry processor: takes what is due, as much as there is capacity for, and attempts it.

Claims, leases and what is sent back are the transport's (transports/letters), an attempt, what follows from it and what
is written of it are the core's (flow). What is left for here is when: a cycle has an end, an outcome that the store
does not take now is written in a later one, and a target that keeps failing is left alone (docs/decisions/0022).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from time import perf_counter
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from redrive.errors import StoreUnavailable, TransportUnavailable, Unavailable
from redrive.flow.attempt import attempt
from redrive.flow.breaker import Breaker, BreakerRule, Position
from redrive.flow.classify import RETRYABLE
from redrive.flow.context import Context
from redrive.flow.deadline import Deadline, Deadlines
from redrive.flow.decide import decide
from redrive.flow.decision import Decision
from redrive.flow.settle import settle
from redrive.model import Done, LetterId, Message, Release, State
from redrive.systems.workflow.calls import CURRENT, Calls
from redrive.systems.workflow.task import SOURCE, narrowed
from redrive.telemetry.events import BreakerMoved, LeaseLost, LettersMoved, LettersRetried
from redrive.transports.base import Delivery, Settlement
from redrive.transports.letters import LettersTransport

log = logging.getLogger("redrive")
_DONE = Done()
_MOST_REFUSED = 500


class Cycle(Struct):
    """What one cycle did."""

    started: int = 0
    succeeded: int = 0
    failed: int = 0


class Processor:
    """Retries of one queue in this process, by whomever they were asked for."""

    def __init__(
        self,
        context: Context,
        transport: LettersTransport,
        calls: Calls,
        *,
        rule: BreakerRule,
        before: Callable[[], Awaitable[object]],
        done: Callable[[Sequence[Decision]], Awaitable[None]],
    ) -> None:
        self._context = context
        self._transport = transport
        self._calls = calls
        self._deadlines = Deadlines(context.handler.timeout)
        self._rule = rule
        self._before = before  # every cycle
        self._done = done  # called with retries whose outcomes are written
        self._breakers: dict[str, Breaker] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._outcomes: list[Decision] = []  # not written yet
        self._refused: list[Delivery] = []  # taken, but their target's breaker is open, or they had their turn
        self._writer: asyncio.Task[None] | None = None
        self._filling = asyncio.Lock()
        self._due = context.clock.now()  # when this cycle began: what becomes due later is for the next
        self._tried: set[LetterId] = set()  # in this cycle
        self._wake = asyncio.Event()
        self._ended = asyncio.Event()  # some task, since somebody looked
        self._stopping = False
        self._backlog = False
        self._loop: asyncio.Task[None] | None = None
        self.counts = Cycle()

    @property
    def is_running(self) -> bool:
        return self._loop is not None and not self._loop.done()

    # -- the loop --------------------------------------------------------------------------------------------------

    def start(self, interval: timedelta) -> None:
        self._stopping = False
        self._wake.clear()
        self._loop = asyncio.get_running_loop().create_task(self._run(interval), name="redrive-workflow-retries")

    async def stop(self, grace: timedelta) -> None:
        """Take nothing new, let what runs finish within the grace; the rest is given back as if never taken."""
        self._stopping = True
        self._wake.set()
        if self._loop is not None:
            await asyncio.wait([self._loop])
        if self._running:
            await asyncio.wait(self._running, timeout=grace.total_seconds())
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)
        await self._quietly(self._put_back)
        await self._quietly(self.write)
        if self._outcomes:
            log.warning("%d outcomes could not be written: their tasks are retried again", len(self._outcomes))

    async def _run(self, interval: timedelta) -> None:
        clock = self._context.clock
        while not self._stopping:
            self._wake.clear()
            await self._quietly(self._tick)
            ends = clock.elapsed() + interval.total_seconds()
            while not self._stopping and await clock.wait(self._wake, ends - clock.elapsed()):
                self._wake.clear()
                if not self._stopping:
                    await self._quietly(self._fill)

    async def _quietly(self, work: Callable[[], Awaitable[object]]) -> None:
        """Do the work; log what fails, and go on: the next cycle tries it again."""
        try:
            await work()
        except Unavailable as error:
            log.warning("retries wait: %s", error)
        except Exception:
            log.exception("a cycle of the retry processor failed, and is tried again")

    async def cycle(self) -> Cycle:
        """Retry everything that is due now, once and to its end; returns what it did."""
        before = replace(self.counts)
        self._stopping = self._stopping and self.is_running
        await self._tick()
        while self._running:
            self._ended.clear()
            await self._ended.wait()
            if self._backlog:
                await self._fill()
        now = self.counts
        return Cycle(now.started - before.started, now.succeeded - before.succeeded, now.failed - before.failed)

    async def _tick(self) -> None:
        await self.write()
        await self._before()
        await self.rescue()
        self._due, self._tried = self._context.clock.now(), set()
        await self._fill()

    async def rescue(self) -> None:
        """Give back what dead processors had claimed."""
        for state, number in (await self._transport.rescue(SOURCE)).items():
            self._context.events.emit(LettersMoved(to=state, count=number, actor="rescue"))

    # -- taking ----------------------------------------------------------------------------------------------------

    async def _fill(self) -> None:
        """Begin what was due when the cycle began, until there is no capacity or nothing of it is left.

        A task that fails and may be retried at once waits for the next cycle, however long this one has still to go.
        """
        async with self._filling:
            self._backlog = False
            while (capacity := self._capacity) > 0 and not self._stopping and len(self._refused) < _MOST_REFUSED:
                taken = await self._transport.take(SOURCE, capacity, due=self._due)
                self._begin_all(taken)
                if len(taken) < capacity:
                    break
            else:
                self._backlog = self._capacity <= 0 and not self._stopping
            if not self._backlog:
                await self._put_back()

    @property
    def _capacity(self) -> int:
        return self._context.handler.concurrency - len(self._running)

    def _begin_all(self, deliveries: Sequence[Delivery]) -> None:
        """Begin all that their breakers let pass and that were not tried in this cycle; what a person sent back passes
        always."""
        retried = 0
        for delivery in deliveries:
            breaker = self._breaker(delivery.message)
            if delivery.token.letter.state is State.REPLAYING:
                self._begin(delivery)
            elif delivery.token.letter.id not in self._tried and breaker.capacity(1):
                breaker.sent(1)
                self._begin(delivery)
                retried += 1
            else:
                self._refused.append(delivery)
        if retried:
            self._context.events.emit(LettersRetried(source=SOURCE, count=retried))

    def _begin(self, delivery: Delivery) -> None:
        self.counts.started += 1
        self._tried.add(delivery.token.letter.id)
        task = asyncio.get_running_loop().create_task(self._retry(delivery))
        self._running.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._ended.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a retry could not be carried out: its task is retried again", exc_info=error)
        if self._backlog:
            self._wake.set()

    async def _put_back(self) -> None:
        """Release what was taken and not begun: the next cycle looks at it again."""
        refused, self._refused = self._refused, []
        await self._transport.settle([Settlement(delivery, Release()) for delivery in refused])

    # -- one task --------------------------------------------------------------------------------------------------

    async def _retry(self, delivery: Delivery) -> None:
        try:
            attempted, _ = await self.attempt(delivery)
        except asyncio.CancelledError:
            self._breaker(delivery.message).forgotten()
            await self._quietly(lambda: self._transport.settle([Settlement(delivery, Release())]))
            raise
        self._learn(attempted)
        await self.keep(attempted)

    async def attempt(self, delivery: Delivery) -> tuple[Decision, Any]:
        """Run the callback, and decide what becomes of the task; what the callback answered."""
        letter, context = delivery.token.letter, self._context
        CURRENT.set(letter)
        message = replace(delivery.message, attempt=len(letter.failures) + 1)
        began = perf_counter()
        failure = await attempt(context, message, Deadline(self._deadlines))
        seconds, answer = perf_counter() - began, self._calls.answer(letter)
        if failure is None:
            return Decision(delivery, _DONE, None, seconds), answer.value
        if answer.left is not None:
            message = replace(narrowed(message, answer.left), enqueued_at=letter.message.enqueued_at)
        delivery = replace(delivery, message=message)
        outcome = decide(message, failure, context.policy_for(delivery), context.clock.now(), context.clock.rng)
        return Decision(delivery, outcome, failure, seconds), answer.value

    async def keep(self, attempted: Decision) -> None:
        """Write its outcome, together with those of others; while the store is away, a later cycle does."""
        self._outcomes.append(attempted)
        try:
            await self.write()
        except Unavailable as error:
            log.warning("an outcome waits to be written: %s", error)

    async def write(self) -> None:
        """Write all outcomes that are not written yet in one step, which all who have one to write wait for."""
        if self._outcomes:
            if self._writer is None or self._writer.done():
                self._writer = asyncio.get_running_loop().create_task(self._write_all())
            await asyncio.shield(self._writer)

    async def _write_all(self) -> None:
        while self._outcomes:
            batch, self._outcomes = self._outcomes, []
            try:
                await self._write(batch)
            except TransportUnavailable as error:
                self._outcomes = batch + self._outcomes
                raise StoreUnavailable(error.name, error.why) from error
            except BaseException:  # left to its lease, or to the next rescue
                self._transport.forget(item.delivery for item in batch)
                raise

    async def _write(self, batch: Sequence[Decision]) -> None:
        """Settle the batch. A failure whose lease was lost is not written; a success always is."""
        failed = [item.delivery for item in batch if item.failure is not None]
        lost = {id(delivery) for delivery in (await self._transport.extend(failed) if failed else ())}
        if ours := [item for item in batch if id(item.delivery) not in lost]:
            await settle(self._context, ours)
        if lost:
            names = tuple(item.delivery.message.id for item in batch if id(item.delivery) in lost)
            self._context.events.emit(LeaseLost(source=SOURCE, messages=names))
        for item in batch:
            self.counts.succeeded += item.failure is None
            self.counts.failed += item.failure is not None
        await self._done(batch)

    # -- the target ------------------------------------------------------------------------------------------------

    def _breaker(self, message: Message) -> Breaker:
        name = message.origin
        if name not in self._breakers:
            self._breakers[name] = Breaker(self._rule, self._context.clock.elapsed, partial(self._announce, name))
        return self._breakers[name]

    def _announce(self, name: str, position: Position) -> None:
        self._context.events.emit(BreakerMoved(target=f"{SOURCE}/{name or 'default'}", state=position))

    def _learn(self, attempted: Decision) -> None:
        """Tell the breaker: a failure that may pass by itself is the adapter's, any other is the task's own."""
        breaker = self._breaker(attempted.delivery.message)
        if attempted.failure is None:
            breaker.succeeded()
        elif attempted.failure.category in RETRYABLE:
            breaker.failed()
        else:
            breaker.forgotten()

    @property
    def breakers(self) -> dict[str, str]:
        """The position of each target's breaker."""
        return {name or "default": breaker.position.value for name, breaker in self._breakers.items()}
