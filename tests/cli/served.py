"""A real server on loopback in a thread of this process: what `redrive up` runs, on a database of a test."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from redrive.access.actors import EVERYTHING, Role, Scope
from redrive.access.tokens import Tokens
from redrive.admin.server import Server
from redrive.admin.tls import Tls
from redrive.app import Redrive
from redrive.config.settings import Settings
from redrive.stores.base import Letters

SOON = 60.0
T = TypeVar("T")


def on_a_store(test: T) -> T:
    """A test of what a store has and a server has not: a database that is named, a message that is sent, who acts."""
    test.on_a_store = True  # type: ignore[attr-defined]
    return test


class Served:
    """A server that answers, and tokens of it."""

    def __init__(self, file: Path, tls: Tls | None = None, **settings: Any) -> None:
        self._file = file
        self._tls = tls
        self._settings = settings
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="served")
        self._server: Server | None = None
        self._app: Redrive | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def url(self) -> str:
        assert self._server is not None
        return self._server.address.rstrip("/")

    def token(self, role: Role = Role.ADMIN, scope: Scope = EVERYTHING, **more: Any) -> str:
        """A token of that role."""

        async def made() -> str:
            assert self._server is not None
            return (await self._server.tokens.create(f"a {role}", role, scope=scope, **more))[1]

        text: str = self.do(made())
        return text

    def do(self, work: Any) -> Any:
        """Do that where the server runs."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(SOON)

    @property
    def tokens(self) -> Tokens:
        assert self._server is not None
        return self._server.tokens

    @property
    def letters(self) -> Letters:
        """What its store has; to be asked where the server runs."""
        assert self._app is not None
        return self._app.store.letters

    def start(self) -> None:
        self._thread.start()
        assert self._started.wait(SOON), "it did not start"

    def end(self) -> None:
        if self._server is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(self._server.stop)
        self._thread.join(SOON)

    async def _run(self) -> None:
        url = f"sqlite:///{self._file}"
        self._loop = asyncio.get_running_loop()
        async with Redrive(settings=Settings(store=url, transports={"default": url}, **self._settings)) as app:
            self._app = app
            self._server = Server(app, "127.0.0.1", 0, upkeep=False, tls=self._tls)
            await self._server.run(lambda server: self._started.set())


@contextmanager
def served(file: Path, tls: Tls | None = None, **settings: Any) -> Iterator[Served]:
    """A server on that database, until the end of the block."""
    server = Served(file, tls, **settings)
    server.start()
    try:
        yield server
    finally:
        server.end()
