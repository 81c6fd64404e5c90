"""Why a server is not reached, in words that say what to do: the name, the port, TLS where none is spoken.

Asked only while a server has not answered yet, and answered within two seconds, whatever the network does.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from msgspec import Struct

_SOON = 1.0
_PATIENCE = 1.5


class Server(Struct, frozen=True):
    """Where a server should be, and the schemes of its URLs without and with TLS."""

    what: str  # `Kafka`
    host: str
    port: int
    tls: bool
    plain: str  # `kafka`
    secure: str  # `kafka+ssl`

    @property
    def place(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


async def unreachable(servers: Sequence[Server]) -> str:
    """Why none of them can be connected to; nothing if one takes connections."""
    tasks = [_in_daemon(_not_connected, server) for server in servers]
    done, late = await asyncio.wait(tasks, timeout=_PATIENCE)
    reasons = [task.result() for task in done]
    if not all(reasons):
        return ""
    reasons += [f"{servers[n].place}: no answer within {_PATIENCE:g} s" for n, task in enumerate(tasks) if task in late]
    return f"{'; '.join(dict.fromkeys(reasons))}. Start it, or correct the URL"


async def misunderstood(server: Server) -> str:
    """Why a server that takes connections does not answer: what it speaks, as far as can be told."""
    try:
        async with asyncio.timeout(_PATIENCE):
            return await _in_daemon(_spoken, server)
    except TimeoutError:
        return ""


def _in_daemon(question: Callable[[Server], str], server: Server) -> asyncio.Future[str]:
    """The answer of a thread that nobody waits for: a name may take its time, and the process may end meanwhile."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[str] = loop.create_future()

    def give(text: str) -> None:
        if not answer.done():
            answer.set_result(text)

    def ask() -> None:
        text = question(server)
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(give, text)

    threading.Thread(target=ask, name="redrive-reach", daemon=True).start()
    return answer


def _not_connected(server: Server) -> str:
    try:
        socket.create_connection((server.host, server.port), timeout=_SOON).close()
    except socket.gaierror as error:
        return f"the name {server.host!r} cannot be resolved ({error.strerror or error})"
    except ConnectionRefusedError:
        return f"{server.place} refuses the connection: nothing listens there"
    except TimeoutError:
        return f"{server.place} does not take a connection within {_SOON:g} s: is the address right?"
    except (OSError, ValueError, OverflowError) as error:  # also a name or a port that cannot be one
        error = error if isinstance(error, OSError) else OSError(0, str(error))
        return f"{server.place} cannot be connected to ({error.strerror or error})"
    return ""


def _spoken(server: Server) -> str:
    takes = f"{server.place} takes connections"
    try:
        speaks_tls = _speaks_tls(server)
    except OSError:
        return ""
    if server.tls and not speaks_tls:
        return f"{takes} and speaks no TLS: write {server.plain}://, or the port where it speaks TLS"
    if server.tls:
        return f"{takes} and speaks TLS: is its certificate one that we trust, and is it {server.what}?"
    if speaks_tls:
        return f"{takes} and speaks TLS: write {server.secure}://"
    return f"{takes} and does not answer as {server.what} does: is it the right port?"


def _speaks_tls(server: Server) -> bool:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # it is only asked what it speaks
    with socket.create_connection((server.host, server.port), timeout=_SOON) as raw:
        try:
            context.wrap_socket(raw, server_hostname=server.host).close()
        except ssl.SSLError as error:
            return "ALERT" in (error.reason or "")  # it speaks TLS, and wants a certificate of ours
        except OSError:
            return False
    return True
