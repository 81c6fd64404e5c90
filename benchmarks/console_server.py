"""The server that the family `console` asks, in a process of its own: `redrive up` on a file, without a worker.

    python -m benchmarks.console_server FILE

prints one line of JSON: where it answers, and the tokens that it made. It ends when its stdin does. Beside the API it
has two routes that need no token:

    /bare?size=…    that many bytes of JSON: what Litestar and uvicorn cost
    /open/letters   a page of letters as GET /api/letters answers it, for nobody in particular: what access costs
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import msgspec
from litestar import Request, Response, Router, get
from litestar.di import NamedDependency
from msgspec import Struct

from benchmarks.harness import in_loop
from benchmarks.week import WeekClock
from redrive import Redrive
from redrive.access.actors import Role
from redrive.access.tokens import Tokens
from redrive.admin.api import create_api
from redrive.admin.server import Uvicorn, config_of, listen
from redrive.admin.wire import from_url
from redrive.config.settings import Settings
from redrive.forensics.query import Query
from redrive.forensics.scope import Scope
from redrive.service import Service, Summaries
from redrive.upkeep.loop import Upkeep

SCOPE = Scope(sources=("mail.*", "shop.*"), tenants=("acme", "globex", "hooli"))


class Listening(Struct, frozen=True):
    """Where it answers, and to whom."""

    url: str
    admin: str
    scoped: str  # a viewer's, of `SCOPE`


@get("/bare", role=None)
async def bare(request: Request[Any, Any, Any], size: int = 2) -> Response[bytes]:
    """That many bytes."""
    return Response(b'"' + b"x" * (size - 2) + b'"', media_type="application/json")


@get("/open/letters", role=None, dependencies={"filters": from_url(Query)})
async def open_letters(
    service: NamedDependency[Service], filters: NamedDependency[Query], after: str | None = None, limit: int = 50
) -> Summaries:
    """A page of letters."""
    return await service.letters(filters, after=after, limit=limit)


async def serve(path: Path) -> None:
    """Until stdin ends."""
    async with Redrive(transport=f"sqlite:///{path}", settings=Settings(), clock=WeekClock()) as app:
        tokens = Tokens(app.store.documents, app.clock)
        admin, admin_text = await tokens.create("bench", Role.ADMIN)
        scoped, scoped_text = await tokens.create("bench", Role.VIEWER, scope=SCOPE)
        listener = listen("127.0.0.1", 0)
        beside = Router("/", route_handlers=[bare, open_letters])
        api = create_api(Service(app), tokens=tokens, loopback=True, routers=[beside])
        server = Uvicorn(config_of(api, app.settings.admin), lambda: api.state.watcher.end("it is over"))
        ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        ended.add_done_callback(lambda _: setattr(server, "should_exit", True))
        upkeep = asyncio.create_task(Upkeep.of(app).run())
        listening = Listening(f"http://127.0.0.1:{listener.getsockname()[1]}", admin_text, scoped_text)
        print(msgspec.json.encode(listening).decode(), flush=True)
        await server.serve([listener])
        upkeep.cancel()
        for token in (admin, scoped):
            await tokens.revoke(token.id)


if __name__ == "__main__":
    in_loop(serve(Path(sys.argv[1])))
