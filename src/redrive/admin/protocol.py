"""How long a client may take, and how many there may be: one that stalls takes nothing from the others.

    waits for       how long at most                      then
    headers         admin.header_timeout, all of them     408, and closed
    body            admin.body_timeout, all of it         408, and closed
    the next one    admin.idle_timeout                    closed
    its answer      admin.body_timeout, while it does     cut
                    not read what is sent

Each is the time for the whole, so that a byte now and then does not prolong it. Where there are `admin.connections`
already, the one whose client has kept us waiting for longest (for a request, or to read its answer) is closed for a
newcomer.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from redrive.config.settings import Admin

_LATE = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_FULL = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class Bounded(H11Protocol):
    """HTTP/1.1 as uvicorn speaks it, with a deadline for everything that a client does."""

    limits = Admin()
    began = 0.0  # when it began to wait for the request that it has not got yet, or for its answer to be read
    _timer: asyncio.TimerHandle | None = None
    _phase: object = None
    _unread: asyncio.TimerHandle | None = None  # what is sent has to be read by then, whatever else the client does

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=1, low=0)  # `pause_writing` tells of what is not taken; 0 stops TLS
        self.began = self.loop.time()
        self._allow(h11.IDLE, self.limits.header_timeout)
        if len(self.connections) > self.limits.connections:
            self._close_oldest()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        self._stop_unread()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        phase = self.conn.their_state
        if self.transport.is_closing() or phase not in (h11.IDLE, h11.SEND_BODY):
            self._stop()
        elif phase is not self._phase:
            self._allow(phase, self.limits.header_timeout if phase is h11.IDLE else self.limits.body_timeout)

    def on_response_complete(self) -> None:
        self._stop()
        if self._unread is None:
            self.began = self.loop.time()
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stop_unread()
        self.began = self.loop.time()
        self._unread = self.loop.call_later(self.limits.body_timeout.total_seconds(), self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_unread()
        self.began = self.loop.time()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP; whoever has an answer already, or a part of it, is cut off."""
        if self.cycle is not None:
            self.cycle.disconnected = True  # the app that still answers speaks to nobody
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()

    def shutdown(self) -> None:
        """The server stops: whoever reads nothing of an answer is not waited for."""
        if self._unread is None:
            super().shutdown()
        else:
            self.transport.abort()

    def _unsupported_upgrade_warning(self) -> None:
        """Says nothing: uvicorn's advice is of packages that would change nothing here."""

    @property
    def is_waiting(self) -> bool:
        """Whether it has no request under way that is whole, or nobody reads the answer."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body or self._unread is not None

    def _allow(self, phase: object, span: timedelta) -> None:
        self._stop()
        self._phase = phase
        self._timer = self.loop.call_later(span.total_seconds(), self._late)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._phase = None

    def _stop_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
        self._unread = None

    def _late(self) -> None:
        self._close(_LATE)

    def _close(self, said: bytes) -> None:
        if not self.transport.is_closing():
            if self.cycle is None or not self.cycle.response_started or self.cycle.response_complete:
                self.transport.write(said)
            self.transport.close()

    def _close_oldest(self) -> None:
        """Close the connection that has waited for longest; where none waits, this one."""
        others = (other for other in self.connections if isinstance(other, Bounded) and other is not self)
        waiting = [other for other in others if other.is_waiting and not other.transport.is_closing()]
        if waiting:
            min(waiting, key=lambda other: other.began).transport.abort()
        else:
            self._close(_FULL)


def bounded(limits: Admin) -> type[Bounded]:
    """The protocol with those limits."""
    return type("Bounded", (Bounded,), {"limits": limits})
