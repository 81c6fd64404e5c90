"""FastStream's side: reports a message that its handler has lost, and the success of one that was replayed."""

from __future__ import annotations

import asyncio
import atexit
import socket
from pathlib import Path
from types import TracebackType
from typing import Any

from faststream import BaseMiddleware
from faststream.exceptions import RejectMessage, SubscriberNotFound

from redrive.clock import Clock, SystemClock
from redrive.flow.lineage import LETTER
from redrive.integrations.faststream.endings import is_dead, is_rejected
from redrive.integrations.faststream.reading import kind_of, messages_in
from redrive.integrations.letters import failure_of, letter_of
from redrive.integrations.reporter import Reporter
from redrive.model import Reason


class RedriveMiddleware:
    """`broker.add_middleware(RedriveMiddleware(store="postgresql://…"))`

    store       the URL of the store that letters go to
    transport   the name of the transport that a replay uses: `[transports] faststream = "faststream+amqp://…"`
    spool       the directory in which letters wait for the store; by default one for this user and store
    fsync       a letter survives a crash of the machine, too, before its message is acknowledged
    version     of your code, to be shown with each failure
    """

    def __init__(
        self,
        store: str,
        *,
        transport: str = "faststream",
        spool: str | Path | None = None,
        fsync: bool = True,
        version: str = "",
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._reporter = Reporter(store, spool=spool, fsync=fsync, clock=self._clock)
        self._transport = transport
        self._version = version
        self._worker = socket.gethostname()
        self._is_started = False

    def __call__(self, msg: Any, /, *, context: Any) -> _Watch:
        if msg is not None and not self._is_started:
            self._is_started = True
            self._reporter.start()
            atexit.register(self._reporter.close)
        return _Watch(msg, context=context, owner=self)

    def died(self, raw: Any, queue: str, error: BaseException, *, was_read: bool) -> None:
        """Report each message of that delivery. It is on disk when this returns."""
        now = self._clock.now()
        failure = failure_of(error, at=now, worker=self._worker, version=self._version)
        reason = Reason.ATTEMPTS if was_read or isinstance(error, SubscriberNotFound) else Reason.UNDECODABLE
        for message in messages_in(raw, queue, now):
            self._reporter.died(letter_of(message, [failure], transport=self._transport, now=now, reason=reason))

    def succeeded(self, raw: Any, queue: str) -> None:
        for message in messages_in(raw, queue, self._clock.now()):
            self._reporter.succeeded(message)


class _Watch(BaseMiddleware[Any, Any]):
    """One delivery, from its arrival until FastStream acknowledges it: that comes after us."""

    __slots__ = ("_message", "_owner")

    def __init__(self, msg: Any, /, *, context: Any, owner: RedriveMiddleware) -> None:
        super().__init__(msg, context=context)
        self._owner = owner
        self._message: Any = None

    async def consume_scope(self, call_next: Any, msg: Any) -> Any:
        self._message = msg
        return await call_next(msg)

    async def after_processed(
        self,
        exc_type: type[BaseException] | None = None,
        exc_val: BaseException | None = None,
        exc_tb: TracebackType | None = None,
    ) -> bool | None:
        message, subscriber = self._message, self.context.get_local("handler_")
        committed = getattr(message, "committed", None)
        if exc_val is None and is_rejected(committed):
            exc_val = RejectMessage()
        if exc_val is None:
            if message is not None and _was_sent_back(message):
                await asyncio.to_thread(self._owner.succeeded, self.msg, _queue_of(subscriber))
            return False
        kind = kind_of(self.msg)
        if kind is not None and is_dead(kind, getattr(subscriber, "ack_policy", None), committed, exc_val):
            await asyncio.to_thread(
                self._owner.died, self.msg, _queue_of(subscriber), exc_val, was_read=message is not None
            )
        return False


def _was_sent_back(message: Any) -> bool:
    return LETTER in message.headers or any(LETTER in headers for headers in message.batch_headers)


def _queue_of(subscriber: Any) -> str:
    """The queue of a subscriber of RabbitMQ, as it was declared: a message knows only how it was routed."""
    queue = getattr(subscriber, "_queue_obj", None) or getattr(subscriber, "queue", None)
    return str(getattr(queue, "name", "") or "")
