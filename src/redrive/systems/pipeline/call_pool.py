"""A pool of gRPC streams to one instance of a module that stay open: opening one costs four times as much as asking
once more on an open one."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import grpc
from grpc.aio import AioRpcError, Metadata

from redrive.systems.pipeline.pipeline_pb2 import ProcessResponse
from redrive.systems.pipeline.wire import END, each_method, process_method

_IDLE = timedelta(seconds=20)  # before either side has reason to ask whether the other one is still there


class _NoAnswer(Exception):
    """The stream broke before the module had the request, or ended with no answer and no error."""


class CallPool:
    """Open streams, as many as there are requests at once. An error ends the stream that it came on, so that it is
    always the error of one request. Where streams do not work, `Process` is called: a module may know nothing else.

    idle   how long a stream that nobody uses stays open
    """

    def __init__(self, channel: grpc.aio.Channel, idle: timedelta = _IDLE) -> None:
        self._idle = idle.total_seconds()
        self._each = each_method(channel)
        self._once = process_method(channel)
        self._has_each: bool | None = None  # None: it was not tried yet
        self._free: list[_OpenStream] = []  # the most recently used is the last
        self._pruning: asyncio.TimerHandle | None = None

    async def ask(self, request: bytes, seconds: float) -> ProcessResponse:
        """The answer, or AioRpcError, as of `Process`. The caller keeps the time on streams, and cancels."""
        try:
            answer = await self._on_stream(request)
        except _NoAnswer:
            answer = await self._once(request, timeout=seconds)
        if answer is None:
            said = "its answer is no ProcessResponse"
            raise AioRpcError(grpc.StatusCode.INTERNAL, Metadata(), Metadata(), said, debug_error_string=None)
        return answer

    def close(self) -> None:
        if self._pruning is not None:
            self._pruning.cancel()
        for stream in self._free:
            stream.end()
        self._free.clear()

    async def _on_stream(self, request: bytes) -> ProcessResponse | None:
        if self._has_each is False:
            raise _NoAnswer
        stream = self._taken()
        try:
            answer = await stream.ask(request)
        except AioRpcError as error:
            if not self._has_each and error.code() is grpc.StatusCode.UNIMPLEMENTED:
                self._has_each = False
                raise _NoAnswer from None
            raise
        self._has_each = True
        self._keep(stream)
        return answer

    def _taken(self) -> _OpenStream:
        while self._free:
            stream = self._free.pop()
            if not stream.is_over:
                return stream
        return _OpenStream(self._each())

    def _keep(self, stream: _OpenStream) -> None:
        """Keep it for the next request."""
        loop = asyncio.get_running_loop()
        stream.since = loop.time()
        self._free.append(stream)
        if self._pruning is None:
            self._pruning = loop.call_later(self._idle, self._prune, loop)

    def _prune(self, loop: asyncio.AbstractEventLoop) -> None:
        end = loop.time() - self._idle
        while self._free and self._free[0].since <= end:
            self._free.pop(0).end()
        self._pruning = loop.call_at(self._free[0].since + self._idle, self._prune, loop) if self._free else None


class _OpenStream:
    """One stream, with one request at a time."""

    def __init__(self, call: Any) -> None:
        self.since = 0.0  # when it was last used
        self._call = call

    @property
    def is_over(self) -> bool:
        return bool(self._call.done())

    async def ask(self, request: bytes) -> ProcessResponse | None:
        """What the module says; None where that is no ProcessResponse."""
        try:
            await self._write(request)
            answer: ProcessResponse | None = await self._call.read()
        except BaseException:
            self.end()
            raise
        if answer is END:
            raise _NoAnswer
        return answer

    async def _write(self, request: bytes) -> None:
        try:
            await self._call.write(request)
        except AioRpcError as error:
            if error.code() is grpc.StatusCode.INTERNAL:  # which hides why
                raise _NoAnswer from None
            raise

    def end(self) -> None:
        self._call.cancel()
