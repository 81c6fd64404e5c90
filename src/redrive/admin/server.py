"""One process that answers: the API, upkeep beside it, and, where an app is given, its worker."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from redrive.access.tokens import Tokens
from redrive.alerts import alerting
from redrive.app import Redrive
from redrive.config.settings import Admin
from redrive.errors import MissingExtra, UsageError
from redrive.service import Service
from redrive.service.watcher import Watcher
from redrive.systems.use import add_metrics, routers_of
from redrive.upkeep.loop import Upkeep
from redrive.worker import Helper, Worker, stop_on_signals

try:
    import uvicorn

    from redrive.admin.access import is_loopback
    from redrive.admin.api import admit, create_api
    from redrive.admin.protocol import Bounded, bounded
    from redrive.admin.tls import Tls
    from redrive.telemetry.metrics import Metrics
except ImportError as error:
    raise MissingExtra("the server", "server") from error

_OTHER_FILES = 500  # what a process has open beside its connections: databases, brokers, logs
_LAST_REQUESTS = 3  # seconds in which a request under way may end


class Uvicorn(uvicorn.Server):
    """uvicorn, less its own idea of signals: Ctrl-C drains the worker too (worker.py). It waits for what is under way:
    streams, which have no end by themselves, are told first."""

    def __init__(self, config: uvicorn.Config, ending: Callable[[], None] = lambda: None) -> None:
        super().__init__(config)
        self._ending = ending

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn listens; the handshake of TLS, before which no connection counts, has the deadline of headers."""
        if self.config.ssl is None or not sockets:
            await super().startup(sockets)
            return
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            sys.exit(1)
        kind: type[Bounded] = self.config.http_protocol_class  # type: ignore[assignment]
        made = partial(kind, config=self.config, server_state=self.server_state, app_state=self.lifespan.state)
        wait = kind.limits.header_timeout.total_seconds()
        loop = asyncio.get_running_loop()
        self.servers = [
            await loop.create_server(
                made, sock=each, ssl=self.config.ssl, ssl_handshake_timeout=wait, backlog=self.config.backlog
            )
            for each in sockets
        ]
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._ending()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Server:
    """Listens from when it is made, so that a port in use is known at once; answers while it runs."""

    def __init__(
        self,
        app: Redrive,
        host: str,
        port: int,
        *,
        upkeep: bool = True,
        beside: Sequence[Helper] = (),
        tls: Tls | None = None,
    ) -> None:
        self.app = app
        self.host = host
        self.tokens = Tokens(app.store.documents, app.clock)
        self.one_time: str | None = None
        self.watcher: Watcher | None = None
        self._socket = listen(host, port)
        self.port: int = self._socket.getsockname()[1]
        self._worker = Worker(app, upkeep=upkeep) if app.handlers else None
        own = [Upkeep.of(app).run] if upkeep and self._worker is None else []
        self._tls = tls
        self._helpers = [*own, *beside, *([] if tls is None else [tls.watch])]
        self._uvicorn: Uvicorn | None = None

    @property
    def url(self) -> str:
        """Where a browser finds it, with the one-time token where a browser keeps it to itself."""
        return self.address + (f"#token={self.one_time}" if self.one_time else "")

    @property
    def address(self) -> str:
        """Where it answers."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self._tls is None else 'https'}://{host}:{self.port}/"

    async def run(self, started: Callable[[Server], None] = lambda server: None) -> None:
        """Until `stop`, then until what is under way is done."""
        try:
            self.one_time = await admit(self.tokens, self.host, people=self.app.settings.access.oidc.issuer is not None)
            api = create_api(
                Service(self.app),
                tokens=self.tokens,
                loopback=is_loopback(self.host),
                metrics=add_metrics(self.app, Metrics(self.app.events)),
                routers=routers_of(self.app.settings),
            )
            config = config_of(api, self.app.settings.admin, self._tls)
            self.watcher = api.state.watcher
            self._uvicorn = Uvicorn(config, lambda: api.state.watcher.end("the server stops"))
            started(self)
            await self._run_together(self._uvicorn)
        finally:
            self._socket.close()

    def stop(self) -> None:
        """Take nothing new."""
        if self._uvicorn is not None:
            self._uvicorn.should_exit = True
        if self._worker is not None:
            self._worker.stop()

    async def _run_together(self, server: Uvicorn) -> None:
        """Server and worker end together, and the helpers with them. An error in one of them is a bug, and shown."""
        alerts = alerting(self.app) if self._worker is None else contextlib.nullcontext()
        async with alerts, asyncio.TaskGroup() as group:
            helpers = [group.create_task(helper()) for helper in self._helpers]
            parts = [group.create_task(server.serve([self._socket]))]
            if self._worker is not None:
                parts.append(group.create_task(self._worker.run()))
            await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            self.stop()
            await asyncio.wait(parts)
            for helper in helpers:
                helper.cancel()


def config_of(api: Any, limits: Admin, tls: Tls | None = None) -> uvicorn.Config:
    """How uvicorn is to answer."""
    config = uvicorn.Config(
        api,
        http=bounded(replace(limits, connections=_with_files_for(limits.connections))),
        ws="none",
        timeout_keep_alive=limits.idle_timeout.total_seconds(),  # type: ignore[arg-type]
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_LAST_REQUESTS,
    )
    config.load()
    config.ssl = None if tls is None else tls.context
    return config


def _with_files_for(connections: int) -> int:
    """Let this process have a file open for each of so many connections; returns for how many there are. One that has
    no file left accepts nobody: it could close no other for a newcomer."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return connections
    wanted = connections + _OTHER_FILES
    if soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return min(connections, max(soft - _OTHER_FILES, soft // 2))


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there, or an error that says why not and what to do."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except socket.gaierror as error:
        raise UsageError(f"{host!r} is no address of this machine: {error.strerror}") from error
    except OSError as error:
        raise UsageError(_why_not(host, port, error)) from error


def _why_not(host: str, port: int, error: OSError) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return f"port {port} on {host} is in use: end what uses it, or choose another with --port (0: any free one)"
        case errno.EACCES:
            return f"this user may not listen on port {port}: choose one above 1023 with --port"
        case errno.EADDRNOTAVAIL:
            return f"{host} is no address of this machine: choose another with --host"
    return f"cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}"


async def serve(
    app: Redrive,
    host: str,
    port: int,
    *,
    upkeep: bool = True,
    beside: Sequence[Helper] = (),
    tls: Tls | None = None,
    started: Callable[[Server], None] = lambda server: None,
) -> None:
    """Until Ctrl-C or SIGTERM; the second one ends the process at once."""
    async with app:
        server = Server(app, host, port, upkeep=upkeep, beside=beside, tls=tls)
        stop_on_signals(server.stop)
        await server.run(started)
