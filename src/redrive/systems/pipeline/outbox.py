"""The outbox of an engine: the streams of many handlers go on in one write, durable before any handler returns."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from redrive.clock import Clock, Pause
from redrive.model import Message
from redrive.systems.pipeline.error_types import ErrorType
from redrive.systems.pipeline.faults import NodeFault
from redrive.systems.pipeline.streams import Streams
from redrive.telemetry.events import BackendDown, Events
from redrive.transports.base import SendResult, SendStatus, send_each

_SHORTEST, _LONGEST = 0.1, 5.0


class Outbox:
    """Sends streams on. While the transport is away it keeps trying, so that no module has to do its work again."""

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
        """Stop sending. The messages of streams that were not sent yet are handled again by the next engine."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _flush(self) -> None:
        pause = Pause(_SHORTEST, _LONGEST)
        while self._waiting:
            batch, self._waiting = [(message, sent) for message, sent in self._waiting if not sent.done()], []
            try:
                results = await send_each(self._streams, [message for message, _ in batch])
            except Exception as error:  # a bug, or what no transport can carry: nobody waits for it in vain
                _fail(batch, error)
                continue
            down = ""
            for (message, sent), result in zip(batch, results, strict=True):
                if result.status in (SendStatus.BUSY, SendStatus.UNKNOWN):
                    down = result.why
                    self._waiting.append((message, sent))
                elif not sent.done():
                    _set_outcome(sent, result)
            if down:
                await self._wait(down, pause.next())
            else:
                pause.reset()

    async def _wait(self, why: str, pause: float) -> None:
        self._events.emit(BackendDown(backend="streams", why=why, pause=timedelta(seconds=pause)))
        await self._clock.sleep(pause)


def _fail(batch: Sequence[tuple[Message, asyncio.Future[None]]], error: Exception) -> None:
    for _, sent in batch:
        if not sent.done():
            sent.set_exception(error)


def _set_outcome(sent: asyncio.Future[None], result: SendResult) -> None:
    """Wake the handler that sent it; one whose stream the topic will never take has failed for good."""
    if result.status is SendStatus.ACCEPTED:
        sent.set_result(None)
    else:
        sent.set_exception(NodeFault(ErrorType.TOO_LARGE, result.why))
