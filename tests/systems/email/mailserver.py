"""A real SMTP server (aiosmtpd) that answers as its script says."""

from __future__ import annotations

import asyncio
import ssl
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session


class Mailbox:
    """Keeps what was delivered, and refuses as it is told."""

    def __init__(self) -> None:
        self.delivered: list[tuple[str, tuple[str, ...], bytes]] = []
        self.once: dict[str, list[str]] = defaultdict(list)  # to RCPT of an address, used up one by one
        self.always: dict[str, str] = {}  # to RCPT of an address, each time
        self.data: list[str] = []  # to DATA, used up one by one; `drop` and `hang` are acted out
        self.connections = 0
        self.hanging = asyncio.Event()
        self.release = asyncio.Event()  # ends a hang
        self.rcpts: list[str] = []
        self.encrypted: list[bool] = []  # whether each came after STARTTLS

    @property
    def recipients(self) -> list[str]:
        """Everybody who got something, once for each time."""
        return [one for _, recipients, _ in self.delivered for one in recipients]

    async def handle_EHLO(
        self, server: SMTP, session: Session, envelope: Envelope, hostname: str, responses: list[str]
    ) -> list[str]:
        self.connections += 1
        session.host_name = hostname
        return responses

    async def handle_RCPT(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        self.rcpts.append(address)
        if self.once[address]:
            return self.once[address].pop(0)
        if address in self.always:
            return self.always[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        answer = self.data.pop(0) if self.data else "250 OK"
        if answer == "drop":
            _abort(server)
        elif answer == "hang":
            self.hanging.set()
            await self.release.wait()
            answer = "250 OK"
        if answer.startswith("250"):
            assert isinstance(envelope.content, bytes)
            self.encrypted.append(session.ssl is not None)
            self.delivered.append((envelope.mail_from or "", tuple(envelope.rcpt_tos), envelope.content))
        return answer


def _abort(server: SMTP) -> None:
    if isinstance(server.transport, asyncio.WriteTransport):
        server.transport.abort()


class _Server(SMTP):
    """The server's side of one connection."""

    async def end(self) -> None:
        _abort(self)
        if self._handler_coroutine is not None:
            self._handler_coroutine.cancel()
            await asyncio.gather(self._handler_coroutine, return_exceptions=True)


def _login(server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any) -> AuthResult:
    good = isinstance(data, LoginPassword) and (data.login, data.password) == (b"gateway", b"s3cret&/")
    return AuthResult(success=good, handled=False)


@asynccontextmanager
async def mail_server(
    mailbox: Mailbox,
    *,
    starttls: ssl.SSLContext | None = None,
    tls: ssl.SSLContext | None = None,
    auth: bool = False,
    port: int = 0,
) -> AsyncIterator[int]:
    """Its port, on loopback, in this loop."""
    options: dict[str, Any] = {"hostname": "localhost"}
    if auth:
        options |= {"authenticator": _login, "auth_require_tls": False}
    if starttls is not None:
        options |= {"tls_context": starttls}
    loop = asyncio.get_running_loop()
    sessions: list[_Server] = []

    def factory() -> SMTP:
        sessions.append(_Server(mailbox, loop=loop, **options))
        return sessions[-1]

    server = await loop.create_server(factory, "127.0.0.1", port, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await asyncio.gather(*(session.end() for session in sessions))
        await server.wait_closed()
