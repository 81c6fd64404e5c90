"""The servers of one test run: each started when first asked for, all gone in the end."""

from collections.abc import Callable
from typing import TypeVar

from tests.servers.base import Lifecycle

S = TypeVar("S", bound=Lifecycle)


class ServerPool:
    """Shared servers are started once and looked after; private ones belong to whoever asked."""

    def __init__(self) -> None:
        self._shared: dict[str, Lifecycle] = {}
        self._private: list[Lifecycle] = []

    def shared(self, key: str, make: Callable[[], S]) -> S:
        """Starts a server and remembers it under the key, so that its death is noticed."""
        server = make()
        self._shared[key] = server
        return server.start()

    def private(self, make: Callable[[], S]) -> S:
        """Starts a server for one user of it, who may kill it."""
        server = make()
        self._private.append(server)
        return server.start()

    def require_running(self, keys: frozenset[str]) -> None:
        """Raises ServerFailed if one of these shared servers was started and is no more."""
        for key in keys & self._shared.keys():
            self._shared[key].require_running()

    def discard(self) -> None:
        """Kills all servers and removes their data."""
        for server in (*self._private, *self._shared.values()):
            server.discard()
        self._private.clear()
        self._shared.clear()
