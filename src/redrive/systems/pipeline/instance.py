"""An instance of a module: its channel, its open calls, and whether it is left aside."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc

from redrive.clock import Pause
from redrive.systems.pipeline.call_pool import CallPool
from redrive.systems.pipeline.wire import Tls, open_channel

_HEALTH = "/grpc.health.v1.Health/Check"
_SERVING = b"\x08\x01"  # HealthCheckResponse(status=SERVING)
_SHORTEST, _LONGEST = 0.25, 15.0  # seconds that an instance is left aside before its health is asked
_PROBE, _AGAIN = 2.0, 0.5  # seconds that it has to answer; before it is asked again


class Instance:
    """One address of a module.

    recovered   called when it was aside, and is well again
    """

    def __init__(self, address: str, tls: Tls, recovered: Callable[[], None]) -> None:
        self.address = address
        self.busy = 0
        self.aside = False
        self.pause = Pause(_SHORTEST, _LONGEST)
        self._channel = open_channel(address, tls)
        self._calls = CallPool(self._channel)
        self.ask = self._calls.ask
        self._recovered = recovered
        self._probing: asyncio.Task[None] | None = None

    def set_aside(self) -> None:
        """Call others until its health check answers; longer each time that no call succeeded in between."""
        if self._probing is None or self._probing.done():
            self.aside = True
            self._probing = asyncio.create_task(self._until_healthy())

    def worked(self) -> None:
        """A call succeeded."""
        self.pause.reset()

    async def aclose(self) -> None:
        if self._probing is not None:
            self._probing.cancel()
            await asyncio.gather(self._probing, return_exceptions=True)
        self._calls.close()
        await self._channel.close(None)

    async def _until_healthy(self) -> None:
        """Ask for its health, often once the pause is over: as long as it is taken for dead, its streams die."""
        await asyncio.sleep(self.pause.next())
        while not await self._is_healthy():  # noqa: ASYNC110 - it is another process, and has no event of ours
            await asyncio.sleep(_AGAIN)
        self.aside = False
        self._recovered()

    async def _is_healthy(self) -> bool:
        channel: Any = self._channel
        check = channel.unary_unary(_HEALTH)
        try:
            answer: bytes = await check(b"", timeout=_PROBE)
        except grpc.aio.AioRpcError as error:
            return error.code() is grpc.StatusCode.UNIMPLEMENTED  # it answers, and has no health to tell of
        return answer == _SERVING
