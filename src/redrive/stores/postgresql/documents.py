"""Small JSON objects in a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from redrive.stores.base import Document
from redrive.stores.postgresql.access import Access
from redrive.stores.postgresql.codec import clean, unclean


class PostgresDocuments:
    """Keeps small JSON objects."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def put(self, kind: str, id: str, body: dict[str, Any], *, expect: int | None = None) -> bool:
        name = "put" if expect is None else "put_if" if expect else "put_new"
        text = msgspec.json.encode(body).decode()
        parameters = {"kind": clean(kind), "id": clean(id), "body": text, "expect": expect}
        return bool(await self._access.fetch(self._access.sql(name), parameters))

    async def get(self, kind: str, id: str) -> Document | None:
        named = {"kind": clean(kind), "id": clean(id)}
        found = await self._access.fetch(self._access.sql("document"), named)
        return Document(kind, id, found[0][0], msgspec.json.decode(found[0][1])) if found else None

    async def list(
        self, kind: str, *, limit: int = 1000, after: str | None = None, ascending: bool = False
    ) -> Sequence[Document]:
        parameters = {"kind": clean(kind), "limit": limit, "after": clean(after or "")}
        statement = self._access.sql(
            "documents_up" if ascending else "documents" if after is None else "documents_down"
        )
        found = await self._access.fetch(statement, parameters)
        return [Document(kind, unclean(id), version, msgspec.json.decode(body)) for id, version, body in found]

    async def delete(self, kind: str, id: str, *, expect: int | None = None) -> bool:
        named = {"kind": clean(kind), "id": clean(id), "expect": expect}
        return bool(await self._access.fetch(self._access.sql("delete_document"), named))
