"""Calls one module: spreads calls over its healthy instances, leaves dead and hanging ones aside, and sheds fast when
none is left."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import timedelta
from math import ceil
from typing import Any, TypeAlias

import grpc

from redrive.clock import Clock, Pause
from redrive.config.durations import spoken
from redrive.flow.breaker import Breaker, BreakerRule, Position
from redrive.flow.deadline import Deadline, Deadlines
from redrive.systems.pipeline.call_pool import CallPool
from redrive.systems.pipeline.faults import ErrorType, NodeFault, fault_of
from redrive.systems.pipeline.pipeline_pb2 import ProcessResponse
from redrive.systems.pipeline.wire import Tls, open_channel
from redrive.telemetry.events import BreakerMoved, Events

Addresses: TypeAlias = Callable[[], Awaitable[Collection[str]]]
RULE = BreakerRule(failures=10, wait=timedelta(seconds=1), longest=timedelta(seconds=15))
_SHED, _BEAT = 0.02, 0.25  # seconds for each stream that is given up without a call; between some and the next
_HEALTH = "/grpc.health.v1.Health/Check"
_SERVING = b"\x08\x01"  # HealthCheckResponse(status=SERVING)
_SHORTEST, _LONGEST = 0.25, 15.0  # seconds that an instance is left aside before its health is asked
_PROBE, _AGAIN = 2.0, 0.5  # seconds that it has to answer; before it is asked again
log = logging.getLogger("redrive.pipeline")


class Instance:
    """One address of a module.

    well_again   told when it was aside, and is no longer
    """

    def __init__(self, address: str, tls: Tls, well_again: Callable[[], None]) -> None:
        self.address = address
        self.busy = 0
        self.aside = False
        self.pause = Pause(_SHORTEST, _LONGEST)
        self._channel = open_channel(address, tls)
        self._talks = CallPool(self._channel)
        self.ask = self._talks.ask
        self._well_again = well_again
        self._probing: asyncio.Task[None] | None = None

    def set_aside(self) -> None:
        """Until its health check answers; longer each time that it is set aside again without a success between."""
        if self._probing is None or self._probing.done():
            self.aside = True
            self._probing = asyncio.create_task(self._until_healthy())

    def worked(self) -> None:
        self.pause.reset()

    async def aclose(self) -> None:
        if self._probing is not None:
            self._probing.cancel()
            await asyncio.gather(self._probing, return_exceptions=True)
        self._talks.close()
        await self._channel.close(None)

    async def _until_healthy(self) -> None:
        """Asked often once the pause is over: as long as it is thought to be dead, its streams die."""
        await asyncio.sleep(self.pause.next())
        while not await self._is_healthy():  # noqa: ASYNC110 - it is another process, and has no event of ours
            await asyncio.sleep(_AGAIN)
        self.aside = False
        self._well_again()

    async def _is_healthy(self) -> bool:
        channel: Any = self._channel
        check = channel.unary_unary(_HEALTH)
        try:
            answer: bytes = await check(b"", timeout=_PROBE)
        except grpc.aio.AioRpcError as error:
            return error.code() is grpc.StatusCode.UNIMPLEMENTED  # it answers, and has no health to tell of
        return answer == _SERVING


class NobodyKnown(NodeFault):
    """No address of the module is known now."""


class Caller:
    """One module as an engine sees it.

    addresses         who can be called now
    why               why nobody can, if so
    others_are_busy   whether other modules have work now
    """

    def __init__(
        self,
        module: str,
        addresses: Addresses,
        *,
        why: Callable[[], str],
        tls: Tls,
        clock: Clock,
        events: Events,
        others_are_busy: Callable[[], bool] = lambda: False,
    ) -> None:
        self.module = module
        self.instances: dict[str, Instance] = {}
        self.breaker = Breaker(RULE, clock.elapsed, self._moved)
        self._current: Sequence[Instance] = ()  # those of the addresses that were last given
        self._listed: Collection[str] | None = None
        self._deadlines: dict[timedelta, Deadlines] = {}
        self._addresses = addresses
        self._why = why
        self._tls = tls
        self._clock = clock
        self._events = events
        self._others_are_busy = others_are_busy
        self._turn = float("-inf")  # of the next stream that is given up without a call
        self._answered = float("-inf")  # when it last was
        self._last: NodeFault | None = None
        self._verdict = asyncio.Event()

    async def __call__(self, request: bytes, timeout: timedelta) -> tuple[ProcessResponse, str]:
        """The answer and who gave it; NodeFault if there is none. The request is a ProcessRequest as it travels."""
        if self.breaker.position is not Position.CLOSED:
            await self._let_in()
        try:
            answer = await self._on_some_instance(request, timeout)
        except NobodyKnown:
            self._forget()  # nothing was called, and the first that is known may be called at once
            raise
        except NodeFault as fault:
            self._judge(fault if fault.blames_instance else None)
            raise
        except BaseException:
            self._forget()
            raise
        self._answered = self._clock.elapsed()
        if self._last is not None:
            self._judge(None)
        return answer

    @property
    def is_busy(self) -> bool:
        """It is called, or was a moment ago: between two calls its streams are on their way from and to Kafka."""
        if self._clock.elapsed() - self._answered < _BEAT:
            return True
        return any(instance.busy for instance in self.instances.values())

    async def aclose(self) -> None:
        await asyncio.gather(*(instance.aclose() for instance in self.instances.values()))

    async def _let_in(self) -> None:
        """One call, when it may be tried again: what comes of it decides for all that wait. Until then none."""
        while not self.breaker.room(1):
            if self.breaker.position is Position.OPEN:
                await self._take_turn()
                if self.breaker.position is Position.OPEN and self._last is not None:
                    raise NodeFault(self._last.kind, f"not called, because calls keep failing: {self._last}")
            else:
                await self._verdict.wait()
        if self.breaker.position is Position.HALF_OPEN:
            self._verdict.clear()
        self.breaker.sent(1)

    async def _take_turn(self) -> None:
        """To give a stream up costs what it costs to have it processed: while others are, so few that nobody feels it.

        The first go at once, the next together on the next beat: what is done for many at once costs less.
        """
        await asyncio.sleep(0)  # whoever has just got work is busy then
        if not self._others_are_busy():
            return
        now = self._clock.elapsed()
        self._turn = max(self._turn, now - _BEAT) + _SHED
        if self._turn > now:
            await self._clock.sleep(ceil(self._turn / _BEAT) * _BEAT - now)

    async def _on_some_instance(self, request: bytes, timeout: timedelta) -> tuple[ProcessResponse, str]:
        """On another one at once, if what was tried never got the call. Never longer than the timeout."""
        tried: list[Instance] = []
        deadlines = self._deadlines.get(timeout) or self._deadlines.setdefault(timeout, Deadlines(timeout))
        try:
            with Deadline(deadlines):
                while True:
                    tried.append(self._pick(await self._known(), tried))
                    try:
                        return await self._on(tried[-1], request, deadlines.seconds), tried[-1].address
                    except NodeFault as fault:
                        if not self._may_go_on(fault, tried):
                            raise
        except TimeoutError:
            raise self._too_late(timeout, tried) from None

    def _may_go_on(self, fault: NodeFault, tried: Sequence[Instance]) -> bool:
        if fault.blames_instance:
            tried[-1].set_aside()
        others = (one for one in self._current if one not in tried)  # one aside may be well again, and not asked yet
        return fault.never_arrived and next(others, None) is not None

    def _too_late(self, timeout: timedelta, tried: Sequence[Instance]) -> NodeFault:
        who = f"module {self.module!r}"
        if tried:
            tried[-1].set_aside()
            who = f"{who} at {tried[-1].address}"
        return NodeFault(ErrorType.TIMEOUT, f"{who}: DEADLINE_EXCEEDED: no answer within {spoken(timeout)}")

    async def _on(self, instance: Instance, request: bytes, seconds: float) -> ProcessResponse:
        instance.busy += 1
        try:
            answer = await instance.ask(request, seconds)
        except grpc.aio.AioRpcError as error:
            raise fault_of(error, self.module, instance.address) from None
        finally:
            instance.busy -= 1
        instance.worked()
        return answer

    async def _known(self) -> Sequence[Instance]:
        """Channels as the addresses are now: made for new ones, closed for those that are gone."""
        addresses = await self._addresses()
        if not addresses:
            raise NobodyKnown(ErrorType.MODULE_UNAVAILABLE, f"module {self.module!r}: {self._why()}")
        if addresses is not self._listed:
            await self._follow(addresses)
        return self._current

    async def _follow(self, addresses: Collection[str]) -> None:
        for address in addresses:
            if address not in self.instances:
                self.instances[address] = Instance(address, self._tls, self.breaker.hopeful)
        self._current = [self.instances[address] for address in addresses]
        gone = [one for one in self.instances.values() if one.address not in addresses]
        self._listed = None if any(one.busy for one in gone) else addresses  # what they still do may end
        leaving = [self.instances.pop(one.address) for one in gone if not one.busy]
        for instance in leaving:
            await instance.aclose()

    def _pick(self, known: Sequence[Instance], tried: Collection[Instance]) -> Instance:
        """The least busy that is well; of those aside the one that was so the least often."""
        if len(known) == 1:
            return known[0]
        wanted = [one for one in known if one not in tried] or known
        well = [one for one in wanted if not one.aside]
        return min(well, key=lambda one: one.busy) if well else min(wanted, key=lambda one: one.pause.seconds)

    def _forget(self) -> None:
        """It says nothing of the module."""
        self.breaker.forgotten()
        self._verdict.set()

    def _judge(self, fault: NodeFault | None) -> None:
        if fault is None:
            self.breaker.succeeded()
        else:
            self._last = fault
            self.breaker.failed()
        self._verdict.set()
        if fault is None and self.breaker.position is Position.CLOSED:
            self._last = None

    def _moved(self, position: Position) -> None:
        self._events.emit(BreakerMoved(target=f"module/{self.module}", state=position))
