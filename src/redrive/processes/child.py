"""This process, if a supervisor started it: says that it runs and what it counted, and hears when to stop."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable

import msgspec

from redrive.processes.wire import Answer, Ask, Beat, Channel, Order, Started, Stop, Told

log = logging.getLogger("redrive")
VARIABLE = "_REDRIVE_PROCESS"
"""Where a process finds its order. It is no setting, so it does not begin with REDRIVE_."""
_BEAT = 1.0  # seconds
_SHARE = 0.01  # of its time at most is spent on counting for beats, however many sources there are
_adopted: list[Child] = []


class Child:
    """Our end of the socket. When the other end is gone, so is the supervisor: the worker stops as if told to."""

    def __init__(self, order: Order, end: socket.socket) -> None:
        self.number = order.number
        self.checks = order.checks
        self.counted: Callable[[], bytes] = bytes  # what the metrics are now; nothing, where nobody scrapes
        self.answers: dict[str, Callable[[str], Awaitable[bytes]]] = {}
        self._end = end
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, grace: float, stop: Callable[[], None]) -> None:
        """Until it is cancelled; the last thing it says is what was counted in the end."""
        channel: Channel[Told] = await Channel.opened(self._end, Told)
        channel.send(Started(grace))
        beating = asyncio.create_task(self._beat(channel))
        try:
            async for told in channel:
                self._obey(channel, told, stop)
            log.warning("the supervisor is gone: stopping, what is being handled may finish")
            stop()
            await asyncio.Event().wait()
        finally:
            beating.cancel()
            channel.send(Beat(self.counted()))
            await channel.aclose()

    def _obey(self, channel: Channel[Told], told: Told, stop: Callable[[], None]) -> None:
        match told:
            case Stop():
                stop()
            case Ask():
                task = asyncio.create_task(self._answer(channel, told))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _answer(self, channel: Channel[Told], question: Ask) -> None:
        try:
            channel.send(Answer(question.id, await self.answers[question.what](question.text)))
        except Exception:  # what is asked about the work must not end it
            log.exception("the supervisor's question %r has no answer", question.what)
            channel.send(Answer(question.id, None))

    async def _beat(self, channel: Channel[Told]) -> None:
        while True:
            began = time.monotonic()
            channel.send(Beat(self.counted()))
            await asyncio.sleep(max(_BEAT, (time.monotonic() - began) / _SHARE))


def adopt() -> Child | None:
    """This process as a child, if it was started as one. Asked again, it is the same one.

    Nothing that this process starts itself takes the order or the socket for its own.
    """
    order = os.environ.pop(VARIABLE, None)
    if order is not None:
        told = msgspec.json.decode(order, type=Order)
        end = socket.socket(fileno=told.fd)
        end.set_inheritable(False)
        _adopted.append(Child(told, end))
    return _adopted[-1] if _adopted else None
