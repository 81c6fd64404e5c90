"""A connection to a server, with the token that is kept for it, renewed where it can be."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from redrive.remote.credentials import login_for
from redrive.remote.device import renewed
from redrive.remote.http import Http


@asynccontextmanager
async def connected(server: str, ca_file: Path | None) -> AsyncIterator[Http]:
    """Ask that server as whoever is logged in. Raises NotLoggedIn, which says how to be."""
    login = login_for(server)

    async def fresh(used: str) -> str | None:
        again = await renewed(server, ca_file, used=used)
        return None if again is None else again.token

    http = Http(server, login.token, ca_file=ca_file, fresh=fresh if login.refresh_token else None)
    try:
        yield http
    finally:
        await http.aclose()
