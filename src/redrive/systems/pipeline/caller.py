"""Calls one module: spreads calls over its healthy instances, leaves dead and hanging ones aside, and sheds fast when
none is left."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from datetime import timedelta
from typing import Any, TypeAlias

import grpc

from redrive.clock import Clock
from redrive.flow.breaker import Breaker, BreakerRule, Position
from redrive.systems.pipeline.faults import ErrorType, NodeFault, fault_of
from redrive.systems.pipeline.pipeline_pb2 import ProcessRequest, ProcessResponse
from redrive.systems.pipeline.wire import Tls, open_channel, process_method
from redrive.telemetry.events import BreakerMoved, Events

Addresses: TypeAlias = Callable[[], Awaitable[Collection[str]]]
RULE = BreakerRule(failures=10, wait=timedelta(seconds=1), longest=timedelta(seconds=15))
_HEALTH = "/grpc.health.v1.Health/Check"
_SERVING = b"\x08\x01"  # HealthCheckResponse(status=SERVING)
_SHORTEST, _LONGEST, _PROBE = 0.25, 15.0, 2.0
log = logging.getLogger("redrive.pipeline")


class Instance:
    """One address of a module."""

    def __init__(self, address: str, tls: Tls) -> None:
        self.address = address
        self.busy = 0
        self.aside = False
        self.pause = _SHORTEST
        self._channel = open_channel(address, tls)
        self.process = process_method(self._channel)
        self._probing: asyncio.Task[None] | None = None

    def set_aside(self) -> None:
        """Until its health check answers; longer each time that it is set aside again without a success between."""
        if self._probing is None or self._probing.done():
            self.aside = True
            self._probing = asyncio.create_task(self._until_healthy())

    def worked(self) -> None:
        self.pause = _SHORTEST

    async def aclose(self) -> None:
        if self._probing is not None:
            self._probing.cancel()
            await asyncio.gather(self._probing, return_exceptions=True)
        await self._channel.close(None)

    async def _until_healthy(self) -> None:
        while True:
            await asyncio.sleep(self.pause)
            self.pause = min(2 * self.pause, _LONGEST)
            if await self._is_healthy():
                self.aside = False
                return

    async def _is_healthy(self) -> bool:
        channel: Any = self._channel
        check = channel.unary_unary(_HEALTH)
        try:
            answer: bytes = await check(b"", timeout=_PROBE)
        except grpc.aio.AioRpcError as error:
            return error.code() is grpc.StatusCode.UNIMPLEMENTED  # it answers, and has no health to tell of
        return answer == _SERVING


class Caller:
    """One module as an engine sees it.

    addresses   who can be called now
    why         why nobody can, if so
    """

    def __init__(
        self, module: str, addresses: Addresses, *, why: Callable[[], str], tls: Tls, clock: Clock, events: Events
    ) -> None:
        self.module = module
        self.instances: dict[str, Instance] = {}
        self.breaker = Breaker(RULE, clock.elapsed)
        self._addresses = addresses
        self._why = why
        self._tls = tls
        self._clock = clock
        self._events = events
        self._told = Position.CLOSED
        self._last: NodeFault | None = None
        self._verdict = asyncio.Event()

    async def __call__(self, request: ProcessRequest, timeout: timedelta) -> tuple[ProcessResponse, str]:
        """The answer and who gave it; NodeFault if there is none."""
        while not self.breaker.room(1):
            if self.breaker.position is Position.OPEN:
                assert self._last is not None
                raise NodeFault(self._last.kind, f"not called, because calls keep failing: {self._last}")
            await self._verdict.wait()  # one call is on trial: what comes of it decides for all
        if self.breaker.position is Position.HALF_OPEN:
            self._verdict.clear()
        self.breaker.sent(1)
        try:
            answer = await self._on_some_instance(request, timeout.total_seconds())
        except NodeFault as fault:
            self._judge(fault if fault.blames_instance else None)
            raise
        except BaseException:
            self.breaker.forgotten()
            self._verdict.set()
            raise
        if self._last is not None:
            self._judge(None)
        return answer

    async def aclose(self) -> None:
        await asyncio.gather(*(instance.aclose() for instance in self.instances.values()))

    async def _on_some_instance(self, request: ProcessRequest, seconds: float) -> tuple[ProcessResponse, str]:
        """On another one at once, if what was tried never got the call."""
        end = self._clock.elapsed() + seconds
        tried: list[Instance] = []
        while True:
            instance = self._pick(await self._known(), tried)
            try:
                return await self._on(instance, request, max(end - self._clock.elapsed(), 0.001)), instance.address
            except NodeFault as fault:
                if fault.blames_instance:
                    instance.set_aside()
                tried.append(instance)
                others = [one for one in self.instances.values() if not one.aside and one not in tried]
                if not fault.never_arrived or not others:
                    raise

    async def _on(self, instance: Instance, request: ProcessRequest, seconds: float) -> ProcessResponse:
        instance.busy += 1
        try:
            answer: ProcessResponse = await instance.process(request, timeout=seconds)
        except grpc.aio.AioRpcError as error:
            raise fault_of(error, self.module, instance.address) from None
        finally:
            instance.busy -= 1
        instance.worked()
        return answer

    async def _known(self) -> Collection[Instance]:
        """Channels as the addresses are now: made for new ones, closed for those that are gone."""
        addresses = await self._addresses()
        if not addresses:
            raise NodeFault(ErrorType.MODULE_UNAVAILABLE, f"module {self.module!r}: {self._why()}")
        if self.instances.keys() != set(addresses):
            for address in self.instances.keys() - set(addresses):
                if not self.instances[address].busy:  # what it still does may end
                    await self.instances.pop(address).aclose()
            for address in addresses:
                self.instances.setdefault(address, Instance(address, self._tls))
        return [instance for address, instance in self.instances.items() if address in addresses]

    def _pick(self, known: Collection[Instance], tried: Collection[Instance]) -> Instance:
        """The least busy that is well; of those aside the one that was so for the shortest time."""
        wanted = [one for one in known if one not in tried] or list(known)
        well = [one for one in wanted if not one.aside]
        return min(well, key=lambda one: one.busy) if well else min(wanted, key=lambda one: one.pause)

    def _judge(self, fault: NodeFault | None) -> None:
        if fault is None:
            self.breaker.succeeded()
        else:
            self._last = fault
            self.breaker.failed()
        self._verdict.set()
        position = self.breaker.position
        if position is not self._told:
            self._told = position
            self._events.emit(BreakerMoved(target=f"module/{self.module}", state=position))
        if position is Position.CLOSED and fault is None:
            self._last = None
