"""The stream of changes, for pages that are open: server-sent events, one stream for each page.

    event: hello    {"version", "role", "server_time"}              first
    event: changed  {"what": ["letters", …], "at"}                  at most once a second; ask again for these
    event: replay   {"id", "state", "tally": {"sent": 12, …}}       of each that is under way
    event: bye      {"why"}                                         last: token, login or role ended, or it stops
    : and a comment every 15 seconds, so that a proxy does not take the stream for dead

Every message has an id. Who comes back with it as `Last-Event-ID`, to this server or another one, is told what may have
changed meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
from litestar import Request, Response, get
from litestar.di import NamedDependency
from litestar.params import QueryParameter
from litestar.response import Stream

from redrive import __version__
from redrive.access.actors import Actor, Role
from redrive.admin.callers import known_by_now, login_of
from redrive.clock import Clock
from redrive.service import Service
from redrive.service.watcher import Listener, Watcher

_HEARTBEAT = 15.0  # seconds
_HEADERS = {"X-Accel-Buffering": "no"}  # nginx would keep it until it is whole
Seconds = Annotated[float | None, QueryParameter(ge=0, le=86_400)]


@get("/api/events", role=Role.VIEWER, media_type="text/event-stream", tags=["events"])
async def follow_changes(
    request: Request[Any, Any, Any],
    watcher: NamedDependency[Watcher],
    service: NamedDependency[Service],
    actor: NamedDependency[Actor],
    seconds: Seconds = None,
) -> Response[bytes]:
    """What changes, as it does: `hello`, then `changed` with what to ask for again, and `replay` with how far each is,
    until `bye`. It resumes by `Last-Event-ID`. `seconds` ends it by itself, for who cannot wait for longer."""
    listener = await watcher.listen(actor, lambda: known_by_now(request), login=login_of(request))
    missed = listener.channel.missed(request.headers.get("last-event-id"))
    listener.channel.tell_one(listener, missed)
    told = _told(watcher, listener, service.app.clock, actor, seconds)
    stream: Any = Stream(told, media_type="text/event-stream", headers=_HEADERS)
    found: Response[bytes] = stream
    return found


async def _told(
    watcher: Watcher, listener: Listener, clock: Clock, actor: Actor, seconds: float | None
) -> AsyncIterator[bytes]:
    loop, over = asyncio.get_running_loop(), "the time that was asked for is over"
    end = None if seconds is None else loop.call_later(seconds, listener.end, over)
    try:
        now = clock.now()
        yield _event(listener, "hello", {"version": __version__, "role": actor.role, "server_time": now})
        while True:
            if not await clock.wait(listener.woken, _HEARTBEAT):
                yield b": still here\n\n"
                continue
            news = listener.take()
            if news.what:
                what = sorted(news.what)
                yield _event(listener, "changed", {"what": what, "at": clock.now()})
            for replay in news.replays.values():
                yield _event(listener, "replay", replay)
            if news.over is not None:
                yield _event(listener, "bye", {"why": news.over})
                return
    finally:
        if end is not None:
            end.cancel()
        watcher.leave(listener)


def _event(listener: Listener, name: str, data: object) -> bytes:
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (listener.channel.id.encode(), name.encode(), msgspec.json.encode(data))
