"""The outbox of an engine: the streams of many handlers go on in one write, durable before any handler returns."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from redrive.clock import Clock, Pause
from redrive.errors import TransportUnavailable
from redrive.model import Message
from redrive.systems.pipeline.streams import Streams
from redrive.telemetry.events import BackendDown, Events

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
            errors = await self._streams.outcomes([message for message, _ in batch])
            down = None
            for (message, sent), error in zip(batch, errors, strict=True):
                if isinstance(error, TransportUnavailable):
                    down = error
                    self._waiting.append((message, sent))
                elif not sent.done():
                    sent.set_result(None) if error is None else sent.set_exception(error)
            if down is None:
                pause.reset()
            else:
                await self._wait(down, pause.next())

    async def _wait(self, error: TransportUnavailable, pause: float) -> None:
        self._events.emit(BackendDown(backend=error.name, why=str(error), pause=timedelta(seconds=pause)))
        await self._clock.sleep(pause)
