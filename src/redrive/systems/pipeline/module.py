"""A module in ten lines: a function that gets a document, served over gRPC with health, registered in Consul.

module = Module("shout")

@module.process
def shout(document: Document) -> Document:
    return Document(content=document.content.upper())

module.run(port=50051, consul="http://127.0.0.1:8500")
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import grpc

from redrive.errors import ConfigError, MissingExtra
from redrive.systems.pipeline.consul import Registration
from redrive.systems.pipeline.pipeline_pb2 import Document, DocumentRef, PipeStream, ProcessRequest, ProcessResponse
from redrive.systems.pipeline.repository import Repository, loaded
from redrive.systems.pipeline.wire import END, SERVICE, SIZES, Tls

F = TypeVar("F", bound=Callable[..., Any])
_GRACE = timedelta(seconds=10)
log = logging.getLogger("redrive.pipeline")


class Rejected(Exception):
    """Raise it to say success=false: this document cannot be processed, and the stream goes on without it."""


class Module:
    """One step of pipelines. Any number of instances may run; engines find those that are healthy.

    Its function, sync or async, gets the document and, if it takes two arguments, the PipeStream. What it returns is
    the new document; None leaves it as it is. `Rejected` is a failure of this document, which is told in the stream's
    history; any other error is a failure of the module, and is tried again.
    """

    def __init__(self, name: str, *, repository: Repository | None = None) -> None:
        if not name:
            raise ConfigError("a module has a name: nodes of the graph are found by it")
        self.name = name
        self._repository = repository
        self._function: Callable[..., Any] | None = None
        self._wants_stream = False

    def process(self, function: F) -> F:
        """Decorates the function of the module."""
        self._function = function
        self._wants_stream = len(inspect.signature(function).parameters) > 1
        return function

    async def answer(self, request: ProcessRequest) -> ProcessResponse:
        """Process one request."""
        assert self._function is not None
        document = await self._document(request.stream)
        given = (document, request.stream) if self._wants_stream else (document,)
        try:
            if inspect.iscoroutinefunction(self._function):
                made = await self._function(*given)
            else:
                made = await asyncio.to_thread(self._function, *given)
        except Rejected as error:
            return ProcessResponse(success=False, error_message=str(error) or "rejected")
        return _response(made)

    async def _document(self, stream: PipeStream) -> Document:
        if not stream.HasField("document_ref"):
            return stream.document
        if self._repository is None:
            raise ConfigError(f"module {self.name!r} has no repository: give it one, the document is a reference")
        return await loaded(stream.document_ref, self._repository)

    async def serve(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        consul: str | None = None,
        tls: Tls | None = None,
        started: Callable[[str], None] = lambda address: None,
        stop: asyncio.Event | None = None,
        grace: timedelta = _GRACE,
    ) -> None:
        """Serve until SIGTERM, Ctrl-C or `stop`: then leave Consul, give its calls `grace`, and return."""
        stop = stop or asyncio.Event()
        calls = _OpenCalls(self.answer)
        server, health = await self._server(calls)
        credentials = (tls or Tls()).of_server()
        place = f"{host}:{port}"
        try:
            bound = server.add_secure_port(place, credentials) if credentials else server.add_insecure_port(place)
        except RuntimeError as error:
            raise ConfigError(f"module {self.name!r} cannot listen on {place}: is the port in use?") from error
        await server.start()
        address = f"{host}:{bound}"
        registration = Registration(consul, self.name, host, bound, tls=credentials is not None) if consul else None
        with _until_signal(stop):
            try:
                if registration is not None:
                    await registration.enter()
                started(address)
                log.info("module %s serves on %s", self.name, address)
                await stop.wait()
            finally:
                if registration is not None:
                    await registration.leave()
                await health.enter_graceful_shutdown()
                calls.end()
                await server.stop(grace.total_seconds())
                if self._repository is not None:
                    await self._repository.aclose()

    def run(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        consul: str | None = None,
        tls: Tls | None = None,
        started: Callable[[str], None] = lambda address: None,
        grace: timedelta = _GRACE,
    ) -> None:
        """`serve` as a whole process."""
        asyncio.run(self.serve(host, port, consul=consul, tls=tls, started=started, grace=grace))

    async def _server(self, calls: _OpenCalls) -> tuple[grpc.aio.Server, Any]:
        if self._function is None:
            raise ConfigError(f"module {self.name!r} has no function: decorate one with @module.process")
        try:
            from grpc_health.v1 import health_pb2, health_pb2_grpc
            from grpc_health.v1.health import aio  # type: ignore[attr-defined]
        except ImportError as error:
            raise MissingExtra("a module", "grpc") from error
        server = grpc.aio.server(options=SIZES)

        async def process(request: ProcessRequest, context: Any) -> ProcessResponse:
            return await self.answer(request)

        forms: dict[str, Any] = {
            "request_deserializer": ProcessRequest.FromString,
            "response_serializer": ProcessResponse.SerializeToString,
        }
        methods = {
            "Process": grpc.unary_unary_rpc_method_handler(process, **forms),
            "ProcessEach": grpc.stream_stream_rpc_method_handler(calls.each, **forms),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
        servicer: Any = aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
        for name in ("", SERVICE):
            await servicer.set(name, health_pb2.HealthCheckResponse.SERVING)
        return server, servicer


class _OpenCalls:
    """The open calls of `ProcessEach`. One that waits for its next request does not keep a module from stopping."""

    def __init__(self, answer: Callable[[ProcessRequest], Awaitable[ProcessResponse]]) -> None:
        self._answer = answer
        self._idle: set[asyncio.Task[Any]] = set()
        self._is_over = False

    async def each(self, requests: Any, context: Any) -> None:
        task = asyncio.current_task()
        assert task is not None
        while (request := await self._next(task, context)) is not END:
            await context.write(await self._answer(request))

    def end(self) -> None:
        """End those that are idle; the others end when they have answered."""
        self._is_over = True
        for task in self._idle:
            task.cancel()

    async def _next(self, task: asyncio.Task[Any], context: Any) -> Any:
        if self._is_over:
            return END
        self._idle.add(task)
        try:
            return await context.read()
        except asyncio.CancelledError:
            if not self._is_over:
                raise
            return END
        finally:
            self._idle.discard(task)


def _response(made: Any) -> ProcessResponse:
    match made:
        case None:
            return ProcessResponse(success=True)
        case ProcessResponse():
            return made
        case DocumentRef():
            return ProcessResponse(success=True, document_ref=made)
        case Document():
            return ProcessResponse(success=True, document=made)
    raise TypeError(f"a module returns a Document, a DocumentRef or None, not {made!r}")


@contextmanager
def _until_signal(stop: asyncio.Event) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)
    try:
        for number in numbers:
            loop.add_signal_handler(number, stop.set)
    except (ValueError, RuntimeError):  # not in the main thread: its caller stops it
        yield
        return
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
