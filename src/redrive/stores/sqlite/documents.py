"""Small JSON objects in a table."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import msgspec

from redrive.stores.base import Document
from redrive.stores.sqlite.access import Access

_UP = "SELECT id, version, body FROM documents WHERE kind = :kind AND id > :after ORDER BY id LIMIT :limit"
_DOWN = "SELECT id, version, body FROM documents WHERE kind = :kind AND id < :after ORDER BY id DESC LIMIT :limit"
_NEWEST = "SELECT id, version, body FROM documents WHERE kind = :kind ORDER BY id DESC LIMIT :limit"


class SqliteDocuments:
    """Keeps small JSON objects."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def put(self, kind: str, id: str, body: dict[str, Any], *, expect: int | None = None) -> bool:
        text = msgspec.json.encode(body).decode()

        def work(connection: sqlite3.Connection) -> bool:
            row = connection.execute("SELECT version FROM documents WHERE kind = ? AND id = ?", (kind, id)).fetchone()
            version = row[0] if row else 0
            if expect is not None and version != expect:
                return False
            connection.execute("INSERT OR REPLACE INTO documents VALUES (?, ?, ?, ?)", (kind, id, version + 1, text))
            return True

        return await self._access.write(work)

    async def get(self, kind: str, id: str) -> Document | None:
        statement = "SELECT version, body FROM documents WHERE kind = ? AND id = ?"
        row = await self._access.read(lambda connection: connection.execute(statement, (kind, id)).fetchone())
        return None if row is None else Document(kind, id, row[0], msgspec.json.decode(row[1]))

    async def list(
        self, kind: str, *, limit: int = 1000, after: str | None = None, ascending: bool = False
    ) -> Sequence[Document]:
        statement = _UP if ascending else _NEWEST if after is None else _DOWN
        wanted = {"kind": kind, "after": after or "", "limit": limit}
        rows = await self._access.read(lambda connection: connection.execute(statement, wanted).fetchall())
        return [Document(kind, id, version, msgspec.json.decode(body)) for id, version, body in rows]

    async def delete(self, kind: str, id: str, *, expect: int | None = None) -> bool:
        statement = "DELETE FROM documents WHERE kind = ? AND id = ? AND version = coalesce(?, version)"
        named = (kind, id, expect)
        return await self._access.write(lambda connection: connection.execute(statement, named).rowcount > 0)
