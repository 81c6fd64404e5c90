"""Calls to one instance of a module over streams of gRPC that stay open: to set a call up costs four times what it
costs to ask once more on one that is there."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
from grpc.aio import AioRpcError, Metadata

from redrive.systems.pipeline.pipeline_pb2 import ProcessResponse
from redrive.systems.pipeline.wire import END, each_method, process_method

_IDLE = 20.0  # seconds: before either side has reason to ask whether the other one is still there


class _Unheard(Exception):
    """The talk broke off before the module had the request, or it ended with no answer and no error."""


class CallPool:
    """As many as are asked for at once. Whatever goes wrong ends the talk it went wrong in, so that an error is always
    that of one request. Where talks do not serve, `Process` does: a module may know nothing else."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._each = each_method(channel)
        self._once = process_method(channel)
        self._has_each: bool | None = None  # nobody knows before it was tried
        self._free: list[_Call] = []  # the one used last is the last
        self._pruning: asyncio.TimerHandle | None = None

    async def ask(self, request: bytes, seconds: float) -> ProcessResponse:
        """The answer, or AioRpcError, as of `Process`. Whoever has waited long enough cancels it."""
        try:
            answer = await self._talked(request)
        except _Unheard:
            answer = await self._once(request, timeout=seconds)
        if answer is None:
            said = "its answer is no ProcessResponse"
            raise AioRpcError(grpc.StatusCode.INTERNAL, Metadata(), Metadata(), said, debug_error_string=None)
        return answer

    def close(self) -> None:
        if self._pruning is not None:
            self._pruning.cancel()
        for talk in self._free:
            talk.end()
        self._free.clear()

    async def _talked(self, request: bytes) -> ProcessResponse | None:
        if self._has_each is False:
            raise _Unheard
        talk = self._taken()
        try:
            answer = await talk.ask(request)
        except AioRpcError as error:
            if not self._has_each and error.code() is grpc.StatusCode.UNIMPLEMENTED:
                self._has_each = False
                raise _Unheard from None
            raise
        self._has_each = True
        self._keep(talk)
        return answer

    def _taken(self) -> _Call:
        while self._free:
            talk = self._free.pop()
            if not talk.is_over:
                return talk
        return _Call(self._each())

    def _keep(self, talk: _Call) -> None:
        """For whoever asks next."""
        loop = asyncio.get_running_loop()
        talk.since = loop.time()
        self._free.append(talk)
        if self._pruning is None:
            self._pruning = loop.call_later(_IDLE, self._prune, loop)

    def _prune(self, loop: asyncio.AbstractEventLoop) -> None:
        end = loop.time() - _IDLE
        while self._free and self._free[0].since <= end:
            self._free.pop(0).end()
        self._pruning = loop.call_at(self._free[0].since + _IDLE, self._prune, loop) if self._free else None


class _Call:
    """One stream, with one question at a time."""

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
            raise _Unheard
        return answer

    async def _write(self, request: bytes) -> None:
        try:
            await self._call.write(request)
        except AioRpcError as error:
            if error.code() is grpc.StatusCode.INTERNAL:  # which hides why
                raise _Unheard from None
            raise

    def end(self) -> None:
        self._call.cancel()
