"""The caller of a module: spreads calls over its healthy instances, leaves dead and hanging ones aside, and holds calls
back when none is left. gRPC's own `round_robin` was tried instead: docs/decisions/0027-grpc-round-robin.md."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import datetime, timedelta
from math import ceil
from operator import attrgetter
from typing import TypeAlias

import grpc

from redrive.clock import Clock
from redrive.config.durations import spoken
from redrive.errors import NotNow
from redrive.flow.breaker import Breaker, BreakerRule, Position
from redrive.flow.deadline import Deadline, Deadlines
from redrive.systems.pipeline.error_types import ErrorType
from redrive.systems.pipeline.faults import GivenUp, NodeFault, fault_of
from redrive.systems.pipeline.gate import Gate
from redrive.systems.pipeline.instance import Instance
from redrive.systems.pipeline.pipeline_pb2 import ProcessResponse
from redrive.systems.pipeline.wire import Tls
from redrive.telemetry.events import BreakerMoved, Events

Addresses: TypeAlias = Callable[[], Awaitable[Collection[str]]]
RULE = BreakerRule(failures=10, wait=timedelta(seconds=1), longest=timedelta(seconds=15))
_SHED, _BEAT = 0.02, 0.25  # seconds for each stream that is given up without a call; between some and the next


class NobodyKnown(NodeFault):
    """There is no address of the module now."""


class Caller:
    """One module as an engine sees it.

    addresses         who can be called now
    why               why there is none, if so
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
        self.gate = Gate(self.breaker, clock, self._somebody_is_there)
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
        self._since: datetime | None = None  # when the breaker was closed for the last time

    async def __call__(
        self, request: bytes, timeout: timedelta, *, id: str = "", attempt: int = 1, patience: timedelta = timedelta()
    ) -> tuple[ProcessResponse, str]:
        """The answer and who gave it; NodeFault if there is none; NotNow if the breaker was in its way, and it is to be
        asked for again. The request is a ProcessRequest as it travels.

        id         of the stream's message, by which it is known when it comes again
        patience   how long it may be held back before it is given up
        """
        held = self.breaker.position is not Position.CLOSED
        if held and not await self.gate.enter(id, attempt, patience):
            await self._take_turn()
            raise self._given_up(attempt, patience)
        try:
            answer = await self._on_some_instance(request, timeout)
        except NobodyKnown as fault:
            if held:  # nothing was called, so no attempt is spent
                self._forget()
                raise NotNow from None
            self._judge(fault)
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
        await self.gate.aclose()
        await asyncio.gather(*(instance.aclose() for instance in self.instances.values()))

    def _given_up(self, attempt: int, patience: timedelta) -> NodeFault:
        """Why a stream is dead that the breaker has held back for all its patience."""
        last = self._last or NodeFault(ErrorType.MODULE_UNAVAILABLE, "nothing is known of it")
        since = "" if self._since is None else f" since {self._since:%Y-%m-%d %H:%M:%S} UTC"
        before = "never called" if attempt == 1 else f"not called again after {attempt - 1} failed attempts"
        return GivenUp(
            last.kind,
            f"{before}: the breaker of module {self.module!r} is open{since}, and the stream was held back for "
            f"{spoken(patience)} (`patience` of its node). Calls failed with: {last}",
        )

    async def _take_turn(self) -> None:
        """Limit how fast streams are given up while other modules work: giving one up costs as much as processing it.

        The first go at once, the next together on the next beat: what is done for many at once costs less.
        """
        await asyncio.sleep(0)  # a module that has just got work is busy then
        if not self._others_are_busy():
            return
        now = self._clock.elapsed()
        self._turn = max(self._turn, now - _BEAT) + _SHED
        if self._turn > now:
            await self._clock.sleep(ceil(self._turn / _BEAT) * _BEAT - now)

    async def _on_some_instance(self, request: bytes, timeout: timedelta) -> tuple[ProcessResponse, str]:
        """Call an instance, and another one at once if the call never arrived. Never longer than the timeout."""
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
        untried = (instance for instance in self._current if instance not in tried)  # also those aside: one may be back
        return fault.never_arrived and next(untried, None) is not None

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
        """The instances at the addresses of now."""
        addresses = await self._addresses()
        if not addresses:
            raise NobodyKnown(ErrorType.MODULE_UNAVAILABLE, f"module {self.module!r}: {self._why()}")
        if addresses is not self._listed:
            await self._follow(addresses)
        return self._current

    async def _follow(self, addresses: Collection[str]) -> None:
        """Open a channel for each new address; close those of the others when their calls have ended."""
        for address in addresses:
            if address not in self.instances:
                self.instances[address] = Instance(address, self._tls, self.breaker.hopeful)
        self._current = [self.instances[address] for address in addresses]
        gone = [instance for instance in self.instances.values() if instance.address not in addresses]
        self._listed = None if any(instance.busy for instance in gone) else addresses  # None: the next call looks again
        leaving = [self.instances.pop(instance.address) for instance in gone if not instance.busy]
        for instance in leaving:
            await instance.aclose()

    def _pick(self, known: Sequence[Instance], tried: Collection[Instance]) -> Instance:
        """The least busy instance that is not aside; if all are, the one that was set aside the least often."""
        if len(known) == 1:
            return known[0]
        wanted = [instance for instance in known if instance not in tried] or known
        well = [instance for instance in wanted if not instance.aside]
        return min(well, key=attrgetter("busy")) if well else min(wanted, key=attrgetter("pause.seconds"))

    async def _somebody_is_there(self) -> bool:
        """Whether there is an address to call. The first one that is known again is called at once."""
        found = bool(await self._addresses())
        if found and isinstance(self._last, NobodyKnown):
            self.breaker.hopeful()
        return found

    def _forget(self) -> None:
        """The outcome of the call says nothing of the module."""
        self.breaker.forgotten()
        self.gate.look()

    def _judge(self, fault: NodeFault | None) -> None:
        if fault is None:
            self.breaker.succeeded()
        else:
            self._last = fault
            self.breaker.failed()
        self.gate.look()
        if fault is None and self.breaker.position is Position.CLOSED:
            self._last = None

    def _moved(self, position: Position) -> None:
        if position is Position.CLOSED:
            self._since = None
            self.gate.opened()
        elif self._since is None:
            self._since = self._clock.now()
        self._events.emit(BreakerMoved(target=f"module/{self.module}", state=position))
