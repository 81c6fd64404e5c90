"""Streams on their way to the next nodes: those of many handlers in one write, confirmed before any handler returns."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from redrive.clock import Clock
from redrive.errors import TransportUnavailable
from redrive.model import Message
from redrive.systems.pipeline.faults import ErrorType, NodeFault
from redrive.systems.pipeline.streams import Streams
from redrive.telemetry.events import BackendDown, Events
from redrive.transports.base import SendResult, SendStatus, unknown

_SHORTEST, _LONGEST = 0.1, 5.0


class Outbox:
    """While the transport is away it goes on trying: what a module has done is not to be done again for that."""

    def __init__(self, streams: Streams, events: Events, clock: Clock) -> None:
        self._streams = streams
        self._events = events
        self._clock = clock
        self._waiting: list[tuple[Message, asyncio.Future[None]]] = []
        self._task: asyncio.Task[None] | None = None

    async def send(self, messages: Sequence[Message]) -> None:
        """Returns when all are durable; NodeFault for one that is too large for its topic."""
        loop = asyncio.get_running_loop()
        sent = [loop.create_future() for _ in messages]
        self._waiting += zip(messages, sent, strict=True)
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._flush())
        results = await asyncio.gather(*sent, return_exceptions=True) if len(sent) > 1 else [await sent[0]]
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def aclose(self) -> None:
        """What nobody has been told of is sent again by whoever gets its message next."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _flush(self) -> None:
        pause = _SHORTEST
        while self._waiting:
            batch, self._waiting = [one for one in self._waiting if not one[1].done()], []
            results = await self._sent([message for message, _ in batch])
            down = ""
            for (message, sent), result in zip(batch, results, strict=True):
                if result.status in (SendStatus.BUSY, SendStatus.UNKNOWN):
                    down = result.why
                    self._waiting.append((message, sent))
                elif not sent.done():
                    _tell(sent, result)
            pause = await self._pause(down, pause) if down else _SHORTEST

    async def _sent(self, messages: Sequence[Message]) -> Sequence[SendResult]:
        try:
            return await self._streams.send(messages)
        except TransportUnavailable as error:
            return [unknown(error)] * len(messages)

    async def _pause(self, why: str, pause: float) -> float:
        self._events.emit(BackendDown(backend="streams", why=why, pause=timedelta(seconds=pause)))
        await self._clock.sleep(pause)
        return min(2 * pause, _LONGEST)


def _tell(sent: asyncio.Future[None], result: SendResult) -> None:
    """A handler whose stream the topic will never take has failed for good."""
    if result.status is SendStatus.ACCEPTED:
        sent.set_result(None)
    else:
        sent.set_exception(NodeFault(ErrorType.TOO_LARGE, result.why))
